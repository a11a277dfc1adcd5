"""Engines: who carries out the work of a round. One contract, the same results bit for bit.

An engine holds a `Workbench` (or several) and maps a named task over calls; the first argument of every call is the
client whose row it needs. `Sequential` is the obvious reference. `Processes` is a pool of single-threaded workers on
shared memory. Results are returned in the order of the calls, whatever order they were computed in, and no reduction
over clients happens inside, so the number of workers cannot matter.
"""

from __future__ import annotations

import logging
import os

from ...learning.training import LocalTraining
from ..world import World
from .base import Engine, EngineError
from .processes import Processes, lacking_shared_memory
from .sequential import Sequential

__all__ = ["Engine", "EngineError", "Processes", "Sequential", "make_engine"]

logger = logging.getLogger(__name__)


def make_engine(
    name: str, world: World, hooks: LocalTraining, *, workers: int | None = None, extras: dict[str, int] | None = None
) -> Engine:
    """The engine of a name; ``auto`` takes processes wherever there is more than one core and client."""
    count = workers or _cores()
    if name == "auto":
        name = "processes" if count > 1 and world.clients > 1 else "sequential"
        if name == "processes" and (lack := lacking_shared_memory(world, extras)) is not None:
            logger.warning("%s: working in one process instead", lack)
            name = "sequential"
    if name == "sequential":
        return Sequential(world, hooks, extras)
    if name == "processes":
        return Processes(world, hooks, count, extras)
    raise ValueError(f"unknown engine {name!r}: auto, sequential or processes")


def _cores() -> int:
    """The cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
