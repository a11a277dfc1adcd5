"""One package from outside adds a selector, a method, a form of answer, a metric, an engine, a data set and a model.

It is really installed: a module and its entry points on the path of a fresh interpreter. All seven then meet in a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

PACKAGE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sagefl import Exchange, Probe, Reason, Scoring, Selector, option
from sagefl.methods import Method
from sagefl.runs.columns import Column
from sagefl.selection.scoring import scoring
from sagefl.simulation.engines import Sequential


class TopTwo(Scoring):
    """Two guesses for each anchor; wrong if neither is right."""

    kind: ClassVar[str] = "top-2"
    loss: ClassVar[str] = "miss"
    number: ClassVar[int] = 100
    wire: ClassVar[int] = 100

    def answer(self, out):
        return out.topk(2).indices.numpy()

    def size(self, outputs):
        return 2

    def encode(self, answers, outputs):
        return answers.astype("<u1").tobytes()

    def _unpack(self, raw, count, outputs):
        return np.frombuffer(raw, "<u1").reshape(count, 2)

    def score(self, answers, truth, head=None):
        return (answers != truth[:, None]).all(axis=1)


@dataclass(frozen=True)
class Miser(Selector):
    """Two guesses on a few anchors, then the best."""

    id: ClassVar[str] = "miser"
    anchors: int = option(2, "anchors to ask", ge=1)

    @property
    def scorings(self):
        return (scoring("top-2", "miss"),)

    def decide(self, hood, state, rng):
        losses = yield Probe(hood.peers, 0, self.anchors, self.scoring)
        return Exchange.select(hood.peers[int(losses.sum(1).argmin())], Reason.COMMITTED)


class Thrift(Method):
    """A miser with a method's name."""

    id = "thrift"
    rule = Miser


best = Column("best", "the best client's accuracy", lambda e: e.client.max(), combine="max", title="best")


def obvious(world, hooks, resources):
    return Sequential(world, hooks, resources.extras)


def noise():
    """Random numbers in three classes."""
    x = np.random.default_rng(0).random((200, 5)).astype(np.float32)
    return x, np.arange(200) % 3, x[:12], np.arange(12) % 3


def line(shape, classes):
    from torch import nn

    return nn.Linear(shape[0], classes)
'''
POINTS = """
[sagefl.selectors]
miser = outside:Miser
[sagefl.methods]
thrift = outside:Thrift
[sagefl.metrics]
best = outside:best
[sagefl.engines]
obvious = outside:obvious
[sagefl.datasets]
noise = outside:noise
[sagefl.models]
line = outside:line
"""
WORLD = [
    "--dataset",
    "noise",
    "--clients",
    "4",
    "--rounds",
    "2",
    "--set",
    "model.name=line",
    "--set",
    "data.partition=iid",
]
WORLD += ["--topology", "ring", "--quiet"]
COMMANDS = {
    "run": [
        "run",
        *WORLD,
        "--method",
        "miser",
        "--engine",
        "obvious",
        "--out",
        "one",
        "--set",
        "evaluation.losses=full",
    ],
    "its method": ["run", *WORLD, "--method", "thrift:anchors=2", "--engine", "sequential", "--out", "two"],
    "replay": ["replay", "one", "--method", "miser:anchors=1"],
    "compare": ["compare", "one", "two"],
    "selector": ["methods", "miser"],
    "method": ["methods", "thrift"],
    "columns": ["columns", "metrics"],
    "data": ["data", "list"],
    "private": ["run", *WORLD, "--method", "miser", "--out", "private", "--set", "privacy.epsilon=1"],
    "misspelt": ["run", *WORLD, "--method", "miser", "--out", "misspelt", "--engine", "obviuos"],
}
SESSION = f"""
import sys
from sagefl.cli import app
for command in {list(COMMANDS.values())}:
    try:
        app(command)
    except SystemExit as ended:
        sys.stderr.flush()
        print("\\n=== ended with", ended.code, flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, str]:
    """What each command printed; the last two are refused."""
    metadata = folder / "site" / "outside-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "site" / "outside.py").write_text(PACKAGE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", SESSION],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        timeout=200,
    )
    assert run.returncode == 0, run.stdout
    *texts, last = run.stdout.split("\n=== ended with ")
    codes = [text.partition("\n")[0] for text in (*texts[1:], last)]
    assert [code.strip() for code in codes] == [*"00000000", "2", "2"], run.stdout
    return dict(zip(COMMANDS, texts, strict=True))


@pytest.mark.usefixtures("told")
def test_a_run_uses_all_seven(folder: Path) -> None:
    audit = pl.read_parquet(folder / "one" / "decisions.parquet")
    assert (audit["evaluations"] == 2 * audit["degree"]).all()
    assert (audit["probe_answer_bytes"] == 2 * audit["evaluations"]).all()
    metrics = pl.read_parquet(folder / "one" / "metrics.parquet")
    assert {"best", "before_best"} <= set(metrics.columns)


@pytest.mark.usefixtures("told")
def test_a_method_of_the_rule_makes_the_same_choices(folder: Path) -> None:
    one, two = (pl.read_parquet(folder / name / "decisions.parquet")["chosen"] for name in ("one", "two"))
    assert one.to_list() == two.to_list()


def test_what_was_recorded_replays_and_compares(told: dict[str, str]) -> None:
    assert "100.0%" in told["replay"]
    assert "best: the best client's accuracy" in " ".join(told["compare"].split())


def test_lists_have_them_and_say_nothing_that_they_did_not_say(told: dict[str, str]) -> None:
    assert "miser  Two guesses on a few anchors, then the best." in told["selector"]
    assert "thrift  A miser with a method's name." in told["method"]
    for text in (told["selector"], told["method"]):
        assert "anchors = 2  anchors to ask; at least 1" in text
        assert "evidence:" not in text
    assert "best" in told["columns"]
    assert "noise" in told["data"]


def test_mistakes_are_refused_in_a_sentence_before_anything_runs(told: dict[str, str], folder: Path) -> None:
    assert "perturbs labels, but miser probes for top-2" in told["private"]
    assert "unknown engine 'obviuos', did you mean 'obvious'" in told["misspelt"]
    assert not (folder / "private").exists()
    assert not (folder / "misspelt").exists()
