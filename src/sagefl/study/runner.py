"""Carrying out cells: one after another on all cores, or several at a time on one core each.

A cell that fails is reported and does not stop the rest. A study that is interrupted, or killed, goes on where it was:
finished cells are not run again, and a cell that was under way resumes from its own checkpoint. Two studies may work on
the same folder; a cell that another process is running is put off to the end.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..runs.config import Execution, RunConfig
from ..signals import stoppable
from .errors import InterruptedStudyError
from .matrix import Cell
from .work import described, simulate, taken

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


__all__ = ["Failure", "Watcher", "done", "run_cells"]


@dataclass(frozen=True)
class Failure:
    """A cell that could not be finished."""

    cell: Cell
    why: str
    trace: str = ""  # of an error nobody foresaw

    def __str__(self) -> str:
        return f"{self.cell.name} failed: {self.why}"


class Watcher(Protocol):
    """Who follows a study."""

    def started(self, cell: Cell) -> None:
        """A cell is under way."""

    def round(self, cell: Cell, rounds: int) -> None:
        """It has done this many rounds."""

    def finished(self, cell: Cell, seconds: float) -> None:
        """It is done."""

    def failed(self, failure: Failure) -> None:
        """It is not going to be done."""


def done(cell: Cell, folder: Path) -> bool:
    """Whether a cell has its end result."""
    return (cell.folder(folder) / "summary.json").is_file()


def run_cells(
    cells: Sequence[Cell], folder: Path, watcher: Watcher, *, jobs: int = 1, execution: Execution | None = None
) -> list[Failure]:
    """Run what is not done yet and return what failed. `execution` holds for one cell at a time (jobs = 1)."""
    todo = [cell for cell in cells if not done(cell, folder)]
    if not todo:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    if jobs <= 1:
        return _one_by_one(todo, folder, watcher, execution or Execution())
    return _Pool(folder, watcher, min(jobs, len(todo))).run(todo)


class _Queue:
    """Cells to do; one that somebody else is running is put off until nothing else is left, then waited for."""

    def __init__(self, cells: Sequence[Cell], folder: Path, patience: float = 30.0) -> None:
        self._cells, self._folder = deque(cells), folder
        self._patience, self._waited = patience, 0.0

    def __len__(self) -> int:
        return len(self._cells)

    def next(self) -> Cell:
        """The next free cell; after waiting long enough any cell, which then says itself that it is taken."""
        while True:
            for _ in range(len(self._cells)):
                cell = self._cells.popleft()
                if not taken(cell.folder(self._folder)) or self._waited >= self._patience:
                    return cell
                self._cells.append(cell)
            time.sleep(0.2)
            self._waited += 0.2


# One after another --------------------------------------------------------------------------------------------------


def _one_by_one(cells: Sequence[Cell], folder: Path, watcher: Watcher, execution: Execution) -> list[Failure]:
    from ..simulation.simulator import InterruptedRunError

    queue, failures = _Queue(cells, folder), []
    while queue:
        cell = queue.next()
        watcher.started(cell)
        began = time.monotonic()
        try:
            simulate(cell.config, cell.folder(folder), execution, lambda n, cell=cell: watcher.round(cell, n))
        except (InterruptedRunError, KeyboardInterrupt):
            raise InterruptedStudyError("the study was interrupted; the same command goes on with it") from None
        except Exception as error:
            failures.append(Failure(cell, *described(error)))
            watcher.failed(failures[-1])
        else:
            watcher.finished(cell, time.monotonic() - began)
    return failures


# Several at a time --------------------------------------------------------------------------------------------------


@dataclass
class _Worker:
    process: BaseProcess
    line: Connection
    cell: Cell | None = None
    began: float = 0.0


class _Pool:
    """Worker processes that run whole cells; one that dies takes only its own cell with it."""

    def __init__(self, folder: Path, watcher: Watcher, size: int) -> None:
        self.folder, self.watcher, self.size = folder, watcher, size
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._failures: list[Failure] = []
        self._stop = threading.Event()

    def run(self, cells: Sequence[Cell]) -> list[Failure]:
        """All cells."""
        queue = _Queue(cells, self.folder)
        with stoppable(self._stop.set):
            try:
                self._workers = [self._hire() for _ in range(self.size)]
                while not self._stop.is_set() and (queue or any(w.cell for w in self._workers)):
                    self._deal(queue)
                    self._listen()
            finally:
                self._dismiss()
        if self._stop.is_set():
            raise InterruptedStudyError("the study was interrupted; the same command goes on with it")
        return self._failures

    def _hire(self) -> _Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(there,), daemon=True)
        process.start()
        there.close()
        return _Worker(process, here)

    def _deal(self, queue: _Queue) -> None:
        for worker in self._workers:
            if worker.cell is None and queue:
                worker.cell, worker.began = queue.next(), time.monotonic()
                self.watcher.started(worker.cell)
                worker.line.send((worker.cell.config.model_dump(mode="json"), worker.cell.folder(self.folder)))

    def _listen(self) -> None:
        busy = {worker.line: worker for worker in self._workers if worker.cell is not None}
        for line in wait(list(busy), timeout=0.2):
            worker = busy[line]  # type: ignore[index]
            try:
                kind, *details = worker.line.recv()
            except (EOFError, OSError):
                kind, details = "died", []
            self._heard(worker, kind, details)

    def _heard(self, worker: _Worker, kind: str, details: Sequence[Any]) -> None:
        cell = worker.cell
        assert cell is not None
        if kind == "round":
            self.watcher.round(cell, details[0])
            return
        worker.cell = None
        if kind == "finished":
            self.watcher.finished(cell, time.monotonic() - worker.began)
        elif kind == "failed":
            self._fail(Failure(cell, *details))
        elif kind == "died":
            worker.process.join(5)
            code = worker.process.exitcode
            self._fail(Failure(cell, f"its process died (exit code {code}): out of memory, or killed from outside"))
            self._workers[self._workers.index(worker)] = self._hire()

    def _fail(self, failure: Failure) -> None:
        self._failures.append(failure)
        self.watcher.failed(failure)

    def _dismiss(self) -> None:
        for worker in self._workers:
            if worker.cell is None:
                worker.line.close()  # an idle worker reads the end of the line and goes
            else:
                worker.process.terminate()  # a busy one checkpoints after its round and goes
        for worker in self._workers:
            worker.process.join(120)
            if worker.process.is_alive():
                worker.process.kill()


def _work(line: Connection) -> None:
    """A worker's life: cells until the line ends. Ctrl-C reaches it through its parent only; it goes when that does."""
    from ..learning.memory import keep_freed_memory
    from ..simulation.simulator import InterruptedRunError

    os.setpgid(0, 0)
    keep_freed_memory()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    while True:
        try:
            document, directory = line.recv()
        except (EOFError, OSError):
            return
        try:
            simulate(
                RunConfig.parse(document), directory, Execution(engine="sequential"), lambda n: line.send(("round", n))
            )
            line.send(("finished",))
        except InterruptedRunError:
            return
        except OSError as error:
            with suppress(OSError):
                line.send(("failed", str(error), ""))
        except Exception as error:
            line.send(("failed", *described(error)))


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)
