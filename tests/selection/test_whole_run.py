"""One delta for a whole run: how often a receiver ever certifies a peer that is never better, worse nor useless.

docs/proof.md states what is tested here. Bets are fair exactly (small pools, by enumeration in fractions); over runs of
150 rounds the share of receivers that ever err stays below delta (Clopper-Pearson); and what must not be done fails.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations, product
from math import prod
from pathlib import Path

import numpy as np
import pytest
from real_runs import BY_DEFAULT, REAL, RULES, Argmin, asking_some, count_real, false_runs, proven
from run_nulls import (
    ALL,
    BY_ONE_BET,
    CASES,
    FORGETTING,
    NULLS,
    ONE_BET,
    WINDOWS,
    Null,
    Play,
    Terms,
    count_false,
    everything,
    evidence,
    false_by_round,
    largest_advantage,
    limits,
    partial,
    partial_once,
    private,
    private_copies,
    steps,
    wealth,
)
from run_power import rows

from sagefl.selection.pool import Capital, Looks, log_e_value

DELTA = 0.1
RECORDED = Path(__file__).parents[2] / "results" / "level.csv"
STAKES = tuple(map(Fraction, ("1/4", "1/2", "3/4", "19/20")))
ONE = Fraction(1)


# Bets are fair, exactly -----------------------------------------------------------------------------------------------

VALUES = tuple(Fraction(v, 2) for v in (-2, -1, 0, 1, 2))
POOLS = [pool for n in (2, 3, 4) for pool in combinations_with_replacement(VALUES, n) if sum(pool) <= 0]


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def test_one_bet_is_fair_on_every_small_pool() -> None:
    fair = 0
    for pool in POOLS:
        for m, g in product(range(1, len(pool) + 1), STAKES):
            expected = mean([prod((1 + g * y for y in some), start=ONE) for some in combinations(pool, m)])
            assert expected <= (1 + g * mean(list(pool))) ** m <= 1
            fair += expected == 1
    assert fair > 50  # ties that stay fair: the bound is not won by giving everything away


def test_stakes_may_differ_from_anchor_to_anchor() -> None:
    """What the lemma of docs/proof.md says: also where a peer is asked with another probability later in the round."""
    stakes = (Fraction(1, 5), Fraction(9, 10), Fraction(1, 2), ONE)
    for pool in POOLS:
        orders = list(permutations(pool))
        for m in range(1, len(pool) + 1):
            expected = mean([prod((1 + a * y for a, y in zip(stakes[:m], o, strict=False)), start=ONE) for o in orders])
            assert expected <= prod((1 + a * mean(list(pool)) for a in stakes[:m]), start=ONE) <= 1


def look_factor(g: Fraction, y: Fraction, total: Fraction, left: int) -> Fraction:
    m = -total / left
    return 1 + min(g, STAKES[-1] / (1 + max(m, Fraction(0)))) * (y - m)


def test_looks_are_fair_after_every_history_on_every_small_pool() -> None:
    for pool in POOLS:
        for seen in range(len(pool)):
            for history in set(permutations(pool, seen)):
                rest = list(pool)
                for y in history:
                    rest.remove(y)
                for g in STAKES:
                    factors = [look_factor(g, y, sum(history, Fraction(0)), len(rest)) for y in rest]
                    assert min(factors) >= 1 - STAKES[-1]
                    assert mean(factors) <= 1


def test_silence_lowers_every_factor_of_a_look() -> None:
    """A smaller Y and a larger m_i both lower a factor, so silence lowers the wealth at every look, not on average."""
    grid = [Fraction(v, 4) for v in range(-4, 5)]
    for g, left in product(STAKES, (1, 2, 5)):
        for total in grid:
            values = [look_factor(g, y, total, left) for y in grid]
            assert values == sorted(values)
            assert all(look_factor(g, y, total - Fraction(1, 4), left) <= v for y, v in zip(grid, values, strict=True))


def asked_pairs(losses: tuple[Fraction, ...]) -> list[Fraction]:
    """Y of peer 0 of three on one anchor if two of the three are drawn: not asked, or compared with one other."""
    return [Fraction(0), losses[1] - losses[0], losses[2] - losses[0]]


def test_partial_asking_is_fair_on_every_small_pool() -> None:
    levels = (Fraction(0), Fraction(1, 2), ONE)
    anchors = list(product(levels, repeat=3))
    checked = 0
    for pool in combinations_with_replacement(anchors, 2):
        if sum((x[1] + x[2]) / 2 - x[0] for x in pool) > 0:
            continue
        for g in STAKES:
            # The order of two anchors does not matter here; draws are independent, so the mean of a product factorises.
            both = [(1 + g * a) * (1 + g * b) for a in asked_pairs(pool[0]) for b in asked_pairs(pool[1])]
            assert mean(both) <= 1
        checked += 1
    assert checked > 150


@pytest.mark.parametrize("g", STAKES)
def test_the_trap_in_two_anchors(g: Fraction) -> None:
    """Losses 0, 1/2, 1: the middle peer's Y is +-1/2 by whom it is compared with; 1/2 is no better than a draw."""
    half = Fraction(1, 2)
    drawn = [(a, b) for a in (half, -half) for b in (half, -half)]
    per_anchor = mean([(1 + g * a) * (1 + g * b) for a, b in drawn])
    per_round = mean([(1 + g * a) * (1 + g * a) for a in (half, -half)])
    with_term = mean([look_factor(g, a, Fraction(0), 2) * look_factor(g, b, a, 1) for a, b in drawn])
    assert per_anchor == 1
    assert per_round == 1 + g**2 / 4 > 1
    assert with_term > 1


