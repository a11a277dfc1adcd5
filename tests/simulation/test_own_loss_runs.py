"""Runs whose certificates are about a loss of the user's own: engines, identity, replay, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import differing, files
from test_tasks import config, simulate

import sagefl
from sagefl.errors import SageflError
from sagefl.runs.config import Execution
from sagefl.runs.environment import address
from sagefl.runs.losses import first_losses, read_losses
from sagefl.runs.replaying import replay_run
from sagefl.runs.rundir import ChangedError, RunDirectory
from sagefl.selection import make
from sagefl.simulation.simulator import Simulator

COSTS = """
import numpy as np

def cost(predicted, truth):
    return np.where(predicted == truth, 0.0, np.where(truth == 1, 4.0, 1.0))
"""


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"costs_{tmp_path.name.replace('-', '_')}"  # modules stay loaded
    Path(f"{name}.py").write_text(COSTS, encoding="utf-8")
    return f"{name}.py:cost"


def test_the_engines_agree_and_losses_are_those_of_the_function(costs: str, tmp_path: Path) -> None:
    settings = config("text", "sage-vanilla", data={"loss": costs, "loss_max": 4.0}, rounds=2)
    simulate(tmp_path / "one", settings)
    simulate(tmp_path / "two", settings, "processes")
    assert differing(files(tmp_path / "two"), files(tmp_path / "one")) == []
    held = first_losses(tmp_path / "one")
    assert held is not None
    found = np.unique(np.concatenate([r.losses.ravel() for r in read_losses(held)]))
    assert {0.0, 0.25, 1.0} >= set(found[~np.isnan(found)].tolist()) > {0.0}
    (again,) = replay_run(RunDirectory(tmp_path / "one"), [("again", make("sage-vanilla"))])
    assert again.covered == 1.0


def test_its_code_belongs_to_the_run(costs: str, tmp_path: Path) -> None:
    settings = config("text", "sage-vanilla", data={"loss": costs, "loss_max": 4.0}, rounds=2)
    plain = config("text", "sage-vanilla", rounds=2)
    assert settings.code == ("task_worlds:tokens", "task_worlds:Reader", costs)
    assert "loss" not in plain.values()["data"]
    before = address(settings)
    simulate(tmp_path / "run", settings)
    path = Path(costs.partition(":")[0])
    path.write_text(COSTS.replace("4.0", "3.0"), encoding="utf-8")
    del sys.modules[path.stem]  # as in another process
    assert address(settings) != before != address(plain)
    with pytest.raises(ChangedError, match=path.name):
        Simulator(settings, RunDirectory(tmp_path / "run"), Execution(engine="sequential")).run()


def test_from_python_it_is_a_function(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    keys: dict[str, Any] = {"clients": 3, "rounds": 1, "partition": "iid", "topology": "complete", "progress": False}
    keys |= {"model": "mlp", "method": "sage-vanilla", "loss_max": 2.0, "anchor": 0.5}

    def twice(predicted: Any, truth: Any) -> Any:
        return 2.0 * (predicted != truth)

    result = sagefl.run((x, y, x, y), loss=twice, out=tmp_path / "run", **keys)
    assert result.decisions()["evaluations"].sum() > 0
    named = RunDirectory(next(p.parent for p in (tmp_path / "run").rglob("run.toml"))).config.data.loss
    assert named is not None
    assert "twice@" in named
    with pytest.raises(SageflError, match=r"loss is a int; expected file\.py:function, or a function"):
        sagefl.run((x, y, x, y), loss=3, out=tmp_path / "other", **keys)


@pytest.mark.parametrize(
    ("kind", "sections", "complaint"),
    [
        ("text", {"data": {"loss": "nowhere.py:cost"}}, r"cannot load data.loss 'nowhere.py:cost': .*no such file"),
        ("text", {"data": {"loss": "task_worlds:WORDS"}}, r"task_worlds:WORDS is a int; expected a function"),
        ("text", {"data": {"loss": "COSTS"}}, "gave 4 for a prediction of 0 where 1 is true; expected a number from 0"),
        (
            "text",
            {"data": {"loss_max": 2.0}},
            "data.loss_max is the largest value of a loss of your own: set data.loss",
        ),
        ("text", {"data": {"loss": "COSTS"}, "privacy": {"epsilon": 1.0}}, "right or wrong: leave out data.loss"),
        ("regression", {"data": {"loss": "COSTS"}}, "returned 64 x 1 for 64 samples; expected a number for each"),
    ],
)
def test_one_that_cannot_be_used_is_refused_and_nothing_written(
    kind: str, sections: dict[str, Any], complaint: str, costs: str, tmp_path: Path
) -> None:
    if sections["data"].get("loss") == "COSTS":
        sections = sections | {"data": {"loss": costs}}
    with pytest.raises(SageflError, match=complaint):
        simulate(tmp_path / "run", config(kind, "sage-vanilla", **sections))
    assert not (tmp_path / "run").exists()
