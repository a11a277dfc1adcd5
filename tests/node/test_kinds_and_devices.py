"""Nodes with any kind of task: they probe, merge, replay and go on after a stop; and the device they compute on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from federation import NAMES, Federation
from test_swarm import audited
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from task_worlds import WORLDS
from test_howto_examples import EXAMPLES, howto

from sagefl.cli import app
from sagefl.learning.stacked import StackedBench
from sagefl.node.loop import Node
from sagefl.runs.rundir import RunDirectory

__all__ = ["howto"]

KIND: dict[str, Any] = {
    "data": {"partition": "owners", "anchor": 0.4},
    "training": {"batch_size": 4, "learning_rate": 0.02},
    "method": {"id": "sage-vanilla", "options": {}},
    "acceptance": {"share": 0.0},
}


def settings(world: dict[str, Any]) -> dict[str, Any]:
    model = {"options": {}, **world["model"]}
    return {**KIND, **world, "data": KIND["data"] | world["data"], "model": model}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
def test_nodes_of_every_kind_replay_and_go_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    check_nodes(tmp_path, settings(WORLDS[kind]), values=kind in ("regression", "adapters"))


@pytest.mark.slow
@pytest.mark.usefixtures("howto")
@pytest.mark.parametrize("example", EXAMPLES)
def test_nodes_on_the_examples_of_the_how_tos_do_the_same(example: str, tmp_path: Path) -> None:
    small = {"training": {"max_batches": 2, "learning_rate": 0.01}, "evaluation": {"subset": 100}}
    check_nodes(tmp_path, settings(EXAMPLES[example]) | small, values=example == "houses")


def check_nodes(home: Path, settings: dict[str, Any], *, values: bool) -> None:
    """A node stopped after two of four rounds ends as one that never stopped does, and its audit replays."""
    federation = Federation(home)

    def node(name: str, known: tuple[str, ...], **more: Any) -> Node:
        return Node(federation.config(name, known, secret_order=False, **(settings | more)))  # begun anew, it repeats

    federation.node = node  # type: ignore[method-assign]

    def run(stop_after: int | None) -> Node:
        alice = federation.node("alice", ("bob", "carol"), rounds=4)
        if stop_after is not None:
            plain = alice._checkpoint

            def checkpoint(loss: float, samples: int) -> None:
                plain(loss, samples)
                if alice.round == stop_after:
                    alice.stop()

            alice._checkpoint = checkpoint  # type: ignore[method-assign]
        alice.run()
        return alice

    with federation.honest("bob"), federation.honest("carol"):
        assert run(2).round == 2
        resumed = run(None)
        row = resumed.learner.population.params[0].clone()
        table = resumed.recorder.directory.table("decisions").drop("digest")
        assert audited(Path(resumed.config.directory), values=values) == 4
        shutil.rmtree(resumed.config.directory)
        through = run(None)
    assert torch.equal(through.learner.population.params[0], row)
    assert through.recorder.directory.table("decisions").drop("digest").equals(table)
    assert table["merged"].sum() > 0
    assert not [k for k in through.journal.totals() if k.startswith(("fault", "internal", "write-failed"))]
    metrics = RunDirectory(Path(through.config.directory)).table("metrics")
    assert ("mae" in metrics.columns) == values


# Devices --------------------------------------------------------------------------------------------------------------


def test_cpu_is_what_nodes_compute_on_and_the_way_of_a_device_comes_to_the_same(federation: Federation) -> None:
    one, other = federation.node("alice", ()), federation.node("alice", (), device="cpu")
    assert one.learner.stacked is None
    assert one.learner.device == torch.device("cpu")
    other.learner.stacked = StackedBench(other.learner.bench, torch.device("cpu"))  # as on an accelerator
    assert one.learner.train(0) == pytest.approx(other.learner.train(0), rel=1e-4)
    mine, theirs = one.learner.population.params[0], other.learner.population.params[0]
    assert torch.allclose(mine, theirs, atol=1e-4)
    assert one.learner.own_risk(0) == pytest.approx(other.learner.own_risk(0), abs=0.05)
    assert one.learner.evaluate(last=True).summary()["accuracy"] == pytest.approx(
        other.learner.evaluate(last=True).summary()["accuracy"], abs=0.05
    )


@pytest.mark.parametrize("name", ["quantum", "cpu:3"])
def test_a_device_that_is_not_there_is_refused_before_anything_starts(name: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["swarm", "--nodes", "3", "--device", name, "--out", str(tmp_path / "s")])
    assert told.exit_code == 2
    assert f"there is no device '{name}' here: use " in told.output
    assert not (tmp_path / "s").exists()
    federation = Federation(tmp_path)
    path = tmp_path / "alice.toml"
    for config, flag in (({"device": name}, []), ({}, ["--device", name])):
        path.write_text(federation.config("alice", NAMES[1:], **config).to_toml(), encoding="utf-8")
        told = CliRunner().invoke(app, ["node", "run", str(path), *flag])
        assert told.exit_code == 2
        assert f"there is no device '{name}' here" in told.output
    assert not (tmp_path / "runs").exists()
