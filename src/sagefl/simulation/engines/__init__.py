"""Engines: who carries out the work of a round. One contract, the same results bit for bit (`Stacked`: nearly).

An engine holds a `Workbench` (or several) and maps a named task over calls; the first argument of every call is the
client whose row it needs. `Sequential` is the obvious reference. `Processes` is a pool of single-threaded workers on
shared memory. Results are returned in the order of the calls, whatever order they were computed in, and no reduction
over clients happens inside, so the number of workers cannot matter. `RayActors` (module `ray`) shards the population
over many machines. `Stacked` computes many clients as one batch, on an
accelerator if there is one: its results agree within floating-point tolerance.
"""

from __future__ import annotations

import logging
import os

from ...learning.training import LocalTraining
from ..world import World
from .base import Engine, EngineError
from .processes import Processes, lacking_shared_memory
from .sequential import Sequential
from .stacked import Stacked, find_device

__all__ = ["Engine", "EngineError", "Processes", "Sequential", "Stacked", "cores", "find_device", "make_engine"]

logger = logging.getLogger(__name__)


def make_engine(
    name: str,
    world: World,
    hooks: LocalTraining,
    *,
    workers: int | None = None,
    extras: dict[str, int] | None = None,
    device: str | None = None,
    ray_address: str | None = None,
) -> Engine:
    """The engine of a name; ``auto`` takes an accelerator for what can be stacked, else processes wherever there is
    more than one core and client.
    """
    count = workers or cores()
    place = find_device(device)
    if name == "auto" and place.type != "cpu":
        engine = Stacked(world, hooks, extras, device=place, threads=count)
        if engine.bench.trouble is None:
            return engine
        engine.close()
        logger.warning("not on %s: working on the CPU instead", place)
    elif name not in ("auto", "stacked") and device is not None and place.type != "cpu":
        raise EngineError(f"the engine {name} works on the CPU, not on {device}: use --engine stacked")
    if name == "auto":
        name = "processes" if count > 1 and world.clients > 1 else "sequential"
        if name == "processes" and (lack := lacking_shared_memory(world, extras)) is not None:
            logger.warning("%s: working in one process instead", lack)
            name = "sequential"
    if name == "sequential":
        return Sequential(world, hooks, extras)
    if name == "processes":
        return Processes(world, hooks, count, extras)
    if name == "stacked":
        return Stacked(world, hooks, extras, device=place, threads=count)
    if name == "ray":
        from .ray import RayActors

        return RayActors(world, hooks, workers, extras, ray_address)
    raise ValueError(f"unknown engine {name!r}: auto, sequential, processes, stacked or ray")


def cores() -> int:
    """The cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
