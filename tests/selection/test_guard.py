"""The guard refuses what is proven worse beyond the tolerance, and for a whole run hardly ever anything else."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import comb, exp, log

import numpy as np
import pytest
from scipy.stats import beta

from sagefl.errors import UsageError
from sagefl.selection.betting import BETS, shifted
from sagefl.selection.explain import explain
from sagefl.selection.guard import NOT_FINITE, Guard, Judgement
from sagefl.selection.outcome import Reason
from sagefl.selection.pool import log_e_value

ANCHORS, ROUNDS = 60, 40


def wealth(accepted: np.ndarray, received: np.ndarray, tolerance: float) -> float:
    """The literal formula."""
    moved = [(b - a - tolerance) / (1 + tolerance) for a, b in zip(accepted, received, strict=True)]
    return log(np.mean([np.prod([1 + g * y for y in moved]) for g in BETS]))


def test_the_wealth_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(1)
    accepted, received = rng.random(40), rng.random(40)
    _, verdict = Guard(0.1).judge(accepted, received)
    assert verdict.stage.against == pytest.approx((wealth(accepted, received, 0.1),))
    assert verdict.stage.risks == pytest.approx((received.mean(),))
    assert verdict.stage.advantage == pytest.approx(accepted.mean() - received.mean())


def test_a_collapse_is_refused_and_what_is_as_good_is_accepted() -> None:
    good, bad = np.zeros(ANCHORS), np.ones(ANCHORS)
    guard, first = Guard().judge(None, good)
    assert (first.refused, guard) == (False, Guard())  # nothing to compare with, so nothing is spent
    guard, same = guard.judge(good, good)
    assert not same.refused
    guard, collapse = guard.judge(good, bad)
    assert collapse.refused
    assert guard == Guard(judged=2, refused=1)


def test_worse_within_the_tolerance_is_never_refused_however_many_anchors() -> None:
    received = np.zeros(10_000)
    received[:500] = 1
    assert not Guard(0.05).judge(np.zeros(10_000), received)[1].refused
    assert Guard(0.02).judge(np.zeros(10_000), received)[1].refused


def test_the_levels_of_all_sequences_of_verdicts_add_up_to_delta() -> None:
    levels = (
        Guard(delta=0.1, judged=before, refused=sum(verdicts)).level
        for before in range(10)
        for verdicts in product((0, 1), repeat=before)
    )
    beyond = 0.1 / 11  # what sequences of ten and more verdicts share: the sum of 1/(t(t+1)) from t = 11 on
    assert sum(levels) + beyond == pytest.approx(0.1)


def test_while_nothing_is_refused_the_price_of_a_run_grows_with_the_logarithm_of_its_rounds() -> None:
    assert Guard(delta=0.05, judged=99).needed == pytest.approx(log(100**2 * 2 / 0.05))
    assert Guard(delta=0.05, judged=99, refused=3).level == pytest.approx(0.05 / (100**2 * 4 * 5 * comb(99, 3)))


# The promise for a whole run ------------------------------------------------------------------------------------------

DELTA, TOLERANCE, RUNS = 0.1, 0.1, 2000
NEEDED = np.array([Guard(TOLERANCE, DELTA, judged).needed for judged in range(ROUNDS)])


@cache
def bets() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses of accepted and received models in every round of every run, and the log-wealth of each round.

    The hardest of what the promise calls fine: every model errs on exactly the tolerance more of the data than the one
    before it. All of the run is drawn anew, so that each round is another chance to be wrong.
    """
    rng = np.random.default_rng(2)
    accepted = rng.random((RUNS, ROUNDS, ANCHORS)) < 0.1
    received = accepted | (rng.random(accepted.shape) < TOLERANCE / 0.9)  # of the 0.9 that are right so far
    return accepted, received, log_e_value(shifted(received * 1.0 - accepted, TOLERANCE))


