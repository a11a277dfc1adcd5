"""The engine of one machine: a pool of single-threaded workers on shared memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from ...learning.devices import CPU
from ...learning.memory import keep_freed_memory
from ...learning.tasks import Result, Task, carry_out
from ...learning.training import LocalTraining
from ...learning.workbench import Workbench
from ...references import script_hidden
from ..world import World
from .base import EngineError, Parts, allocate, parts

SHARED_MEMORY = Path("/dev/shm")
CHUNKS = 24  # a worker gets per map: fine enough to balance, coarse enough to cost nothing
LAST = 4  # into so many pieces per worker what is left is cut, once these are smaller: nobody waits for a long last one


class Processes:
    """A pool of single-threaded workers on shared memory, largest work first."""

    def __init__(
        self,
        world: World,
        hooks: LocalTraining,
        workers: int,
        extras: dict[str, int] | None = None,
        *,
        device: torch.device = CPU,
    ) -> None:
        if (lack := lacking_shared_memory(world, extras)) is not None:
            raise EngineError(f"{lack}: make it larger (docker: --shm-size), or use --engine sequential")
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.workers = workers
        self.population = allocate(world, extras, shared_memory=True)
        made_of = parts(world, hooks, self.population, shared_memory=True, device=device)
        self._pool = ProcessPoolExecutor(workers, mp_context=context(), initializer=_attach, initargs=made_of)

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """In chunks of similar weight, heaviest first, smaller ones at the end."""
        results: list[Any] = [None] * len(tasks)
        futures: list[tuple[list[int], Future[list[Result]]]] = []
        try:
            with script_hidden():
                for chunk in self._chunks([task.weight for task in tasks]):
                    futures.append((chunk, self._pool.submit(_work, [tasks[i] for i in chunk])))
            for chunk, future in futures:
                for i, result in zip(chunk, future.result(), strict=True):
                    results[i] = result
        except BrokenProcessPool:
            raise EngineError(
                "a worker process died (out of memory, or killed from outside); the last checkpoint is intact: "
                "resume the run, with fewer --workers if memory was the cause"
            ) from None
        return results

    def _chunks(self, weights: Sequence[float]) -> list[list[int]]:
        left = sum(weights)
        usual = left / (self.workers * CHUNKS)
        chunks: list[list[int]] = []
        load = goal = 0.0
        for i in sorted(range(len(weights)), key=lambda i: -weights[i]):
            if load >= goal:
                chunks.append([])
                load, goal = 0.0, min(usual, left / (self.workers * LAST))
            chunks[-1].append(i)
            load += weights[i]
            left -= weights[i]
        return chunks

    def close(self) -> None:
        """End the workers and give torch its threads back."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(self._threads)


def lacking_shared_memory(world: World, extras: dict[str, int] | None) -> str | None:
    """Why this machine's shared memory cannot hold the run, else None. Exceeding it would end in a bus error."""
    if not SHARED_MEMORY.is_dir():
        return None
    room = os.statvfs(SHARED_MEMORY)
    free = room.f_bavail * room.f_frsize
    published = (1 + world.history) * (2 if world.misbehaviour.poisons else 1)
    layout, corpus = world.layout, world.corpus()
    columns = (1 + published) * layout.width + 2 * layout.trained_width + sum((extras or {}).values())
    held = {name: getattr(corpus, name).nbytes for name in ("train_x", "train_y", "test_x", "test_y")}
    frozen = sum(p.nbytes for p in world.model.parameters() if not p.requires_grad)
    needed = 4 * columns * world.clients + frozen + sum(n for name, n in held.items() if name not in corpus.files)
    if needed <= free:
        return None
    return f"the workers need {needed / 1e6:,.0f} MB of shared memory and {SHARED_MEMORY} has {free / 1e6:,.0f} MB left"


def context() -> BaseContext:
    """A fork server that has torch loaded: workers start at once and inherit nothing from this process."""
    methods = multiprocessing.get_all_start_methods()
    context = torch.multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(["sagefl.simulation.engines.processes"])
    return context


_bench: Workbench | None = None


def _attach(*made_of: *Parts) -> None:
    """Start a worker: one thread, ignoring Ctrl-C (the main process decides), ending when that process ends."""
    global _bench
    _ignore_interrupts()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    _bench = Workbench(*made_of)


def _ignore_interrupts() -> None:
    """Ctrl-C is sent to the whole process group; so that it reaches the main process alone, leave that or be deaf."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    else:  # Windows
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _follow(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _work(tasks: Sequence[Task[Result]]) -> list[Result]:
    assert _bench is not None
    return carry_out(tasks, _bench)
