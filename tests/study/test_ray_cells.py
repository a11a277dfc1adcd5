"""Cells as tasks on a real Ray cluster: the same numbers, and a raylet that is killed costs nobody a cell."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tiny_study import TINY
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.runs.config import Execution, merged
from sagefl.study.distributed import run_cells_on_ray
from sagefl.study.errors import InterruptedStudyError
from sagefl.study.matrix import Cell
from sagefl.study.pace import Pace
from sagefl.study.paper import plan
from sagefl.study.runner import done, run_cells

if TYPE_CHECKING:
    from conftest import Nodes

ALONE = Execution(engine="sequential", checkpoint_every=5)


class Disaster(Pace):
    """Kills all raylets once a cell has a checkpoint, and only then brings another one."""

    def __init__(self, cells: list[Cell], folder: Path, nodes: Nodes) -> None:
        super().__init__(cells, folder)
        self.nodes, self.struck = nodes, False

    def round(self, cell: Cell, rounds: int) -> None:
        super().round(cell, rounds)
        if rounds > ALONE.checkpoint_every and not self.struck:
            self.struck = True
            self.nodes.kill_one()
            self.nodes.kill_one()
            self.nodes.grow_to(1)


def long_plan(*methods: str) -> list[Cell]:
    """Cells of a few seconds, so that a kill meets them under way."""
    return plan("smoke", topologies=("er",), alphas=(0.3,), methods=methods, overrides=merged(TINY, {"rounds": 60}))


def contents(cell: Cell, folder: Path) -> dict[str, bytes]:
    """What must be equal byte by byte."""
    root = cell.folder(folder)
    names = ("metrics.parquet", "decisions.parquet", "clients.parquet", "summary.json", "run.toml")
    stored = [p for p in root.rglob("*") if p.is_file() and (p.name in names or p.parent.parent.name == "checkpoint")]
    assert len(stored) > len(names)
    return {str(p.relative_to(root)): p.read_bytes() for p in stored}


@pytest.mark.slow  # in `make test` a raylet is killed under a run, and a study is interrupted
def test_raylets_killed_mid_study_cost_nobody_a_cell(nodes: Nodes, tmp_path: Path) -> None:
    cells = long_plan("rg", "sage-os", "no-such-method")
    assert [f.cell.method for f in run_cells(cells, tmp_path / "here", Pace(cells, tmp_path), execution=ALONE)] == [
        "no-such-method"
    ]
    nodes.grow_to(2)
    there = tmp_path / "there"
    watcher = Disaster(cells, there, nodes)
    (failure,) = run_cells_on_ray(cells, there, watcher, address=nodes.address, execution=ALONE)
    assert watcher.struck
    assert (failure.cell.method, "unknown method 'no-such-method'" in failure.why) == ("no-such-method", True)
    assert (watcher.done, watcher.left, len(watcher.failures)) == (2, 0, 1)
    for cell in cells[:2]:
        assert contents(cell, there) == contents(cell, tmp_path / "here")
    assert any(events(cell, there) == ["started", "resumed", "finished"] for cell in cells[:2])


def events(cell: Cell, folder: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (cell.folder(folder) / "events.log").read_text().splitlines()]


@pytest.mark.slow
def test_an_interrupted_study_leaves_checkpoints_and_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    """Ctrl-C reaches cells on their nodes: they finish their round, checkpoint and go."""
    (cell,) = cells = long_plan("rg")
    nodes.grow_to(1)

    class Impatient(Pace):
        def round(self, cell: Cell, rounds: int) -> None:
            super().round(cell, rounds)
            if rounds >= 1:
                os.kill(os.getpid(), signal.SIGINT)

    rarely = Execution(checkpoint_every=1000)
    with pytest.raises(InterruptedStudyError, match="the same command goes on"):
        run_cells_on_ray(cells, tmp_path, Impatient(cells, tmp_path), address=nodes.address, execution=rarely)
    assert not done(cell, tmp_path)
    assert "interrupted" in events(cell, tmp_path)
    assert run_cells_on_ray(cells, tmp_path, Pace(cells, tmp_path), address=nodes.address, execution=rarely) == []
    assert events(cell, tmp_path) == ["started", "interrupted", "resumed", "finished"]
    assert run_cells_on_ray(cells, tmp_path, Pace(cells, tmp_path), address="nowhere:1") == []  # nothing is left to do


@pytest.mark.parametrize("command", [["study", "paper", "--cells"], ["run", "--engine", "ray", "--out"]], ids=str)
def test_commands_go_to_the_cluster_they_are_told(command: list[str], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    result = CliRunner().invoke(app, [*command, str(tmp_path / "x"), "--ray-address", "127.0.0.1:9"])
    assert result.exit_code == 2
    assert "no Ray cluster at 127.0.0.1:9 (Connection refused)" in " ".join(result.output.split())
