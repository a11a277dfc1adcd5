"""A loss of the user's own: what it is given, how it is scaled, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sagefl import LABEL_ERRORS, scoring
from sagefl.errors import UsageError
from sagefl.selection.own_loss import OwnLoss
from sagefl.selection.scoring import Outputs, kinds, losses

LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [0.0, 0.5, 0.1], [1.0, 0.0, 4.0]])
TRUTH = np.array([0, 1, 2, 0])


def costs(predicted: Any, truth: Any) -> Any:
    return np.where(predicted == truth, 0.0, np.where(truth == 2, 4.0, 1.0))


def brier(probabilities: Any, truth: Any) -> Any:
    return ((probabilities - np.eye(3)[truth]) ** 2).sum(1)


def test_labels_are_scored_by_the_function_in_units_of_its_largest_value() -> None:
    outputs = Outputs(3, own=OwnLoss("costs", costs, 4.0))
    for asked in (LABEL_ERRORS, scoring("probs", "error")):
        form = outputs.form(asked)
        answers = form.decode(form.encode(form.answer(LOGITS), outputs), 4, outputs)
        assert form.losses(answers, TRUTH).tolist() == [0.0, 0.0, 1.0, 0.25]
        assert (form.kind, form.size(outputs)) == (asked.kind, asked.size(outputs))


def test_a_rule_that_asks_for_cross_entropy_has_probabilities_scored() -> None:
    form = Outputs(3, own=OwnLoss("brier", brier, 2.0)).form(scoring("probs", "ce"))
    wanted = brier(LOGITS.softmax(1).numpy(), TRUTH) / 2
    assert form.losses(form.answer(LOGITS), TRUTH) == pytest.approx(wanted)


def test_latents_are_scored_by_what_ones_own_head_predicts() -> None:
    outputs = Outputs(3, latent=3, own=OwnLoss("costs", costs, 4.0))
    form = outputs.form(scoring("latents", "error"))
    assert form.at_home
    assert form.losses(LOGITS.numpy(), TRUTH, torch.from_numpy).tolist() == [0.0, 0.0, 1.0, 0.25]


def test_values_are_scored_as_rows() -> None:
    def late(predicted: Any, truth: Any) -> Any:
        """Too little is worse than too much."""
        return np.clip(np.where(predicted < truth, 3 * (truth - predicted), predicted - truth)[:, 0], 0, 6)

    form = Outputs(1, clip=2.0, own=OwnLoss("late", late, 6.0)).form(LABEL_ERRORS)
    told = np.array([1.0, 3.0, 9.0], np.float32)
    assert form.losses(told, np.full((3, 1), 2.0, np.float32)) == pytest.approx([0.5, 1 / 6, 1.0])


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (
            lambda p, y: np.full(len(y), np.nan),
            "gave nan for a prediction of 0 where 0 is true; expected a number from 0",
        ),
        (
            lambda p, y: np.full(len(y), 1.5),
            r"gave 1.5 .* expected a number from 0 to 1: clip it, or set data.loss_max",
        ),
        (lambda p, y: np.full(len(y), -0.1), "gave -0.1"),
        (lambda p, y: 0.5, "returned a single number for 4 samples; expected a number for each"),
        (lambda p, y: p[:, 1], r"raised IndexError: .*; it was given predictions \(int64 4\)"),
        (lambda p, y: ["a"] * len(y), "raised ValueError"),
    ],
)
def test_what_no_certificate_could_be_about_is_refused_in_a_sentence(function: Any, complaint: str) -> None:
    own = OwnLoss("mine", function)
    with pytest.raises(UsageError, match=complaint) as told:
        Outputs(3, own=own).try_loss((LABEL_ERRORS,), TRUTH)
    assert str(told.value).startswith("data.loss mine ")
    assert "\n" not in str(told.value)


def test_it_answers_the_question_it_was_recorded_for_and_no_option_can_name_it() -> None:
    own = Outputs(3, own=OwnLoss("costs", costs, 4.0)).form(LABEL_ERRORS)
    assert own.is_for(LABEL_ERRORS)
    assert not own.is_for(scoring("probs", "ce"))
    assert "own" not in losses()
    assert kinds() == ("labels", "latents", "probs", "values")
