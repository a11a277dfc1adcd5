"""SAGE-E-vanilla: the exact sign test."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log

import numpy as np
import pytest
from nulls import PATTERNS, lower_limit, upper_limit
from scipy.stats import binom, binomtest

from sagefl import Reason, SageE, SageEVanilla, VanillaSage, explain, replay
from sagefl.selection.sage_e_vanilla import sign_test, worst_p_value

LEVEL = 0.999


def test_it_is_the_binomial_tail_exactly() -> None:
    for wins in range(25):
        for losses in range(25):
            n = wins + losses
            exact = Fraction(sum(comb(n, i) for i in range(losses + 1)), 2**n)
            assert sign_test(wins, losses) == float(exact)
            assert sign_test(wins, losses) == pytest.approx(binom.cdf(losses, n, 0.5), rel=1e-12)


def test_it_agrees_with_scipys_test() -> None:
    for wins, losses in [(1, 0), (12, 3), (40, 17), (5, 60), (64, 64)]:
        expected = binomtest(losses, wins + losses, 0.5, alternative="less").pvalue
        assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-12)


def test_thousands_of_anchors() -> None:
    assert sign_test(1500, 1500) == pytest.approx(binom.cdf(1500, 3000, 0.5), rel=1e-9)
    assert sign_test(3000, 0) == 0.0  # below the smallest float
    losses = np.ones((3, 2048))
    losses[0] = 0
    outcome = replay(SageEVanilla(schedule=(2048,)), losses)
    assert (outcome.reason, outcome.peers) == (Reason.CERTIFIED, (0,))


def test_the_worst_p_value_is_the_largest_over_the_others() -> None:
    wrong = np.random.default_rng(1).random((5, 40)) < np.array([0.2, 0.3, 0.5, 0.6, 0.7])[:, None]
    values = []
    for other in range(1, 5):
        b = sum(o and not j for j, o in zip(wrong[0], wrong[other], strict=True))
        c = sum(j and not o for j, o in zip(wrong[0], wrong[other], strict=True))
        values.append(binomtest(c, b + c, 0.5, alternative="less").pvalue)
    assert worst_p_value(wrong, 0) == pytest.approx(max(values))


@pytest.mark.parametrize(("stages", "count"), [("nominal", 4), ("feasible", 2)])
def test_it_certifies_iff_every_p_value_is_small_enough(stages: str, count: int) -> None:
    rng, seen = np.random.default_rng(2), set()
    for seed in range(60):
        losses = (rng.random((4, 40)) < np.array([0.15, 0.5, 0.5, 0.5])[:, None]).astype(float)
        outcome = replay(SageEVanilla(stages=stages), losses, seed)  # type: ignore[arg-type]
        level = 0.1 / (4 * count)
        for stage in outcome.trace:
            first = losses[:, : stage.anchors]
            best = int(first.sum(axis=1).argmin())
            worst = worst_p_value(first == 1, best)
            assert stage.wealth == pytest.approx((-log(worst),))
            assert stage.threshold == pytest.approx(-log(level))
            assert (stage.fired == "certified") == (worst <= level)
            seen.add(stage.fired)
        assert outcome.reason == (Reason.CERTIFIED if stage.fired == "certified" else Reason.EXHAUSTED)
    assert seen == {"certified", "continue", "exhausted"}


def test_no_discordant_anchor_certifies_nobody() -> None:
    outcome = replay(SageEVanilla(), np.zeros((3, 64)))
    assert (outcome.reason, outcome.selected) == (Reason.EXHAUSTED, False)
    assert [s.wealth for s in outcome.trace] == [(0.0,)] * 3


def test_a_single_neighbour_is_taken_whatever_the_pool() -> None:
    for pool in (4, 64):
        outcome = replay(SageEVanilla(), np.ones((1, pool)))
        assert (outcome.reason, outcome.peers, outcome.evaluations) == (Reason.ONLY, (0,), 0)
    assert replay(SageEVanilla(), np.ones((3, 15))).reason == Reason.NO_ANCHORS
    assert replay(SageEVanilla(), np.ones((0, 64))).reason == Reason.NONE


def test_losses_that_have_no_sign_test_are_refused() -> None:
    with pytest.raises(ValueError, match="use sage-e instead"):
        replay(SageEVanilla(), np.full((3, 64), 0.4))
    with pytest.raises(ValueError, match="0-1 losses"):
        SageEVanilla(kind="probs", loss="ce")
    doubled = 2 * (np.random.default_rng(3).random((4, 128)) < 0.5)
    assert replay(SageEVanilla(loss_bound=2), doubled).peers == replay(SageEVanilla(), doubled / 2).peers


@pytest.mark.parametrize("bound", [1.0, 0.7, 2.3, 0.1])
def test_the_bound_counts_in_float32_too(bound: float) -> None:
    wrong = np.random.default_rng(3).random((4, 128)) < np.array([[0.1], [0.6], [0.6], [0.6]])
    rounded = (wrong * np.float32(bound)).astype(np.float32)
    assert replay(SageEVanilla(loss_bound=bound), rounded).peers == replay(SageEVanilla(), wrong).peers == (0,)


def false_certifications(name: str, degree: int, decisions: int) -> int:
    """All peers tie, so certifying anybody as the best is false."""
    losses, count = PATTERNS[name](decisions, degree, 128, np.random.default_rng(4)), 0
    for seed, x in enumerate(losses):
        outcome = replay(SageEVanilla(), x, seed)
        count += outcome.reason == Reason.CERTIFIED
    return count


@pytest.mark.parametrize(("name", "degree"), [("independent .5", 2), ("one wrong", 3)])
def test_it_rarely_errs(name: str, degree: int) -> None:
    assert upper_limit(false_certifications(name, degree, 600), 600, LEVEL) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("degree", [2, 3, 7])
@pytest.mark.parametrize("name", PATTERNS)
def test_it_rarely_errs_at_length(name: str, degree: int) -> None:
    assert upper_limit(false_certifications(name, degree, 4000), 4000, LEVEL) < 0.1


def test_it_certifies_more_often_than_two_hoeffding_intervals() -> None:
    rng, found = np.random.default_rng(5), np.zeros(2, dtype=int)
    for seed in range(100):
        losses = (rng.random((5, 128)) < np.array([0.3, 0.6, 0.6, 0.6, 0.6])[:, None]).astype(float)
        for i, rule in enumerate((VanillaSage(), SageEVanilla())):
            found[i] += replay(rule, losses, seed).reason == Reason.CERTIFIED
    assert lower_limit(int(found[1]), 100, LEVEL) > upper_limit(int(found[0]), 100, LEVEL)


def test_words() -> None:
    names = ["ada", "bob", "cyd"]
    losses = np.ones((3, 32))
    losses[1] = 0
    told = explain(replay(SageEVanilla(), losses, peers=names), names)
    assert "largest p-value against another peer 1.53e-05 <= 0.00833 needed; certified." in told[0]
    tied = explain(replay(SageEVanilla(), np.ones((3, 16)), peers=names), names)
    assert "largest p-value against another peer 1 > 0.00833 needed; no anchors left, so gossip." in tied[0]
    wealth = explain(replay(SageE(), losses, peers=names), names)
    assert "needed to certify a peer against a random draw; certified." in wealth[0]
    alike = explain(replay(SageE(), np.ones((3, 32)), peers=names), names)
    assert alike[-2].endswith("more evidence is not expected to pay, so gossip.")
    assert "because more evidence is not expected to pay" in alike[-1]
