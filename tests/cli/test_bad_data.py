"""Data and models that do not fit: each is one sentence, and nothing is written; training that diverges is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MODULE = """
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(1)
TOKENS = rng.integers(0, 20, (120, 5))
LABELS = TOKENS[:, 0] % 2
OWNERS = np.repeat(["ada", "bob", "cleo"], 40)
TABLE = rng.normal(size=(120, 4)).astype(np.float32)


def given(x=TOKENS, y=LABELS, x_test=TOKENS[:30], y_test=LABELS[:30], owners=OWNERS):
    return x, y, x_test, y_test, owners


def ragged():
    return given(x=[[1, 2, 3], [4, 5]] * 60)


def ragged_objects():
    x = np.empty(120, object)
    x[:] = [list(range(1 + i % 3)) for i in range(120)]
    return given(x=x)


def negative():
    x = TOKENS.copy()
    x[77, 3] = -1
    return given(x=x)


def halves():
    return given(y=np.where(LABELS == 0, 0.5, 1.0), y_test=LABELS[:30] * 1.0)


def mixed():
    return given(x_test=TOKENS[:30].astype(np.float32))


def mixed_targets():
    return given(y=LABELS * 1.0)


def words():
    return given(x=np.array([["a", "b"]] * 120))


def nameless():
    return given(owners=np.where(np.arange(120) < 40, "", OWNERS))


def few():
    return given(owners=np.array(["ada"] * 118 + ["bob", "cleo"]))


def table():
    return given(x=TABLE, x_test=TABLE[:30], y=1000 * TABLE[:, 0], y_test=1000 * TABLE[:30, 0])


def lonely():
    return given(owners=np.array(["ada"] * 43 + ["bob"] * 40 + ["cleo"] * 37))


class Reader(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.words, self.top = nn.Embedding(20, 4), nn.Linear(4, classes)

    def forward(self, x):
        return self.top(self.words(x).mean(1))


class Pair(Reader):
    def forward(self, x):
        return super().forward(x), x


class Normed(Reader):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.top(self.norm(self.words(x).mean(1)))
"""
SMALL = ("--set", "data.partition=owners", "--clients", "3", "--rounds", "2", "--topology", "complete", "--quiet")
SEQUENTIAL = ("--engine", "sequential", "--out", "run")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given_to_all.py").write_text(MODULE, encoding="utf-8")


@pytest.mark.parametrize(
    ("data", "model", "complaint"),
    [
        ("ragged", "Reader", "train_x is ragged: its samples differ in length; expected numbers in a regular array"),
        ("ragged_objects", "Reader", "train_x is ragged: its samples differ in length; expected numbers in a regular"),
        ("negative", "Reader", "IndexError: index out of range in self (whole numbers in the inputs: -1 to 19)"),
        ("mixed", "Reader", "expected the same type and the same shape per sample"),
        ("mixed_targets", "Reader", "expected both to be labels (whole numbers) or both values (floats)"),
        ("words", "Reader", "expected numbers in a regular array with samples first"),
        ("nameless", "Reader", "owners: 40 samples have an empty name; expected a name for every owner"),
        ("few", "Reader", "1 of them with at least 10 samples, for 3 clients. Use clients = 1 or fewer"),
        ("given", "Pair", "Pair.forward returned a tuple; expected a tensor, "),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_nothing_is_written(
    sagefl: Callable[..., Any], data: str, model: str, complaint: str
) -> None:
    told = sagefl(
        "run", "--dataset", f"given_to_all:{data}", "--set", f"model.name=given_to_all:{model}", *SMALL, *SEQUENTIAL,
        code=2,
    ).output  # fmt: skip
    (line,) = [line for line in told.strip().splitlines() if line.startswith("sagefl: ")]
    assert complaint in line
    assert "Traceback" not in told
    assert not Path("run").exists()


def test_labels_that_are_no_whole_numbers_are_values_unless_they_are_said_to_be_classes(
    sagefl: Callable[..., Any],
) -> None:
    names = ("--dataset", "given_to_all:halves", "--set", "model.name=given_to_all:Reader", *SMALL, *SEQUENTIAL)
    told = sagefl("run", *names, "--set", "data.task=classification", code=2).output
    assert "; expected whole numbers for data.task = classification" in told
    assert "train_y has target 0.5 in sample " in told
    assert not Path("run").exists()
    assert "MAE" in sagefl("run", *names).output


def test_a_last_batch_of_one_is_joined_to_the_one_before(sagefl: Callable[..., Any]) -> None:
    """43 samples of ada, 4 anchors and 4 for evaluation, leave 35; in batches of 17 one is left over."""
    names = ("--dataset", "given_to_all:lonely", "--set", "model.name=given_to_all:Normed")
    assert "Runs are in run" in sagefl("run", *names, *SMALL, "--set", "training.batch_size=17", *SEQUENTIAL).output


def test_training_that_diverges_is_told_by_the_exit_status(sagefl: Callable[..., Any]) -> None:
    names = ("--dataset", "given_to_all:table", "--set", "model.name=mlp", "--set", "training.learning_rate=1e30")
    told = sagefl("run", *names, *SMALL, *SEQUENTIAL, code=3).output
    assert "Training diverged in sage-os (seed 1), first in round 2: lower training.learning_rate" in told
    assert json.loads(Path("run/summary.json").read_text())["diverged"] == 2
    again = sagefl("compare", *names, *SMALL, "--methods", "rg,local", "--engine", "sequential", "--out", "two", code=3)
    assert "Training diverged in rg" in again.output


def test_classes_written_as_floats_are_said_to_be_predicted_as_values_also_to_the_quiet(
    sagefl: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "floats.csv").write_text("a,b,label\n" + "1.5,2,0.0\n2.5,1,1.0\n3.5,4,1.0\n" * 40)
    small = ["--clients", "2", "--rounds", "1", "--set", "model.name=mlp", "--engine", "sequential", "--method", "rg"]
    command = ["run", "--dataset", "floats.csv", "--set", "data.partition=iid", *small]
    sagefl(*command, "--quiet", "--out", "one")
    (told,) = [r.message for r in caplog.records if "targets" in r.message]
    assert told == (
        "all targets are whole numbers, 0 to 1, but floats, and so predicted as values (regression): if they are "
        "classes, say data.task=classification; if not, data.task=regression"
    )
    caplog.clear()
    assert "all targets are whole numbers" in " ".join(sagefl(*command, "--out", "two").output.split())
    for task in ("classification", "regression"):
        said = sagefl(*command, "--set", f"data.task={task}", "--out", task).output
        assert "all targets are whole numbers" not in " ".join(said.split())
    assert not caplog.records
