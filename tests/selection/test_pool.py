"""The certificate by design: numbers to check by hand, and why its bets are fair."""

from __future__ import annotations

from itertools import permutations
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.errors import UsageError
from sagefl.selection.betting import paired_differences
from sagefl.selection.outcome import decode, encode
from sagefl.selection.pool import Capital, Holding, Looks, differences, draw_asked, excess, log_e_value

NAN = float("nan")
BETS = (0.25, 0.5, 0.75, 0.95)

# Differences ----------------------------------------------------------------------------------------------------------


def test_excess_over_a_fixed_risk() -> None:
    x = np.array([[0.0, 1.0], [1.0, NAN]])
    assert np.allclose(excess(x[:1], 0.6), [[-1, 2 / 3]])
    assert np.allclose(excess(x[:1], 0.25), [[-1 / 3, 1]])
    assert np.allclose(excess(x, 0.5, silent=np.isnan(x)), [[-1, 1], [1, -1]])  # silence counts as no loss


@pytest.mark.parametrize("wrong", range(5))
@pytest.mark.parametrize("line", [0.3, 0.5, 0.8])
def test_a_bet_on_excess_is_fair_on_every_small_pool(wrong: int, line: float) -> None:
    """Exactly, over all orders of a pool of four: at most 1 in the mean unless the risk is above the line."""
    pool = (np.arange(4) < wrong).astype(float)
    for asked in (1, 2, 3, 4):
        orders = np.array(list(permutations(pool, asked)))[:, None, :]
        mean = np.exp(log_e_value(excess(orders, line))).mean()
        assert (mean <= 1 + 1e-12) or wrong / 4 > line


def test_differences_to_the_mean_of_the_others() -> None:
    x = np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 0.0]])
    assert differences(x).tolist() == [[0.75, -0.5], [-0.75, -0.5], [0.0, 1.0]]
    assert differences(x, worse=True).tolist() == (-differences(x)).tolist()


def test_who_was_not_asked_is_neither_compared_nor_bet_on() -> None:
    x = np.array([[0.0, 0.0, NAN], [1.0, NAN, 1.0], [NAN, 1.0, NAN], [0.0, NAN, NAN]])
    expected = [[0.5, 1.0, NAN], [-1.0, NAN, NAN], [NAN, -1.0, NAN], [0.5, NAN, NAN]]
    assert np.array_equal(differences(x), expected, equal_nan=True)


def test_those_drawn_stand_for_all_that_might_have_been() -> None:
    """Peer 0 is always asked and one of the other three: each drawn one stands for three."""
    x = np.array([[0.0], [1.0], [NAN], [NAN]])
    y = differences(x, always=(0,))
    assert y[0, 0] == 1.0
    assert np.isnan(y[1:, 0]).all()  # nobody stands for the other two in peer 1's own comparison
    y = differences(np.array([[0.0], [1.0], [0.5], [NAN]]), always=(0,))
    assert y[1, 0] == pytest.approx((0 + 2 * 0.5) / 3 - 1)
    assert y[2, 0] == pytest.approx((0 + 2 * 1.0) / 3 - 0.5)


def test_silence_counts_against_the_silent_and_for_nobody() -> None:
    x = np.array([[0.0], [NAN], [1.0]])
    silent = np.array([[False], [True], [False]])
    assert differences(x, silent=silent).ravel().tolist() == [0.5, -0.5, -1.0]  # its loss: 1 for itself, 0 for others
    assert differences(x, silent=silent, worse=True).ravel().tolist() == [-1.0, -0.5, 0.5]  # ... and reversed


def test_graded_losses_are_cut_pair_by_pair() -> None:
    x = np.array([[0.30], [0.35], [0.90]])
    assert differences(x, clip=0.1).ravel().tolist() == pytest.approx([0.75, 0.25, -1.0])


