"""Forms of answer: what travels comes back, what is scored lies in [0, 1], and a new form is one class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl import LABEL_ERRORS, Scoring, scoring
from sagefl.selection.private import RandomisedResponse, perturbed
from sagefl.selection.scoring import BadAnswerError, Outputs, clipped_surprise, kinds, sent_as

LATENTS, PROBS = scoring("latents", "error"), scoring("probs", "ce")
FORMS = list(Scoring.registered.values())
COUNT = 12


def answers(form: Scoring, outputs: Outputs, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if form.kind == "labels":
        return rng.integers(0, outputs.classes, COUNT)
    values = rng.normal(size=(COUNT, outputs.latent if form.kind == "latents" else outputs.classes))
    if form.kind == "probs":
        values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
    return values.astype(np.float32)


@settings(max_examples=60)
@given(st.sampled_from(FORMS), st.sampled_from([2, 10, 300]), st.integers(0, 2**20))
def test_what_travels_comes_back(form: Scoring, classes: int, seed: int) -> None:
    outputs = Outputs(classes, latent=5)
    told = answers(form, outputs, seed)
    raw = form.encode(told, outputs)
    assert len(raw) == COUNT * form.size(outputs)
    assert np.allclose(form.decode(raw, COUNT, outputs), told, atol=1e-6)


@pytest.mark.parametrize(("classes", "size"), [(256, 1), (257, 2), (1 << 16, 2), ((1 << 16) + 1, 4)])
def test_the_last_label_travels_whole(classes: int, size: int) -> None:
    outputs, told = Outputs(classes), np.array([0, classes - 1])
    assert LABEL_ERRORS.size(outputs) == RandomisedResponse(1.0, classes, "k-rr").answer_bytes == size
    assert LABEL_ERRORS.decode(LABEL_ERRORS.encode(told, outputs), 2, outputs).tolist() == told.tolist()


@settings(max_examples=40)
@given(st.sampled_from(["k-rr", "bitwise"]), st.sampled_from([2, 10, 300]), st.integers(0, 2**20))
def test_so_do_perturbed_labels(mechanism: Any, classes: int, seed: int) -> None:
    how, outputs = RandomisedResponse(1.0, classes, mechanism), Outputs(classes)
    rng = np.random.default_rng(seed)
    labels, truth = rng.integers(0, classes, COUNT), rng.integers(0, classes, COUNT)
    form, told = perturbed(LABEL_ERRORS, how), how.perturb(labels, rng.random((COUNT, how.draws)))
    raw = form.encode(told, outputs)
    assert len(raw) == COUNT * form.size(outputs) == COUNT * how.answer_bytes
    again = form.decode(raw, COUNT, outputs)
    assert np.array_equal(again, told)
    assert np.array_equal(form.score(again, truth), how.losses(told, truth))
    with pytest.raises(ValueError, match="peers perturb labels alone, but were asked for latents"):
        perturbed(LATENTS, how)


@pytest.mark.parametrize(
    ("form", "values", "kind"),
    [
        (LABEL_ERRORS, np.array([3, 10]), "label-out-of-range"),
        (LATENTS, np.array([[1.0, np.nan], [0, 0]]), "not-finite"),
        (PROBS, np.log([[0.5] * 10, [0.1] * 10]), "wrong-values"),  # adds up to five
        (PROBS, np.full((2, 10), 0.5), "wrong-values"),
    ],
    ids=["label", "nan", "sum", "positive"],
)
def test_what_is_no_answer_is_refused(form: Scoring, values: np.ndarray, kind: str) -> None:
    outputs = Outputs(10, latent=2)
    with pytest.raises(BadAnswerError) as refused:
        form.decode(form.encode(values, outputs), 2, outputs)
    assert refused.value.kind == kind
    with pytest.raises(BadAnswerError, match=r"bytes of .* for 3 anchors"):
        form.decode(form.encode(values, outputs), 3, outputs)


def test_losses_lie_in_the_unit_interval_and_a_uniform_guess_costs_half() -> None:
    uniform = np.log(np.full((1, 8), 1 / 8))
    assert clipped_surprise(uniform, np.array([3])) == pytest.approx(0.5)
    hopeless = np.full((1, 8), -np.inf)
    assert clipped_surprise(hopeless, np.array([3])) == 1
    assert clipped_surprise(np.full((1, 8), np.nan), np.array([3])) == 1
    assert clipped_surprise(np.zeros((1, 8)), np.array([3])) == 0


def test_names_that_are_none_say_which_there_are() -> None:
    with pytest.raises(ValueError, match="kind must be one of labels, latents, probs, values, got 'pictures'"):
        scoring("pictures", "error")
    with pytest.raises(ValueError, match="loss must be one of error, ce, absolute, squared, got 'mse'"):
        scoring("labels", "mse")
    with pytest.raises(ValueError, match="labels cannot be scored by ce; there are labels scored by error, latents"):
        scoring("labels", "ce")


def test_numbers_in_files_and_on_the_wire_are_nobody_elses() -> None:
    forms = FORMS
    assert {(f.kind, f.loss): f.number for f in forms} == {
        ("labels", "error"): 0, ("latents", "error"): 1, ("latents", "ce"): 2,
        ("probs", "error"): 3, ("probs", "ce"): 4, ("values", "absolute"): 5, ("values", "squared"): 6,
        ("latents", "absolute"): 7, ("latents", "squared"): 8,
    }  # fmt: skip
    assert [sent_as(number).kind for number in range(4)] == list(kinds()) == ["labels", "latents", "probs", "values"]
    assert sent_as(99) is None
    with pytest.raises(TypeError, match="number 2 of Copycat is that of LatentCrossEntropy"):

        class Copycat(type(LATENTS)):  # type: ignore[misc]
            kind, loss, number = "copies", "error", 2


# Values ---------------------------------------------------------------------------------------------------------------


def test_in_regression_a_rules_question_becomes_one_about_values() -> None:
    outputs = Outputs(2, latent=3, clip=4.0)
    truth = np.array([[0.0, 0.0], [1.0, 3.0], [2.0, 2.0]])
    answers = np.array([[1.0, 3.0], [1.0, 3.0], [np.nan, 0.0]], np.float32)  # mean errors 2, 0 and not a number
    error, ce = outputs.form(LABEL_ERRORS), outputs.form(scoring("probs", "ce"))
    assert (str(error), str(ce)) == ("values scored by absolute", "values scored by squared")
    assert error.score(answers, truth).tolist() == [0.5, 0.0, 1.0]
    assert ce.score(answers, truth).tolist() == [0.25, 0.0, 1.0]
    assert error.score(answers + 100, truth).tolist() == [1.0, 1.0, 1.0]
    assert error.size(outputs) == 8
    assert error.decode(error.encode(answers[:2], outputs), 2, outputs).tolist() == answers[:2].tolist()
    latents = outputs.form(scoring("latents", "error"))
    assert (latents.at_home, latents.part, latents.size(outputs)) == (True, "latent", 12)
    with pytest.raises(ValueError, match="values scored by absolute is for regression, and these are classes"):
        Outputs(3).form(error)


def test_recorded_evidence_answers_the_question_it_was_asked_for() -> None:
    outputs = Outputs(1, clip=2.0)
    asked = scoring("labels", "error")
    assert outputs.form(asked).is_for(asked)
    assert asked.is_for(asked)
    assert not outputs.form(scoring("probs", "ce")).is_for(asked)
    assert not asked.is_for(scoring("probs", "ce"))
