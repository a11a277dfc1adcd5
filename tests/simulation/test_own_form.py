"""A form of answer from outside the package is one class: it runs, is counted, recorded, replayed and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from small_runs import config, simulate

from sagefl import LABEL_ERRORS, Scoring, make
from sagefl.errors import UsageError
from sagefl.runs.losses import losses_path, read_losses
from sagefl.runs.own_losses import LOSSES
from sagefl.runs.replaying import replay_run
from sagefl.runs.rundir import RunDirectory
from sagefl.selection.scoring import BadAnswerError, Head, LabelErrors, Outputs, sent_as


@pytest.fixture
def top_two() -> Iterator[Scoring]:
    """Two guesses for each anchor; wrong if neither is right."""

    class TopTwo(Scoring):
        kind: ClassVar[str] = "top-2"
        loss: ClassVar[str] = "miss"
        number: ClassVar[int] = 100
        wire: ClassVar[int] = 100

        def answer(self, out: Any) -> npt.NDArray[Any]:
            guesses: npt.NDArray[Any] = out.topk(2).indices.numpy()
            return guesses

        def size(self, outputs: Outputs) -> int:
            return 2

        def encode(self, answers: npt.NDArray[Any], outputs: Outputs) -> bytes:
            return answers.astype("<u1").tobytes()

        def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> npt.NDArray[Any]:
            guesses = np.frombuffer(raw, "<u1").reshape(count, 2)
            if (guesses >= outputs.classes).any():
                raise BadAnswerError("label-out-of-range", "a class that there is not")
            return guesses

        def score(self, answers: npt.NDArray[Any], truth: npt.NDArray[Any], head: Head | None = None) -> Any:
            return (answers != truth[:, None]).all(axis=1)

    form = Scoring.registered["top-2", "miss"]
    yield form
    del Scoring.registered["top-2", "miss"]


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_asks_in_it_counts_it_and_records_it(top_two: Scoring, engine: str, tmp_path: Path) -> None:
    asked = "aq-128:kind=top-2:loss=miss"
    simulate(tmp_path / "own", config(asked, rounds=2), engine=engine, workers=1)
    simulate(tmp_path / "labels", config("aq-128", rounds=2), engine=engine, workers=1)
    own, labels = RunDirectory(tmp_path / "own"), RunDirectory(tmp_path / "labels")
    audit = own.table("decisions")
    assert (audit["probe_answer_bytes"] == 2 * audit["evaluations"]).all()
    twice, once = (read_losses(losses_path(d.path, 0)) for d in (own, labels))
    assert {r.scoring for r in twice} == {top_two}
    for a, b in zip(twice, once, strict=True):
        assert (a.losses <= b.losses).all()  # two guesses are never worse than the first of them
    assert sum(r.losses.sum() for r in twice) < sum(r.losses.sum() for r in once)
    assert replay_run(own, [("again", make("aq-128", kind="top-2", loss="miss"))])[0].covered == 1
    assert sent_as(100) is top_two


def test_it_is_refused_where_labels_are_private(top_two: Scoring, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="perturbs labels, but aq-128 probes for top-2"):
        simulate(tmp_path / "run", config("aq-128:kind=top-2:loss=miss", privacy={"epsilon": 1.0}))
    assert not (tmp_path / "run").exists()


def doubled(predicted: npt.NDArray[Any], truth: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.where(predicted == truth, 0.0, 2.0)


def test_a_users_loss_scores_it_once_it_says_what_it_predicts(
    top_two: Scoring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = "aq-128:kind=top-2:loss=miss", config("aq-128", rounds=1)
    mine = config(asked, rounds=1, data={**plain.data.model_dump(), "loss": "doubled", "loss_max": 2.0})
    monkeypatch.setitem(LOSSES, "doubled", doubled)
    with pytest.raises(UsageError, match=r"top-2 scored by doubled: .* TopTwo does not say what its answers predict"):
        simulate(tmp_path / "refused", mine)
    assert not (tmp_path / "refused").exists()
    monkeypatch.setattr(type(top_two), "predicts", "labels")
    monkeypatch.setattr(type(top_two), "predicted", lambda self, answers, head=None: answers[:, 0])
    simulate(tmp_path / "own", mine)
    simulate(tmp_path / "labels", plain)
    own, labels = (read_losses(losses_path(tmp_path / name, 0)) for name in ("own", "labels"))
    for a, b in zip(own, labels, strict=True):
        assert np.array_equal(a.losses, b.losses)  # the first guess is the label, and 2 of 2 is 1
        assert a.scoring is not None
        assert a.scoring.is_for(top_two)
        assert not a.scoring.is_for(LABEL_ERRORS)
    again = replay_run(RunDirectory(tmp_path / "own"), [("again", make("aq-128", kind="top-2", loss="miss"))])
    assert again[0].covered == 1


def test_numbers_that_files_or_the_wire_would_mistake_for_another_are_refused() -> None:
    with pytest.raises(TypeError, match="number 9 of Ninth is that of LabelErrors"):  # of labels under a user's loss
        type("Ninth", (LabelErrors,), {"kind": "ninth", "loss": "own", "number": 9, "wire": 99})
    with pytest.raises(TypeError, match="tenth cannot be 1 on the wire: latents are"):
        type("Tenth", (LabelErrors,), {"kind": "tenth", "loss": "own", "number": 99, "wire": 1})


def test_losses_of_a_form_that_is_not_installed_are_not_read_as_another(top_two: Scoring, tmp_path: Path) -> None:
    simulate(tmp_path / "own", config("aq-128:kind=top-2:loss=miss", rounds=1))
    held = Scoring.registered.pop(("top-2", "miss"))
    try:
        with pytest.raises(RuntimeError, match="answers of form 100, which nothing that is installed here"):
            read_losses(losses_path(tmp_path / "own", 0))
    finally:
        Scoring.registered["top-2", "miss"] = held
