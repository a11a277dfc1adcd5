"""Engines: who carries out the work of a round. One contract, the same results bit for bit (`Stacked`: nearly).

An engine carries out tasks (`sagefl.learning.tasks`), each where its client's row is. `Sequential` is the obvious
reference. `Processes` is a pool of single-threaded workers on shared memory. `RayActors` (module `ray`) shards the
population over many machines. `Stacked` computes many clients as one batch, on an accelerator if there is one: its
results agree within floating-point tolerance. Results come in the order of the tasks, whatever order they were computed
in, and no reduction over clients happens inside, so the number of workers cannot matter.

A new engine is one entry of `ENGINES`, or an entry point of the group `sagefl.engines`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from ...learning.devices import CPU, find_device
from ...learning.training import LocalTraining
from ...references import ENGINES as GROUP
from ...selection.registry import add_entry_points, nearest
from ..world import World
from .base import Engine, EngineError
from .processes import Processes, lacking_shared_memory
from .sequential import Sequential
from .stacked import Stacked

__all__ = [
    "ENGINES",
    "Engine",
    "EngineError",
    "Processes",
    "Resources",
    "Sequential",
    "Stacked",
    "cores",
    "engines",
    "find_device",
    "make_engine",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resources:
    """What an engine may use."""

    workers: int | None  # as asked for; None: nobody said
    device: torch.device
    extras: dict[str, int] | None  # per-client arrays of the method, as name -> columns
    ray_address: str | None = None
    asked: bool = False  # whether the device was asked for by name

    @property
    def single(self) -> torch.device:
        """Where clients are worked on one by one: on an accelerator only if it was asked for."""
        return self.device if self.asked else CPU

    @property
    def cores(self) -> int:
        """Workers, by default as many as this process has cores."""
        return self.workers or cores()


Factory = Callable[[World, LocalTraining, Resources], Engine]


def _ray(world: World, hooks: LocalTraining, r: Resources) -> Engine:
    from .ray import RayActors

    return RayActors(world, hooks, r.workers, r.extras, r.ray_address)


ENGINES: dict[str, Factory] = {
    "sequential": lambda world, hooks, r: Sequential(world, hooks, r.extras, device=r.single),
    "processes": lambda world, hooks, r: Processes(world, hooks, r.cores, r.extras, device=r.single),
    "stacked": lambda world, hooks, r: Stacked(world, hooks, r.extras, device=r.device, threads=r.cores),
    "ray": _ray,
}
SMALL = 2e9  # training samples times parameters of a whole run: a few seconds of one core, as workers take to start
ON_CPU = ("ray",)  # engines that have no use for --device: its actors ask the cluster for a core each


def engines() -> dict[str, Factory]:
    """Every engine by name, other packages' included."""
    _discover()
    return ENGINES


@cache
def _discover() -> None:
    def check(name: str, offered: object) -> Factory:
        if not callable(offered):
            raise TypeError(f"{offered!r} cannot be called with a world, local training and resources")
        factory: Factory = offered
        return factory

    add_entry_points(GROUP, "engine", ENGINES, check)


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
    """The engine of a name; `auto` takes an accelerator for what can be stacked, else processes wherever there is
    more than one core and client, and more work than starting them takes.
    """
    known = engines()
    if name not in ("auto", *known):
        raise EngineError(f"unknown engine {name!r}{nearest(name, known)}; engines: auto, {', '.join(known)}")
    resources = Resources(workers, find_device(device), extras, ray_address, asked=device is not None)
    if name in ON_CPU and resources.device.type != "cpu" and device is not None:
        raise EngineError(f"the engine {name} works on the CPU, not on {device}: use stacked, processes or sequential")
    if name == "auto":
        return _automatic(world, hooks, resources)
    return known[name](world, hooks, resources)


def _automatic(world: World, hooks: LocalTraining, r: Resources) -> Engine:
    if r.device.type != "cpu":
        engine = Stacked(world, hooks, r.extras, device=r.device, threads=r.cores)
        if engine.bench.trouble is None:
            return engine
        engine.close()
        if r.asked:
            logger.warning("working on %s client by client", r.device)
            return ENGINES["sequential"](world, hooks, r)
        logger.warning("not on %s: working on the CPU instead", r.device)
    if r.cores == 1 or world.clients == 1 or (r.workers is None and _small(world)):
        return ENGINES["sequential"](world, hooks, r)
    if (lack := lacking_shared_memory(world, r.extras)) is not None:
        logger.warning("%s: working in one process instead", lack)
        return ENGINES["sequential"](world, hooks, r)
    return ENGINES["processes"](world, hooks, r)


def _small(world: World) -> bool:
    """Whether a run is over before workers would have started; nobody notices, because results are the same."""
    samples = sum(map(world.workload, range(world.clients))) * world.config.rounds
    return samples * world.layout.width <= SMALL


def cores() -> int:
    """The cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
