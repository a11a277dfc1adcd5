"""The betting certificate: its numbers, why it is valid, and how often it errs."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import exp, log
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nulls import PATTERNS, count_false, differences, highest_wealth, lower_limit, upper_limit

from sagefl import Reason, SageE, replay
from sagefl.selection.betting import (
    Wealth,
    margin_shift,
    paired_differences,
    shifted,
    threshold,
    upper_bounds,
    worth_stopping,
)

DELTA = 0.1
LEVEL = 0.999  # of every confidence limit below


def wealth_of(y: np.ndarray) -> Wealth:
    wealth = Wealth(len(y))
    wealth.bet(y)
    return wealth


# Its numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wins", "losses", "wealth"), [(10, 0, 282.832), (7, 3, 1.23655)])
def test_golden_wealth(wins: int, losses: int, wealth: float) -> None:
    x = np.array([[0] * wins + [1] * losses, [1] * wins + [0] * losses], dtype=float)
    assert exp(wealth_of(paired_differences(x)).now[0]) == pytest.approx(wealth, rel=1e-5)


@pytest.mark.parametrize(("degree", "anchors"), [(2, 6), (3, 7), (6, 8), (7, 8), (10, 9), (15, 9)])
def test_fewest_unanimous_anchors(degree: int, anchors: int) -> None:
    losses = np.ones((degree, 16))
    losses[1] = 0
    outcome = replay(SageE(first=1, step=1, stop="none"), losses)
    assert (outcome.reason, outcome.peers, outcome.anchors) == (Reason.CERTIFIED, (1,), anchors)


def test_differences_are_those_of_the_definition() -> None:
    x = np.random.default_rng(1).random((4, 5))
    for j, i in product(range(4), range(5)):
        others = [x[other, i] for other in range(4) if other != j]
        assert paired_differences(x)[j, i] == pytest.approx(sum(others) / 3 - x[j, i])


def test_thresholds() -> None:
    assert threshold(6, 0.1) == pytest.approx(log(60))
    assert margin_shift(0.1, 6) == pytest.approx(0.12)
    assert shifted(np.array([1.0, 0.12, -1.0]), 0.12).tolist() == pytest.approx([0.88 / 1.12, 0, -1])


@given(st.integers(2, 17), st.lists(st.integers(1, 9), min_size=1, max_size=12), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_batches_of_any_size_give_the_same_bits(degree: int, sizes: list[int], binary: bool, seed: int) -> None:
    x = np.random.default_rng(seed).random((degree, sum(sizes)))
    x = np.round(x) if binary else x
    whole, parts = wealth_of(paired_differences(x)), Wealth(degree)
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        parts.bet(paired_differences(np.ascontiguousarray(x[:, end - size : end])))
    assert np.array_equal(whole.stakes, parts.stakes)
    assert np.array_equal(whole.highest, parts.highest)


def test_the_running_maximum_counts_anchors_between_looks() -> None:
    y = np.array([[1.0, 1, 1, -1, -1]])
    wealth = wealth_of(y)
    assert wealth.highest[0] == pytest.approx(wealth_of(y[:, :3]).now[0])
    assert wealth.highest[0] > wealth.now[0]


def test_a_bet_on_one_peer_leaves_the_others() -> None:
    y = np.random.default_rng(2).uniform(-1, 1, (3, 6))
    one = wealth_of(y[:, :4])
    one.bet(y[1:2, 4:], slice(1, 2))
    assert one.now[1] == wealth_of(y).now[1]
    assert one.now[[0, 2]].tolist() == wealth_of(y[:, :4]).now[[0, 2]].tolist()


# Why it is valid ----------------------------------------------------------------------------------------------------

LEVELS = (0.0, 0.5, 1.0)
PER_ANCHOR = np.array(list(product(LEVELS, repeat=3)))  # every loss pattern of three peers on one anchor
SEQUENCES = np.array(list(product(range(len(PER_ANCHOR)), repeat=3)))  # ... and on three anchors


@cache
def wealths(peer: int, sign: int, margin: float) -> np.ndarray:
    """W_3(j) after every sequence of three anchors."""
    y = shifted(sign * paired_differences(PER_ANCHOR.T)[peer], margin_shift(margin, 3))
    return np.asarray(np.exp(wealth_of(y[SEQUENCES]).now))  # a "peer" per sequence


def expected_wealth(distribution: np.ndarray, peer: int, sign: int = 1, margin: float = 0.0) -> float:
    """E[W_3(j)] over all sequences of three independent anchors, by enumeration."""
    return float(wealths(peer, sign, margin) @ distribution[SEQUENCES].prod(axis=1))


def distributions(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    binary = np.isin(PER_ANCHOR, (0, 1)).all(axis=1)
    drawn = [rng.dirichlet(np.full(len(PER_ANCHOR), 0.2)) for _ in range(count)]
    return [d if i % 2 else np.where(binary, d, 0) / d[binary].sum() for i, d in enumerate(drawn)]


def test_expected_wealth_is_at_most_one_unless_the_peer_is_better() -> None:
    better = worse = 0
    for distribution in distributions(40):
        risks = distribution @ PER_ANCHOR
        for peer in range(3):
            value = expected_wealth(distribution, peer)
            if risks[peer] >= risks.mean():
                assert value <= 1 + 1e-12
                worse += 1
            elif risks[peer] < risks.mean() - 0.3:
                assert value > 1
                better += 1
    assert better > 5
    assert worse > 40


def test_expected_wealth_is_one_at_the_boundary() -> None:
    exchangeable = np.full(len(PER_ANCHOR), 1 / len(PER_ANCHOR))
    for peer in range(3):
        assert expected_wealth(exchangeable, peer) == pytest.approx(1, abs=1e-12)


def test_the_dual_and_the_margin_are_valid_too() -> None:
    for distribution in distributions(24):
        risks = distribution @ PER_ANCHOR
        for peer in range(3):
            if risks[peer] <= risks.mean():
                assert expected_wealth(distribution, peer, sign=-1) <= 1 + 1e-12
            if risks[peer] >= risks.mean() - 0.1:
                assert expected_wealth(distribution, peer, margin=0.1) <= 1 + 1e-12


# How often it errs --------------------------------------------------------------------------------------------------

CASES = [(name, degree) for name in PATTERNS for degree in (2, 3, 7, 15)]
QUICK = [
    ("independent .5", 2),
    ("independent .1", 7),
    ("correlated .3", 3),
    ("one right", 15),
    ("one right", 3),
    ("one wrong", 2),
    ("one wrong", 7),
]


def assert_rarely_false(name: str, degree: int, decisions: int, sign: int = 1) -> float:
    count = count_false(PATTERNS[name], degree, decisions, degree / DELTA, sign)
    limit = upper_limit(count, decisions, LEVEL)
    assert limit < DELTA, f"{count} of {decisions} certified falsely: up to {limit:.3%} at confidence {LEVEL:.1%}"
    return limit


@pytest.mark.parametrize("sign", [1, -1], ids=["better", "worse"])
@pytest.mark.parametrize(("name", "degree"), QUICK)
def test_false_certification(name: str, degree: int, sign: int) -> None:
    assert_rarely_false(name, degree, 10_000 if degree == 2 else 2500, sign)  # closest to delta with two peers


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1], ids=["better", "worse"])
@pytest.mark.parametrize(("name", "degree"), CASES)
def test_false_certification_at_length(name: str, degree: int, sign: int) -> None:
    assert_rarely_false(name, degree, 20_000, sign)


@pytest.mark.parametrize(("name", "degree"), CASES)
def test_the_fast_wealth_is_the_selectors(name: str, degree: int) -> None:
    losses = PATTERNS[name](12, degree, 128, np.random.default_rng(4))
    fast = highest_wealth(differences(losses))
    real = np.array([wealth_of(paired_differences(x)).highest for x in losses])
    assert np.allclose(np.log(np.maximum(fast, 1)), real, atol=1e-9)
    rule = SageE(first=1, step=1, stop="none", delta=0.5)
    for x, highest in zip(losses[:3], fast[:3], strict=True):
        certified = replay(rule, x).reason == Reason.CERTIFIED
        assert certified == (highest >= degree / 0.5).any()


def argmin_count(name: str, degree: int, decisions: int) -> int:
    """Negative control: commits to the empirical best of all 128 anchors, and calls that certified."""
    losses = PATTERNS[name](decisions, degree, 128, np.random.default_rng(5))
    totals = losses.sum(axis=2)
    return int((totals.min(axis=1) < totals.mean(axis=1)).sum())


def peeking_count(name: str, degree: int, decisions: int) -> int:
    """Negative control: a fixed-sample normal test of every difference at level delta/d, after every anchor."""
    y = differences(PATTERNS[name](decisions, degree, 128, np.random.default_rng(6)))
    n = np.arange(1, 129)
    mean, square = np.cumsum(y, axis=2) / n, np.cumsum(y**2, axis=2) / n
    z = mean * np.sqrt(n) / np.sqrt(np.maximum(square - mean**2, 1e-12))
    return int((z[:, :, 8:] > NormalDist().inv_cdf(1 - DELTA / degree)).any(axis=(1, 2)).sum())


@pytest.mark.parametrize(("name", "degree"), QUICK)
def test_committing_to_the_empirical_best_fails_the_same_test(name: str, degree: int) -> None:
    assert lower_limit(argmin_count(name, degree, 500), 500, LEVEL) > DELTA


@pytest.mark.parametrize(("name", "degree"), [("independent .5", 2), ("correlated .3", 3), ("one wrong", 7)])
def test_peeking_at_a_fixed_sample_test_fails_the_same_test(name: str, degree: int) -> None:
    assert lower_limit(peeking_count(name, degree, 500), 500, LEVEL) > DELTA


@pytest.mark.parametrize("name", ["independent .5", "one wrong"])
def test_a_threshold_for_all_but_one_fails_at_a_tie(name: str) -> None:
    """Advantages add up to zero, so at most d - 1 peers are *worse* than the mean; but all d can be no better."""
    count = count_false(PATTERNS[name], 2, 4000, 1 / DELTA)
    assert lower_limit(count, 4000, LEVEL) > DELTA
    assert upper_limit(count_false(PATTERNS[name], 2, 4000, 2 / DELTA), 4000, LEVEL) < DELTA


def test_a_threshold_without_the_union_fails() -> None:
    count = count_false(PATTERNS["one right"], 15, 2000, 1 / DELTA)
    assert lower_limit(count, 2000, LEVEL) > DELTA


# B0: the bound on what could still be gained ------------------------------------------------------------------------


def test_upper_bounds_solve_their_equation() -> None:
    y = paired_differences(np.round(np.random.default_rng(7).random((4, 20))))
    for j, u in enumerate(upper_bounds(y, DELTA)):
        against = np.mean([np.prod(1 - g * (y[j] - u) / (1 - u)) for g in (0.25, 0.5, 0.75, 0.95)])
        assert against == pytest.approx(4 / DELTA, rel=1e-6)


@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_upper_bounds_are_monotone(seed: int, degree: int, anchors: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.uniform(-1, 1, (degree, anchors))
    bounds = upper_bounds(y, DELTA)
    lowered = np.maximum(y - rng.random((degree, anchors)), -1)
    assert (upper_bounds(lowered, DELTA) <= bounds + 1e-9).all()
    assert (upper_bounds(y, DELTA / 2) >= bounds - 1e-9).all()
    assert (bounds >= np.clip(y.mean(axis=1), -1, 1) - 1e-9).all()


@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 60), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_stopping_is_worth_it_iff_no_bound_exceeds_the_price(seed: int, degree: int, anchors: int, gain: float) -> None:
    y = np.random.default_rng(seed).uniform(-1, 1, (degree, anchors))
    most = (degree - 1) / degree * upper_bounds(y, DELTA).max()
    if abs(most - gain) > 1e-9:
        assert worth_stopping(y, degree, DELTA, gain) == (gain >= most)


def test_the_bounds_cover_at_every_look() -> None:
    rng, degree, risks = np.random.default_rng(8), 3, np.array([0.2, 0.5, 0.6])
    truth, missed, worlds = degree / (degree - 1) * (risks.mean() - risks), 0, 300
    for _ in range(worlds):
        y = paired_differences((rng.random((degree, 64)) < risks[:, None]).astype(float))
        # P(U_j < truth at some look): the wealth against the truth itself reaches d/delta.
        moved = (y - truth[:, None]) / (1 - truth[:, None])
        missed += bool((highest_wealth(-moved) >= degree / DELTA).any())
    assert upper_limit(missed, worlds, LEVEL) < DELTA + 0.02
