"""Engines: who carries out the work of a round. One contract, the same results bit for bit.

An engine holds a `Workbench` (or several) and maps a named task over calls; the first argument of every call is the
client whose row it needs. `Sequential` is the obvious reference. `Processes` is a pool of single-threaded workers on
shared memory. Results are returned in the order of the calls, whatever order they were computed in, and no reduction
over clients happens inside, so the number of workers cannot matter.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.multiprocessing

from ..errors import SageflError
from ..learning.population import Population
from ..learning.training import LocalTraining, TrainingOptions
from ..learning.workbench import Workbench
from .world import World

__all__ = ["Engine", "EngineError", "Processes", "Sequential", "make_engine"]

Call = tuple[Any, ...]
SHARED_MEMORY = Path("/dev/shm")
TASKS_PER_WORKER = 24  # chunks a worker gets per map: fine enough to balance, coarse enough to cost nothing
logger = logging.getLogger(__name__)


class EngineError(SageflError, RuntimeError):
    """The work could not be carried out."""


class Engine(Protocol):
    """What the round loop needs."""

    population: Population

    def map(self, task: str, calls: Sequence[Call], weights: Sequence[float] | None = None) -> list[Any]:
        """Run a workbench task for every call; `weights` say how long each takes, longest first."""

    def close(self) -> None:
        """Let go of workers and memory."""


class Sequential:
    """One client after another, in this process."""

    def __init__(self, world: World, hooks: LocalTraining, extras: dict[str, int] | None = None) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.population = _allocate(world, extras, shared_memory=False)
        self._bench = Workbench(*_parts(world, hooks, self.population, shared_memory=False))

    def map(self, task: str, calls: Sequence[Call], weights: Sequence[float] | None = None) -> list[Any]:
        """Plainly, in order."""
        function = getattr(self._bench, task)
        return [function(*call) for call in calls]

    def close(self) -> None:
        """Give torch its threads back."""
        torch.set_num_threads(self._threads)


class Processes:
    """A pool of single-threaded workers on shared memory, largest work first."""

    def __init__(self, world: World, hooks: LocalTraining, workers: int, extras: dict[str, int] | None = None) -> None:
        if (lack := _lacking_shared_memory(world, extras)) is not None:
            raise EngineError(f"{lack}: make it larger (docker: --shm-size), or use --engine sequential")
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.workers = workers
        self.population = _allocate(world, extras, shared_memory=True)
        parts = _parts(world, hooks, self.population, shared_memory=True)
        self._pool = ProcessPoolExecutor(workers, mp_context=_context(), initializer=_attach, initargs=parts)

    def map(self, task: str, calls: Sequence[Call], weights: Sequence[float] | None = None) -> list[Any]:
        """In chunks of similar weight, heaviest first."""
        results: list[Any] = [None] * len(calls)
        futures: list[tuple[list[int], Future[list[Any]]]] = []
        try:
            for chunk in self._chunks(len(calls), weights):
                futures.append((chunk, self._pool.submit(_work, task, [calls[i] for i in chunk])))
            for chunk, future in futures:
                for i, result in zip(chunk, future.result(), strict=True):
                    results[i] = result
        except BrokenProcessPool:
            raise EngineError(
                "a worker process died (out of memory, or killed from outside); the last checkpoint is intact: "
                "resume the run, with fewer --workers if memory was the cause"
            ) from None
        return results

    def _chunks(self, count: int, weights: Sequence[float] | None) -> list[list[int]]:
        order = range(count) if weights is None else sorted(range(count), key=lambda i: -weights[i])
        goal = (sum(weights) if weights is not None else count) / (self.workers * TASKS_PER_WORKER)
        chunks: list[list[int]] = []
        load = goal
        for i in order:
            if load >= goal:
                chunks.append([])
                load = 0.0
            chunks[-1].append(i)
            load += weights[i] if weights is not None else 1.0
        return chunks

    def close(self) -> None:
        """End the workers and give torch its threads back."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(self._threads)


def make_engine(
    name: str, world: World, hooks: LocalTraining, *, workers: int | None = None, extras: dict[str, int] | None = None
) -> Engine:
    """The engine of a name; ``auto`` takes processes wherever there is more than one core and client."""
    count = workers or _cores()
    if name == "auto":
        name = "processes" if count > 1 and world.clients > 1 else "sequential"
        if name == "processes" and (lack := _lacking_shared_memory(world, extras)) is not None:
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


def _allocate(world: World, extras: dict[str, int] | None, *, shared_memory: bool) -> Population:
    return Population.allocate(
        world.layout,
        world.clients,
        ages=1 + world.links.history,
        two_faced=world.misbehaviour.poisons,
        extras=extras,
        shared_memory=shared_memory,
    )


def _lacking_shared_memory(world: World, extras: dict[str, int] | None) -> str | None:
    """What is wrong with this machine's shared memory, if it cannot hold the run; beyond it lies a bus error."""
    if not SHARED_MEMORY.is_dir():
        return None
    room = os.statvfs(SHARED_MEMORY)
    free = room.f_bavail * room.f_frsize
    published = (1 + world.links.history) * (2 if world.misbehaviour.poisons else 1)
    columns = (3 + published) * world.layout.width + sum((extras or {}).values())
    d = world.dataset
    needed = 4 * columns * world.clients + sum(a.nbytes for a in (d.train_x, d.train_y, d.test_x, d.test_y))
    if needed <= free:
        return None
    return f"the workers need {needed / 1e6:,.0f} MB of shared memory and {SHARED_MEMORY} has {free / 1e6:,.0f} MB left"


def _parts(world: World, hooks: LocalTraining, population: Population, *, shared_memory: bool) -> tuple[Any, ...]:
    """What a workbench is made of. Workers make their own: its scratch memory must not be shared."""
    t = world.config.training
    options = TrainingOptions(
        t.learning_rate, t.batch_size, t.epochs, t.max_batches, t.reset_optimizer, t.mixing, world.config.rounds
    )
    corpus = world.corpus(shared_memory=shared_memory)
    model = deepcopy(world.model)  # the world's own stays a template
    return (model, world.layout, population, corpus, options, hooks, world.config.seed)


def _context() -> Any:
    """A fork server that has torch loaded: workers start at once and inherit nothing from this process."""
    methods = multiprocessing.get_all_start_methods()
    context = torch.multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(["sagefl.simulation.engine"])
    return context


_bench: Workbench | None = None


def _attach(*parts: Any) -> None:
    """A worker's start: one thread, out of reach of Ctrl-C (the main process decides), gone when that one is."""
    global _bench
    os.setpgrp()  # signals to the whole group, as Ctrl-C is one, reach the main process alone
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    _bench = Workbench(*parts)


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _work(task: str, calls: list[Call]) -> list[Any]:
    function = getattr(_bench, task)
    return [function(*call) for call in calls]