def test_a_fine_model_is_hardly_ever_refused_in_a_whole_run() -> None:
    accepted, received, wealth = bets()
    for t in range(ROUNDS):
        verdict = Guard(TOLERANCE, DELTA, judged=t).judge(accepted[0, t], received[0, t])[1]
        assert verdict.stage.against == pytest.approx((wealth[0, t],))  # that is what is counted below
        assert verdict.refused == (wealth[0, t] >= NEEDED[t])
    refused = int((wealth >= NEEDED).any(axis=1).sum())
    assert upper(refused, RUNS) <= DELTA, refused


def test_without_a_level_for_the_run_it_would_be() -> None:
    """The control: the same bets, every round at delta by itself, break the promise for the run."""
    refused = int((bets()[2] >= -log(DELTA)).any(axis=1).sum())
    assert lower(refused, RUNS) > DELTA, refused


def upper(count: int, runs: int) -> float:
    return float(beta.ppf(0.999, count + 1, runs - count))


def lower(count: int, runs: int) -> float:
    return float(beta.ppf(0.001, count, runs - count + 1)) if count else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("anchors", [20, 100, 400])
def test_a_server_that_adapts_to_the_verdicts_cannot_have_good_models_refused(anchors: int) -> None:
    """Models are chosen in the knowledge of every verdict so far, as through training they are; 1,000 runs each."""
    rng, runs, wrong = np.random.default_rng(anchors), 1000, 0
    for _ in range(runs):
        guard, streak = Guard(0.05, 0.1), rng.random((30, anchors))
        accepted = (streak[0] < 0.2).astype(float)
        for t in range(1, 30):
            # Worse by the tolerance at most; after a refusal the next model is the refused kind again.
            received = (streak[t - guard.refused] < 0.25).astype(float)
            guard, verdict = guard.judge(accepted, received)
            if verdict.refused:
                wrong += 1
                break
            accepted = received if rng.random() < 0.5 else accepted
    assert upper(wrong, runs) <= 0.1, wrong


# What it says ---------------------------------------------------------------------------------------------------------


def said(verdict: Judgement) -> list[str]:
    return explain(verdict.outcome("server"), ["server"])


def test_a_verdict_is_told_in_words() -> None:
    good, bad = np.zeros(50), np.ones(50)
    guard, first = Guard().judge(None, good)
    assert said(first)[0] == "50 anchors: the first model, at risk 0.000: accepted."
    _, refused = guard.judge(good, bad)
    sentence, end = said(refused)
    assert sentence.startswith("50 anchors: received at risk 1.000, accepted before at 0.000; log-wealth ")
    assert sentence.endswith("3.69 needed to prove it worse by more than 0.05: refused.")
    assert end.startswith("Pull nobody: the model accepted last stays, because the one received is proven worse")
    assert exp(-3.689) == pytest.approx(0.05 / 2, rel=1e-3)
    _, accepted = guard.judge(good, good)
    assert said(accepted)[1].startswith("Pull server: not proven worse than the model accepted last")
    assert said(NOT_FINITE)[0] == "The model is not finite: refused."
    assert NOT_FINITE.outcome("server").reason is Reason.HOME


def test_a_loss_that_is_not_a_number_counts_as_wrong() -> None:
    assert Guard().judge(np.zeros(50), np.full(50, np.nan))[1].refused


@pytest.mark.parametrize(
    ("accepted", "received", "message"),
    [
        ([0, 0], [0, 0, 1], "scored on 2 anchors, the received one on 3: score every model on the same anchors"),
        ([0, 0], [0, 7.5], r"losses must lie in \[0, 1\], got 0 to 7.5: take 0-1 errors, or clip and scale"),
        ([0, 0], [], "one number per anchor, for at least one anchor"),
        ([0, 0], [[0], [1]], r"one number per anchor.*got shape \(2, 1\)"),
    ],
)
def test_losses_that_do_not_fit_are_refused_in_a_sentence(accepted: list, received: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Guard().judge(accepted, received)


@pytest.mark.parametrize(("options", "name"), [({"tolerance": 1.0}, "tolerance"), ({"delta": 0.0}, "delta")])
def test_options_out_of_range_are_refused(options: dict[str, float], name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be"):
        Guard(**options)