# The fast form is the certificate's -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tied 3", "useless? learning", "graded", "churn", "rare drop-outs", "partial, tied"])
def test_the_fast_wealth_is_the_modules(name: str) -> None:
    null = ALL[name]
    play = Play(20, null, np.random.default_rng(1))
    y = evidence(null, play, play.orders())
    assert np.allclose(np.log(wealth(y, None)[0]), log_e_value(y))
    if name not in BY_ONE_BET:
        looks = Looks(y.shape[:-1], null.anchors)
        looks.bet(y)
        now, best = wealth(y, null.anchors)
        assert np.allclose(np.log(now), looks.now)
        assert np.allclose(np.maximum(np.log(best), 0), looks.highest)


@pytest.mark.parametrize("terms", [ONE_BET, WINDOWS, FORGETTING], ids=["kept", "windows", "forgetting"])
def test_the_fast_capital_is_the_modules(terms: Terms) -> None:
    """The same bets through `Capital`, state by state: the same peers certified in the same rounds."""
    null, rounds = NULLS["tied 2"], 40
    terms = Terms(False, terms.forget, min(terms.window, 8), rounds, delta=0.9)
    fast = false_by_round(null, 30, terms)
    play, slow = Play(30, null, np.random.default_rng([0, 0])), np.zeros((30, rounds), dtype=bool)
    play.orders()
    states: list[dict] = [{} for _ in range(30)]
    options = {"delta": 0.9, "peers_ever": 2, "forget": terms.forget, "window": terms.window, "rounds": rounds}
    for play.round in range(rounds):
        up, down = log_e_value(evidence(null, play, play.orders()))
        for run in range(30):
            capital = Capital.of(states[run], round=play.round, **options).bet((0, 1), up[run], down[run])
            slow[run, play.round] = bool(capital.certified_better() or capital.certified_worse())
            states[run] = capital.to_state()
    assert np.array_equal(slow, fast)
    assert 0 < fast.any(axis=1).sum() < 30


@pytest.mark.parametrize("name", ALL)
def test_these_are_nulls(name: str) -> None:
    assert largest_advantage(ALL[name], 3) < 1e-12


# How often a receiver ever errs ---------------------------------------------------------------------------------------


def assert_level(name: str, form: str, runs: int, terms: Terms, slack: float) -> int:
    """The 95 % limits of the share that ever errs; with forgetting of the share in the worst round."""
    count = count_false(ALL[name], runs, terms)
    low, high = limits(count, runs)
    assert low <= DELTA, f"{name}, {form}: {count} of {runs}, at least {low:.4f}"
    assert high <= DELTA + slack, f"{name}, {form}: {count} of {runs}, up to {high:.4f}"
    return count


QUICK = [(name, "one bet") for name in BY_ONE_BET] + [
    ("tied 2", "looks"),
    ("tied 7", "looks"),
    ("one wrong 7", "looks"),
    ("duplicates of 8", "looks"),
    ("pool of 8", "looks"),
    ("adaptive 7", "looks"),
    ("graded", "looks"),
    ("churn", "looks"),
    ("rare drop-outs", "looks"),
    ("tied 3", "windows"),
    ("one wrong 7", "forgetting"),
    ("useless? tied 7", "three bets"),
    ("useless? learning", "three bets"),
]