@given(st.integers(2, 9), st.integers(1, 12), st.floats(0.01, 1), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_differences_of_everybody_are_bounded_and_add_up_to_zero(d: int, m: int, clip: float, seed: int) -> None:
    x = np.random.default_rng(seed).random((2, d, m))
    y = differences(x, clip=clip)
    assert np.abs(y).max() <= 1 + 1e-12
    assert np.allclose(y.sum(axis=1), 0)
    assert np.allclose(y[0], differences(x[0], clip=clip))  # leading axes are receivers
    assert np.allclose(differences(x[0], always=(0,)), paired_differences(x[0]))


@given(st.integers(2, 6), st.integers(1, 8), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_silence_never_pays(d: int, m: int, worse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, silent = rng.random((d, m)), rng.random((d, m)) < 0.4
    quiet = differences(np.where(silent, NAN, x), silent=silent, worse=worse)
    assert (quiet <= differences(x, worse=worse) + 1e-12).all()


@pytest.mark.parametrize(("d", "each", "always"), [(5, 2, ()), (5, 3, ()), (6, 2, (1,)), (6, 3, (0, 4))])
def test_comparisons_with_those_drawn_are_unbiased(d: int, each: int, always: tuple[int, ...]) -> None:
    rng, draws = np.random.default_rng(4), 6000
    x = np.tile(rng.random((d, 1)), (1, draws))
    mask = draw_asked(d, draws, each, rng, always)
    assert (mask.sum(axis=0) == each + len(always)).all()
    assert mask[list(always)].all()
    y = differences(np.where(mask, x, NAN), always=always)
    for row, truth in zip(y, paired_differences(x[:, :1])[:, 0], strict=True):
        bets = row[~np.isnan(row)]
        assert abs(bets.mean() - truth) < 4 * max(bets.std(), 1e-9) / np.sqrt(len(bets))


def test_bad_evidence_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two peers"):
        differences(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="`always` was not asked"):
        differences(np.array([[NAN], [0.0]]), always=(0,))
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        differences(np.zeros((2, 1)), clip=0)


# One bet a round, and looks within it ---------------------------------------------------------------------------------


def test_one_bet_by_hand() -> None:
    """Three wins and a loss: 1/4 of 1.25^3 .75 + 1.5^3 .5 + 1.75^3 .25 + 1.95^3 .05, that is 4.86293/4."""
    by_hand = (1.46484375 + 1.6875 + 1.33984375 + 0.37074375) / 4
    assert exp(log_e_value(np.array([1.0, 1.0, 1.0, -1.0]))) == pytest.approx(by_hand)
    assert exp(log_e_value(np.array([1.0, NAN, 1.0, 1.0, -1.0]))) == pytest.approx(by_hand)


def looks_of(y: np.ndarray, pool: int) -> Looks:
    looks = Looks(y.shape[:-1], pool)
    looks.bet(y)
    return looks


def literal_looks(y: np.ndarray, pool: int) -> float:
    wealth = 0.0
    for g in BETS:
        total, product = 0.0, 1.0
        for i, value in enumerate(y, start=1):
            m = -total / (pool - i + 1)
            product *= 1 + min(g, 0.95 / (1 + max(m, 0.0))) * (value - m)
            total += value
        wealth += product / 4
    return wealth


def test_looks_by_hand() -> None:
    """Two wins in a pool of four: m = 0, then -1/3; the mean of (1 + g)(1 + 4/3 g) is 12.08667/4."""
    looks = looks_of(np.array([[1.0, 1.0]]), 4)
    assert exp(looks.now[0]) == pytest.approx((5 / 3 + 2.5 + 3.5 + 4.42) / 4)
    assert not looks.certain[0]  # two losses would make it a tie
    looks.bet(np.array([[0.1]]))
    assert looks.certain[0]


@given(st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_looks_are_the_literal_ones(pool: int, seed: int) -> None:
    y = np.random.default_rng(seed).uniform(-1, 1, (3, pool))
    for m in range(1, pool + 1):
        looks = looks_of(y[:, :m], pool)
        assert np.exp(looks.now).tolist() == pytest.approx([literal_looks(row[:m], pool) for row in y])
        assert (looks.certain == (y[:, :m].sum(axis=1) > pool - m)).all()


@given(st.integers(2, 9), st.lists(st.integers(0, 9), min_size=1, max_size=8), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_batches_of_any_size_give_the_same_bits(degree: int, sizes: list[int], binary: bool, seed: int) -> None:
    x = np.random.default_rng(seed).random((degree, sum(sizes)))
    x = np.round(x) if binary else x
    pool = sum(sizes) + seed % 3
    whole, parts = looks_of(differences(x), pool), Looks(degree, pool)
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        parts.bet(differences(np.ascontiguousarray(x[:, end - size : end])))
    for name in ("sums", "stakes", "now", "highest"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


def test_exact_ties_are_never_certain() -> None:
    """Thirds do not add up to a whole number in floating point; the whole pool still proves nothing."""
    x = np.tile(np.eye(4), 25)
    looks = looks_of(differences(x), 100)
    assert not looks.certain.any()
    assert looks.now.max() < log(40)


def test_looks_refuse_what_would_make_them_wrong() -> None:
    looks = Looks(2, 4)
    with pytest.raises(ValueError, match="5 anchors of a pool of 4"):
        looks.bet(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="everybody's answer"):
        looks.bet(np.array([[NAN], [0.0]]))


# Capital --------------------------------------------------------------------------------------------------------------


def logs(*values: float) -> np.ndarray:
    return np.log(np.array(values))


def test_capital_over_three_rounds_by_hand() -> None:
    """Two peers, delta .1 for both directions: 40 is needed. Peer a wins 4, 4 and 2.5: 40."""
    state: dict[str, object] = {}
    for round, (up, down) in enumerate([((4, 0.25), (0.25, 4)), ((4, 0.5), (0.25, 4)), ((2.5, 1), (1, 2.4))], start=5):
        capital = Capital.of(state, round=round, delta=0.1, peers_ever=2)
        capital = capital.bet(["a", "b"], logs(*up), logs(*down))
        state = decode(encode(capital.to_state()))
        assert (capital.certified_better() == ("a",)) == (round == 7)
    assert exp(capital.needed) == pytest.approx(40)
    assert exp(capital.held["a"].better) == pytest.approx(40)
    assert exp(capital.held["b"].worse) == pytest.approx(38.4)
    assert capital.certified_worse() == ()
    assert capital.held["a"][2:] == (5, 3, 0.0)  # nothing was bet on its being useless
    assert Capital.of(state, round=8, delta=0.1, peers_ever=2).held == capital.held


def test_thresholds_count_everybody_and_both_directions() -> None:
    def needed(**options: float) -> float:
        return exp(Capital(**({"delta": 0.1, "peers_ever": 6} | options)).needed)  # type: ignore[arg-type]

    assert needed(directions=1) == pytest.approx(60)
    assert needed() == pytest.approx(120)
    assert needed(window=10, rounds=100) == pytest.approx(1200)
    assert needed(window=30, rounds=100) == pytest.approx(480)  # four windows, the last one short
    assert needed(window=30, round=65) == pytest.approx(120 * 3 * 4)  # no end: 1/(1 2) + 1/(2 3) + ... = 1


def test_a_window_begins_with_nothing_and_forgetting_takes_powers() -> None:
    state = {"capital": {"a": [3.0, -3.0, 4, 2], "b": [1.0, 0.0, 9, 1]}}
    windows = Capital.of(state, round=9, delta=0.1, peers_ever=3, window=5, rounds=20)
    assert windows.held == {"b": Holding(1.0, 0.0, 9, 1)}
    fading = Capital.of(state, round=9, delta=0.1, peers_ever=3, forget=0.9).bet(["a"], logs(2), logs(0.5))
    assert fading.held["a"].better == pytest.approx(2.7 + log(2))
    assert fading.held["a"].worse == pytest.approx(-2.7 - log(2))
    assert fading.held["b"] == Holding(1.0, 0.0, 9, 1)  # not bet on: unchanged


def test_a_bet_changes_nothing_in_place() -> None:
    capital = Capital.of({}, round=0, delta=0.1, peers_ever=2)
    after = capital.bet(["a"], logs(2), logs(0.5))
    assert capital.held == {}
    assert after.held["a"] == Holding(log(2), log(0.5), 0, 1)


def test_bad_terms_are_refused() -> None:
    with pytest.raises(UsageError, match="peers_ever is 1"):
        Capital.of({}, round=0, delta=0.1, peers_ever=1).bet(["a", "b"], logs(1, 1), logs(1, 1))
    with pytest.raises(UsageError, match="exclude each other"):
        Capital(0.1, 2, window=5, forget=0.9)
    with pytest.raises(UsageError, match="beyond a run of 10"):
        Capital(0.1, 2, window=5, rounds=10, round=10)
    with pytest.raises(UsageError, match="delta"):
        Capital(1.0, 2)
