"""Running cells: one after another on all cores, or several at a time on one core each.

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
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..references import script_hidden
from ..runs.config import Execution, RunConfig
from ..runs.environment import asked_once
from ..runs.rundir import RunDirectory
from ..signals import stoppable
from .errors import InterruptedStudyError
from .matrix import Cell
from .work import Attempt, attempt, taken

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

INTERRUPTED = "the study was interrupted; the same command goes on with it"


@dataclass(frozen=True)
class Failure:
    """A cell that could not be finished."""

    cell: Cell
    why: str
    trace: str = ""  # of an error nobody foresaw

    def __str__(self) -> str:
        return f"{self.cell.name} failed: {self.why}"


class Watcher(Protocol):
    """Someone who is told how a study is getting on."""

    def started(self, cell: Cell) -> None:
        """A cell has begun."""

    def round(self, cell: Cell, rounds: int) -> None:
        """It has done this many rounds."""

    def finished(self, cell: Cell, seconds: float) -> None:
        """A cell is done."""

    def failed(self, failure: Failure) -> None:
        """It cannot be finished."""


def done(cell: Cell, folder: Path) -> bool:
    """Whether a cell has its end result."""
    return RunDirectory(cell.folder(folder)).finished(cell.config)


def run_cells(
    cells: Sequence[Cell], folder: Path, watcher: Watcher, *, jobs: int = 1, execution: Execution | None = None
) -> list[Failure]:
    """Run what is not done yet and return what failed. `execution` applies where cells are run one at a time."""
    with asked_once():
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
    queue, failures = _Queue(cells, folder), []
    while queue:
        cell = queue.next()
        watcher.started(cell)
        began = time.monotonic()
        ended = attempt(cell.config, cell.folder(folder), execution, partial(watcher.round, cell))
        if ended.how == "interrupted":
            raise InterruptedStudyError(INTERRUPTED)
        if ended.how == "failed":
            failures.append(Failure(cell, ended.why, ended.trace))
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
        """Run all cells."""
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
            raise InterruptedStudyError(INTERRUPTED)
        return self._failures

    def _hire(self) -> _Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(there,), daemon=True)
        with script_hidden():
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
                self._heard(worker, worker.line.recv())
            except (EOFError, OSError):
                self._lost(worker)

    def _heard(self, worker: _Worker, news: int | Attempt) -> None:
        cell = worker.cell
        assert cell is not None
        if isinstance(news, int):
            self.watcher.round(cell, news)
            return
        worker.cell = None
        if news.how == "finished":
            self.watcher.finished(cell, time.monotonic() - worker.began)
        else:
            self._fail(Failure(cell, news.why, news.trace))

    def _lost(self, worker: _Worker) -> None:
        cell, worker.cell = worker.cell, None
        assert cell is not None
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
                worker.line.close()  # an idle worker reads the end of the line and ends
            else:
                worker.process.terminate()  # a busy one writes a checkpoint after its round and ends
        for worker in self._workers:
            worker.process.join(120)
            if worker.process.is_alive():
                worker.process.kill()


def _work(line: Connection) -> None:
    """What a worker does: run cells until the line closes. Only its parent passes Ctrl-C on; it ends when that does."""
    from ..learning.memory import keep_freed_memory

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
        ended = attempt(RunConfig.parse(document), directory, Execution(engine="sequential"), line.send)
        if ended.how == "interrupted":
            return
        with suppress(OSError):  # nobody may be listening any more
            line.send(ended)


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)
