"""Cells as Ray tasks: one cell per CPU, on as many machines as the cluster has.

A cell whose node or process dies is run again by Ray, elsewhere, and resumes from its own checkpoint. For that every
node must see the folder of cells under the same path (one machine, or a shared file system); this is checked first.
Data sets are put into the object store once and mapped from there by all cells of a node.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from ..runs.config import Execution, RunConfig
from ..signals import stoppable
from .errors import InterruptedStudyError, StudyError
from .matrix import Cell
from .runner import INTERRUPTED, Failure, Watcher, done
from .work import Attempt, attempt, dataset_of, failed, taken

if TYPE_CHECKING:
    from ..data import Dataset

RETRIES = 5  # how often a cell may lose its node or process
PATIENCE = 60.0  # seconds that a cell waits while another process, perhaps its own killed one, holds its folder
FAREWELL = 120.0  # seconds that cells have to finish their round once they are asked to stop


def run_cells_on_ray(
    cells: Sequence[Cell],
    folder: Path,
    watcher: Watcher,
    *,
    address: str | None = None,
    execution: Execution | None = None,
) -> list[Failure]:
    """Run what is not done yet on a Ray cluster and return what failed; of `execution` only the checkpoints count."""
    from ..simulation.engines.ray import connect

    todo = [cell for cell in cells if not done(cell, folder)]
    if not todo:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    every = (execution or Execution()).checkpoint_every
    leave = connect(address)
    try:
        _require_shared(folder.resolve())
        return _Tasks(folder.resolve(), watcher, every).run(todo)
    finally:
        leave()


def _require_shared(folder: Path) -> None:
    """Refuse a folder that some node does not see: its cells would be lost with that node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from ..simulation.engines.ray import import_ray

    ray = import_ray()
    look = ray.remote(num_cpus=0, max_retries=0)(os.path.exists)
    with NamedTemporaryFile(dir=folder, prefix=".seen-") as mark:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        asked = [look.options(scheduling_strategy=node).remote(mark.name) for node in there]
        blind = [node["NodeManagerAddress"] for node, sees in zip(nodes, ray.get(asked), strict=True) if not sees]
    if blind:
        raise StudyError(
            f"{folder} is not there on {', '.join(blind)}: give --cells a folder that all nodes share, so that a cell "
            "can go on elsewhere when a node is lost"
        )


# On a node ----------------------------------------------------------------------------------------------------------


class Board:
    """Where cells report how far they are; it lives on the driver's node."""

    def __init__(self) -> None:
        self._rounds: dict[str, int] = {}

    def tell(self, cell: str, rounds: int) -> None:
        """A cell has done so many rounds."""
        self._rounds[cell] = rounds

    def take(self) -> dict[str, int]:
        """The news since the last call."""
        news, self._rounds = self._rounds, {}
        return news


def run_cell(document: Mapping[str, Any], directory: Path, every: int, dataset: Dataset, board: Any) -> Attempt:
    """One cell on one CPU."""
    from ..learning.memory import keep_freed_memory

    keep_freed_memory()
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to the samples
    config = RunConfig.parse(document)
    execution = Execution(engine="sequential", checkpoint_every=every)
    until = time.monotonic() + PATIENCE
    while taken(directory) and time.monotonic() < until:
        time.sleep(0.2)
    return attempt(config, directory, execution, partial(board.tell.remote, config.digest), dataset)


# At the driver --------------------------------------------------------------------------------------------------------


class _Tasks:
    """All cells as tasks, followed to their end."""

    def __init__(self, folder: Path, watcher: Watcher, every: int) -> None:
        from ..simulation.engines.ray import import_ray

        self._ray = import_ray()
        self._folder, self._watcher, self._every = folder, watcher, every
        self._failures: list[Failure] = []
        self._began: dict[str, float] = {}
        self._stop = threading.Event()
        self._board = self._ray.remote(num_cpus=0)(Board).options(scheduling_strategy=self._here()).remote()

    def _here(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)

    def run(self, cells: Sequence[Cell]) -> list[Failure]:
        """Run all cells."""
        by_digest = {cell.config.digest: cell for cell in cells}
        with stoppable(self._stop.set):
            pending = self._submit(cells)
            try:
                while pending and not self._stop.is_set():
                    ready, _ = self._ray.wait(list(pending), timeout=0.3)
                    self._listen(by_digest)
                    for reference in ready:
                        self._ended(pending.pop(reference), reference)
            finally:
                self._dismiss(pending)
        if self._stop.is_set():
            raise InterruptedStudyError(INTERRUPTED)
        return self._failures

    def _submit(self, cells: Sequence[Cell]) -> dict[Any, Cell]:
        """A task per cell; a cell whose data cannot be loaded fails here."""
        task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(run_cell)
        data: dict[str, Any] = {}
        pending = {}
        for cell in cells:
            name = cell.config.data.dataset
            try:
                data[name] = data.get(name) or self._ray.put(dataset_of(name))
            except Exception as error:
                self._fail(cell, failed(error))
                continue
            document = cell.config.model_dump(mode="json")
            pending[task.remote(document, cell.folder(self._folder), self._every, data[name], self._board)] = cell
        return pending

    def _listen(self, cells: Mapping[str, Cell]) -> None:
        for digest, rounds in self._ray.get(self._board.take.remote()).items():
            self._start(cells[digest])
            self._watcher.round(cells[digest], rounds)

    def _start(self, cell: Cell) -> None:
        if cell.config.digest not in self._began:
            self._began[cell.config.digest] = time.monotonic()
            self._watcher.started(cell)

    def _ended(self, cell: Cell, reference: Any) -> None:
        self._start(cell)
        try:
            ended: Attempt = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            ended = failed(error)
        except self._ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[0]
            ended = Attempt("failed", f"it lost its node or process {RETRIES + 1} times: {why}")
        if ended.how == "finished":
            self._watcher.finished(cell, time.monotonic() - self._began[cell.config.digest])
        elif ended.how == "failed":
            self._fail(cell, ended)
        else:  # a signal reached the cell itself
            self._stop.set()

    def _fail(self, cell: Cell, ended: Attempt) -> None:
        self._failures.append(Failure(cell, ended.why, ended.trace))
        self._watcher.failed(self._failures[-1])

    def _dismiss(self, pending: Mapping[Any, Cell]) -> None:
        """Drop the cells that wait; interrupt those that run, which write a checkpoint after their round."""
        for reference in pending:
            self._ray.cancel(reference)
        if pending:
            self._ray.wait(list(pending), num_returns=len(pending), timeout=FAREWELL)
        self._ray.kill(self._board)