@pytest.mark.parametrize(("name", "form"), QUICK)
def test_level(name: str, form: str) -> None:
    terms = CASES[name, form]
    assert_level(name, form, 1000, replace(terms, window=terms.window // 3, rounds=50), 0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), CASES)
def test_level_at_length(name: str, form: str) -> None:
    """20,000 runs of 150 rounds; what is on record is what comes out."""
    count = assert_level(name, form, 20_000, CASES[name, form], 0.01)
    assert abs(count - recorded().get((name, form), count)) <= 20  # the same draws, but for how NumPy draws


@cache
def recorded() -> dict[tuple[str, str], int]:
    with RECORDED.open(encoding="utf-8", newline="") as file:
        return {(row["null"], row["form"]): int(row["false"]) for row in csv.DictReader(file)}


def test_what_is_on_record_is_on_the_page() -> None:
    assert recorded().keys() <= CASES.keys()
    assert len(recorded()) > 30
    with RECORDED.open(encoding="utf-8", newline="") as file:
        lines = [
            f"| {r['null']} | {r['form']} | {r['share']} | {r['low']} to {r['high']} |" for r in csv.DictReader(file)
        ]
    page = (RECORDED.parents[1] / "docs" / "proof.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line in lines] == lines


# What must not be done ------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Null, Terms]] = {
    "the same order of the pool in every round, three tied peers": (NULLS["tied 3"], Terms(fresh=False, rounds=50)),
    "the same, and models that adapt to it, seven peers": (NULLS["adaptive 7"], Terms(fresh=False, rounds=50)),
    "the threshold for d - 1 peers, two tied peers (one direction)": (
        NULLS["tied 2"],
        Terms(looks=True, directions=1, union=1),
    ),
    "the threshold for one peer, seven peers": (NULLS["one wrong 7"], Terms(looks=True, union=1, rounds=50)),
    "one comparison drawn for the whole round (the trap)": (
        Null(3, 40, steps, partial_once(2), (1,)),
        Terms(rounds=50),
    ),
    "m_i under partial asking, pool of 12 (the trap)": (
        Null(3, 12, steps, partial(2), (1,)),
        Terms(looks=True, rounds=50),
    ),
    "m_i under private answers, pool of 16": (
        Null(3, 16, NULLS["tied 3"].losses, private()),
        Terms(looks=True, rounds=50),
    ),
    "one private answer for eight copies of an input, pool of 40": (
        Null(3, 40, private_copies(8), frozen=False),
        Terms(rounds=50),
    ),
}
BEST = "no threshold: whoever has erred least is called better, seven tied peers"


def on_the_page() -> dict[str, tuple[int, int]]:
    """The controls of docs/proof.md: rounds, and per cent that ever err."""
    page = (RECORDED.parents[1] / "docs" / "proof.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| (\d+) \| (\d+) % \|$", page, flags=re.MULTILINE)
    return {mistake: (int(rounds), int(share)) for mistake, rounds, share in rows}


def test_the_page_has_every_mistake() -> None:
    assert list(on_the_page()) == [*MISTAKES, BEST]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_show(mistake: str) -> None:
    null, terms = MISTAKES[mistake]
    false = int(false_by_round(null, 1000, terms).any(axis=1).sum())
    assert limits(false, 1000)[0] > DELTA, f"{mistake}: only {false} of 1000"
    rounds, share = on_the_page()[mistake]
    assert terms.rounds == rounds
    assert share == pytest.approx(false / 10, abs=2)  # how NumPy draws may move it a little


def test_peers_above_the_line_are_found_out() -> None:
    """The control of the third bet: the same runs with a line that all are above."""
    null = replace(ALL["useless? tied 7"], line=lambda round: 0.3)
    assert false_by_round(null, 200, Terms(directions=3)).any(axis=1).mean() > 0.9
    assert false_by_round(null, 200, Terms(directions=2)).any(axis=1).mean() < 0.1


def test_somebody_always_looks_best() -> None:
    """argmin: after 50 rounds of ties the empirically best peer leads, and leading proves nothing."""
    null = NULLS["tied 7"]
    play = Play(1000, null, np.random.default_rng(2))
    totals = sum(evidence(null, play, play.orders())[0].sum(axis=-1) for _ in range(50))
    false = int((totals.max(axis=1) > 0).sum())
    assert limits(false, 1000)[0] > DELTA
    assert on_the_page()[BEST] == (50, round(false / 10))


def test_memoised_noise_is_believed() -> None:
    """Not promised: a snapshot that stays has one set of noisy answers, and what is certified is their pool risk."""
    noisy = Null(2, 40, lambda play: (play.rng.random((play.runs, 2, 40)) < 0.7).astype(float))
    assert largest_advantage(noisy, 1) > 0.1  # the answers as given do differ
    assert limits(int(false_by_round(noisy, 500, Terms()).any(axis=1).sum()), 500)[0] > DELTA


# Through real decisions -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "name"), REAL)
def test_level_of_real_decisions(rule: str, name: str) -> None:
    """What is on record is what comes out; how NumPy draws may move it a little."""
    count = count_real(rule, name)
    low, high = limits(count, 400)
    assert low <= DELTA, f"{rule}, {name}: at least {low:.4f}"
    assert high <= DELTA + 0.01, f"{rule}, {name}: up to {high:.4f}"
    assert abs(count - int(recorded_real()[rule, name]["false"])) <= 4


@cache
def recorded_real() -> dict[tuple[str, str], dict[str, str]]:
    with RECORDED.with_name("level-real.csv").open(encoding="utf-8", newline="") as file:
        return {(row["rule"], row["null"]): row for row in csv.DictReader(file)}


def test_what_real_decisions_came_to_is_within_the_limits_and_on_the_page() -> None:
    """The page has the largest share of the rule as it comes, and of the smallest one."""
    page = " ".join((RECORDED.parents[1] / "docs" / "proof.md").read_text(encoding="utf-8").split())
    assert list(recorded_real()) == REAL
    for row in recorded_real().values():
        low, high = limits(int(row["false"]), 400)
        assert (row["runs"], row["low"], row["high"]) == ("400", f"{low:.4f}", f"{high:.4f}")
        assert low <= DELTA
        assert high <= DELTA + 0.01
    for rule in (BY_DEFAULT, "the smallest rule", "the smallest rule, asking some"):
        most = max((r for r in recorded_real().values() if r["rule"] == rule), key=lambda r: int(r["false"]))
        assert f"{most['share']} ({most['low']} to {most['high']}, {most['null']})" in page


@pytest.mark.parametrize("name", ["graded", "pool of 8", "leaving when behind"])
def test_real_decisions_by_default_in_short(name: str) -> None:
    assert limits(count_real(BY_DEFAULT, name, 40, 15), 40)[0] <= DELTA


@pytest.mark.parametrize(
    ("rule", "name"), [(rule, "churn") for rule in RULES] + [("sage-m, always asking", "silent where wrong")]
)
def test_real_decisions_in_short(rule: str, name: str) -> None:
    assert limits(count_real(rule, name, 40, 15), 40)[0] <= DELTA


def test_true_certificates_of_the_trap_do_not_count_as_false() -> None:
    """Peer 0 of it is better indeed, and peer 2 worse: asking two of three an anchor proves so."""
    null = replace(ALL["partial, the trap"], seen=everything)
    for peers, found in (((0, 2), True), ((1,), False)):
        held = false_runs(asking_some, null, 20, 15, proven(replace(null, peers=peers), directions=2))
        assert held.any(axis=1).all() == held.any() == found


def test_the_harness_sees_a_rule_that_errs() -> None:
    false = int(false_runs(lambda null: Argmin(), NULLS["tied 2"], 40, 15).any(axis=1).sum())
    assert limits(false, 40)[0] > DELTA


# How fast a better peer is found --------------------------------------------------------------------------------------


def test_the_power_on_record_is_what_comes_out() -> None:
    """What the replacement term would bring; how NumPy draws may move it a little."""
    with RECORDED.with_name("power.csv").open(encoding="utf-8", newline="") as file:
        held = [tuple(row.values()) for row in csv.DictReader(file)]
    again = [tuple(map(str, row)) for row in rows()]
    assert [row[:4] for row in again] == [row[:4] for row in held]
    for (*_, median, found), (*_, then, share) in zip(again, held, strict=True):
        assert float(median) == pytest.approx(float(then), abs=1)
        assert float(found) == pytest.approx(float(share), abs=0.02)
