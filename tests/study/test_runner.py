"""Carrying out cells: failures stay alone, workers may die, and nothing is run twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tiny_study import tiny_plan

from sagefl.runs.config import Execution
from sagefl.runs.rundir import RunDirectory
from sagefl.study import runner
from sagefl.study.errors import InterruptedStudyError
from sagefl.study.matrix import Cell
from sagefl.study.pace import Pace
from sagefl.study.runner import Failure, done, run_cells
from sagefl.study.work import taken

ALONE = Execution(engine="sequential")


def test_a_failing_cell_is_reported_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    cells = tiny_plan(methods=("rg", "no-such-method", "sage-os"))
    pace = Pace(cells, tmp_path)
    (failure,) = run_cells(cells, tmp_path, pace, execution=ALONE)
    assert failure.cell.method == "no-such-method"
    assert "unknown method 'no-such-method'" in failure.why
    assert [done(c, tmp_path) for c in cells] == [True, False, True]
    assert (pace.done, pace.left, len(pace.failures)) == (2, 0, 1)
    assert "2 of 3 cells done, 0 running, 0 left, 1 failed" in pace.line()


def test_finished_cells_are_not_run_again(tmp_path: Path, tiny_cells: list[Cell], tiny_folder: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in tiny_folder.rglob("*") if p.is_file()}
    pace = Pace(tiny_cells, tiny_folder)
    assert run_cells(tiny_cells, tiny_folder, pace, execution=ALONE) == []
    assert {p: p.stat().st_mtime_ns for p in tiny_folder.rglob("*") if p.is_file()} == before
    assert (pace.before, pace.finished_now) == (len(tiny_cells), 0)


class Killer(Pace):
    """Kills the worker of one method, once its first round is done."""

    def __init__(self, cells: list[Cell], folder: Path, pool: dict[str, int]) -> None:
        super().__init__(cells, folder)
        self.pool = pool

    def round(self, cell: Cell, rounds: int) -> None:
        super().round(cell, rounds)
        if cell.method == "sage-os" and self.pool:
            os.kill(self.pool.pop("worker"), signal.SIGKILL)


@pytest.mark.slow
def test_several_at_a_time_survive_a_failure_and_the_death_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    cells = tiny_plan(methods=("no-such-method", "sage-os", "rg", "aq-128"))
    workers: dict[str, int] = {}
    hire = runner._Pool._hire

    def hired(self: runner._Pool) -> runner._Worker:
        worker = hire(self)
        send = worker.line.send

        def noted(message: tuple[dict[str, object], Path]) -> None:
            if message[0]["method"]["id"] == "sage-os":  # type: ignore[index]
                workers["worker"] = worker.process.pid or 0
            send(message)

        monkeypatch.setattr(worker.line, "send", noted, raising=False)
        return worker

    monkeypatch.setattr(runner._Pool, "_hire", hired)
    failures = {f.cell.method: f.why for f in run_cells(cells, tmp_path, Killer(cells, tmp_path, workers), jobs=2)}
    assert set(failures) == {"no-such-method", "sage-os"}
    assert "exit code -9" in failures["sage-os"]
    assert [done(c, tmp_path) for c in cells] == [False, False, True, True]
    for cell in cells[2:]:  # a core each, or all cores for one: the same numbers
        assert summary(cell, tmp_path) == summary(cell, tiny_folder)
    assert [f.cell.method for f in run_cells(cells, tmp_path, Pace(cells, tmp_path), execution=ALONE)] == [
        "no-such-method"
    ]
    assert summary(cells[1], tmp_path) == summary(cells[1], tiny_folder)  # resumed from what the dead worker left


def summary(cell: Cell, folder: Path) -> object:
    return json.loads((cell.folder(folder) / "summary.json").read_text())


@pytest.mark.parametrize("at", [2, 3])  # in the last round the run ends by itself; the study must stop nonetheless
def test_an_interrupted_study_says_so_and_goes_on(at: int, tmp_path: Path, tiny_folder: Path) -> None:
    cells = tiny_plan(methods=("rg", "sage-os"))

    class Impatient(Pace):
        def round(self, cell: Cell, rounds: int) -> None:
            super().round(cell, rounds)
            if cell.method == "rg" and rounds == at:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedStudyError, match="the same command goes on"):
        run_cells(cells, tmp_path, Impatient(cells, tmp_path), execution=ALONE)
    assert [done(c, tmp_path) for c in cells] == [at == cells[0].config.rounds, False]
    assert run_cells(cells, tmp_path, Pace(cells, tmp_path), execution=ALONE) == []
    assert [summary(c, tmp_path) for c in cells] == [summary(c, tiny_folder) for c in cells]


def test_a_cell_that_somebody_else_is_running_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tiny_plan(methods=("rg", "local"))
    theirs = RunDirectory(first.folder(tmp_path))
    theirs.prepare(first.config)
    queue = runner._Queue([first, second], tmp_path, patience=0.3)
    with theirs.locked():
        assert queue.next() is second
        assert queue.next() is first  # waited for, then tried nonetheless: the run itself says that it is taken
    assert not taken(first.folder(tmp_path))


# Pace ---------------------------------------------------------------------------------------------------------------


def test_the_time_left_goes_by_the_work_done(tmp_path: Path) -> None:
    cells = tiny_plan(methods=("rg", "local", "sage-os", "aq-128"))
    now = [0.0]
    pace = Pace(cells, tmp_path, clock=lambda: now[0])
    assert pace.eta == "time left unknown yet"
    for cell in cells[:2]:
        pace.started(cell)
    pace.round(cells[0], 0)
    pace.round(cells[1], 1)  # resumed after one of three rounds: what was there before is not credited
    now[0] = 10.0
    pace.round(cells[0], 3)
    pace.finished(cells[0], 10.0)
    assert pace.seconds_left == pytest.approx(80 / 3)  # one cell in 10 s; two and two thirds are open
    assert pace.line() == "1 of 4 cells done, 1 running, 2 left, about 27 s left"
    pace.failed(Failure(cells[1], "why"))
    assert pace.seconds_left == pytest.approx(20.0)
    now[0] = 10_000.0
    assert pace.eta == "about 5.6 h left"
