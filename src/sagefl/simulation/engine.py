"""Engines: who carries out the work of a round. One contract, the same results bit for bit.

An engine holds a `Workbench` (or several) and maps a named task over calls; the first argument of every call is the
client whose row it needs. `Sequential` is the obvious reference. `Processes` is a pool of single-threaded workers on
shared memory. Results are returned in the order of the calls, whatever order they were computed in, and no reduction
over clients happens inside, so the number of workers cannot matter.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
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
TASKS_PER_WORKER = 24  # chunks a worker gets per map: fine enough to balance, coarse enough to cost nothing


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
        self.population = Population.allocate(world.layout, world.clients, ages=1 + world.links.history, extras=extras)
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
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.workers = workers
        self.population = Population.allocate(
            world.layout, world.clients, ages=1 + world.links.history, extras=extras, shared_memory=True
        )
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
    count = (
        workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else workers or os.cpu_count() or 1
    )
    if name == "auto":
        name = "processes" if count > 1 and world.clients > 1 else "sequential"
    if name == "sequential":
        return Sequential(world, hooks, extras)
    if name == "processes":
        return Processes(world, hooks, count, extras)
    raise ValueError(f"unknown engine {name!r}: auto, sequential or processes")


def _parts(world: World, hooks: LocalTraining, population: Population, *, shared_memory: bool) -> tuple[Any, ...]:
    """What a workbench is made of. Workers make their own: its scratch memory must not be shared."""
    t = world.config.training
    options = TrainingOptions(t.learning_rate, t.batch_size, t.epochs, t.max_batches, t.reset_optimizer, t.mixing)
    corpus = world.corpus(shared_memory=shared_memory)
    return (world.model, world.layout, population, corpus, options, hooks, world.config.seed)


def _context() -> Any:
    """A fork server that has torch loaded: workers start at once and inherit nothing from this process."""
    methods = multiprocessing.get_all_start_methods()
    context = torch.multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(["sagefl.simulation.engine"])
    return context


_bench: Workbench | None = None


def _attach(*parts: Any) -> None:
    """A worker's start: one thread, deaf to Ctrl-C (the main process decides), gone when the main process is."""
    global _bench
    _bench = Workbench(*parts)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _work(task: str, calls: list[Call]) -> list[Any]:
    function = getattr(_bench, task)
    return [function(*call) for call in calls]
