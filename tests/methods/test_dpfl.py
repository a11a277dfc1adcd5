from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from clusters import finds_cluster, run_clusters
from driving import drive
from hypothesis import given
from hypothesis import strategies as st

from sagefl.selection import ME, Inspect, Read, Reason, Request
from sagefl.selection.dpfl import Dpfl
from sagefl.selection.outcome import decode, encode
from sagefl.selection.selector import Draws


class Sets:
    """Validation losses of averaged sets, by who else is in them."""

    def __init__(self, loss: Callable[[frozenset[str]], float]) -> None:
        self.loss, self.asked = loss, []

    def __call__(self, asked: Request) -> list[float]:
        if isinstance(asked, Read):
            return [{"a": 1.0, "b": 3.0}.get(p, 2.0) for p in asked.peers]
        assert isinstance(asked, Inspect)
        assert asked.groups is not None
        assert (asked.split, asked.metric) == ("anchor", "ce")
        self.asked.append(asked)
        assert all(group[0] == ME for group in asked.groups)
        return [self.loss(frozenset(group[1:])) for group in asked.groups]


def table(**losses: float) -> Sets:
    """Losses spelt out: ``table(none=1.0, a=.8, ab=.7)``; whatever is not named is bad."""
    return Sets(lambda members: losses.get("".join(sorted(members)) or "none", 9.0))


def Greedy(**options: Any) -> Dpfl:  # noqa: N802
    """The deterministic search, all models counting the same."""
    return Dpfl(growth="greedy", average="uniform", **options)


def double_greedy(peers: str, budget: int, loss: Callable[[frozenset[str]], float], draws: Draws) -> list[str]:
    """The released search (`optimized_rgl_p`), word for word: X grows, Y shrinks, f = (10 - loss) / 10."""

    def f(members: list[str]) -> float:
        return (10 - loss(frozenset(members))) / 10

    x, y = [], list(peers)
    for i in draws("order").permutation(len(peers)):
        z = peers[i]
        if len(x) + 1 >= budget:
            break
        a = max(f([*x, z]) - f(x), 0)
        b = max(f([p for p in y if p != z]) - f(y), 0)
        p = 1.0 if a == b == 0 else a / (a + b)
        if draws("add").random() < p:
            x.append(z)
        else:
            y.remove(z)
    return x


@given(seed=st.integers(0, 10**6), budget=st.integers(1, 6), n=st.integers(1, 6))
def test_the_randomised_search_is_that_of_a_literal_transcription(seed, budget, n):
    peers = "abcdef"[:n]
    values: dict[frozenset[str], float] = {}

    def loss(members: frozenset[str]) -> float:
        rng = np.random.default_rng([seed, *sorted(map(ord, members))])
        return values.setdefault(members, float(rng.random()))

    outcome = drive(Dpfl(budget=budget).begin(peers, 10, seed=seed), Sets(loss))
    expected = double_greedy(peers, budget, loss, Draws(seed))
    assert set(outcome.state["members"]) == set(expected)


def test_models_are_weighed_by_their_samples():
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    outcome = drive(Dpfl().begin("ab", 10), answers)
    assert outcome.weights == pytest.approx({"a": 1 / 6, "b": 3 / 6})  # 1, 3 and one's own 2 samples
    assert answers.asked[0].weights == (1.0, 3.0, 2.0)
    assert drive(Dpfl(average="uniform").begin("ab", 10), answers).weights == pytest.approx({"a": 1 / 3, "b": 1 / 3})


def test_the_set_grows_by_the_best_addition_while_nothing_is_lost():
    # alone 1.0; a .8, b .7, c .9; then with b: a .6, c .75; then abc .6: a gain of exactly 0 still counts.
    answers = table(none=1.0, a=0.8, b=0.7, c=0.9, ab=0.6, bc=0.75, abc=0.6)
    outcome = drive(Greedy().begin("abc", 10), answers)
    assert set(outcome.state["members"]) == {"a", "b", "c"}
    assert outcome.weights == pytest.approx(dict.fromkeys("abc", 0.25))
    assert outcome.inspected == ("a", "b", "c")  # each model moves once
    assert [look.advantage for look in outcome.trace] == pytest.approx([0.3, 0.1, 0.0])


def test_a_good_pair_can_beat_two_good_singles():
    """Sets, not scores: c alone is better than b, but together with a it is not."""
    answers = table(none=1.0, a=0.5, b=0.9, c=0.6, ab=0.4, ac=0.55)
    assert set(drive(Greedy(budget=3).begin("abc", 10), answers).state["members"]) == {"a", "b"}


def test_growing_stops_when_the_average_gets_worse():
    outcome = drive(Greedy().begin("abc", 10), table(none=1.0, a=0.5, ab=0.51, ac=0.6))
    assert (outcome.peers, outcome.reason) == (("a",), Reason.COMMITTED)


def test_whoever_is_best_alone_merges_nothing_but_has_paid_for_looking():
    outcome = drive(Greedy().begin("abc", 10), table(none=0.1))
    assert (outcome.peers, outcome.reason, outcome.inspected) == ((), Reason.NONE, ("a", "b", "c"))
    assert outcome.state == {"members": ()}


def test_the_budget_counts_oneself():
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    for budget, merged in ((1, 0), (2, 1), (3, 2), (9, 4)):
        assert len(drive(Greedy(budget=budget).begin("abcd", 10), answers).peers) == merged


def test_between_rebuilds_the_set_is_averaged_unasked():
    rule, state = Greedy(period=4), {"members": ("a", "c")}
    later = rule.begin("abc", 10, state=decode(encode(state)), round=3)
    assert later.request is None
    assert (later.outcome.peers, later.outcome.inspected) == (("a", "c"), ())
    assert rule.begin("abc", 10, state=state, round=4).request is not None  # due again
    assert rule.begin("abc", 10, round=3).request is not None  # never built yet


def test_members_that_are_away_are_left_out_and_come_back():
    rule, state = Greedy(), {"members": ("a", "c")}
    away = rule.begin("bc", 10, state=state, round=1).outcome
    assert (away.peers, away.weights) == (("c",), {"c": 0.5})
    nobody = rule.begin("b", 10, state=state, round=1).outcome
    assert (nobody.peers, nobody.state) == ((), state)


def test_few_neighbours_and_no_anchors():
    assert Greedy().begin((), 10).outcome.reason is Reason.NONE
    assert drive(Greedy().begin("a", 10), table(none=1.0, a=0.5)).peers == ("a",)
    assert Greedy().begin("ab", 0).outcome.peers == ()


def test_equal_gains_are_broken_at_random():
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    chosen = {drive(Greedy(budget=2).begin("abcd", 10, seed), answers).peers for seed in range(60)}
    assert chosen == {("a",), ("b",), ("c",), ("d",)}


@pytest.mark.parametrize("option", ["period", "budget"])
def test_options_that_make_no_sense_are_refused(option):
    with pytest.raises(ValueError, match=option):
        Greedy(**{option: 0})


def test_it_finds_its_cluster_and_pays_for_looking_only_at_rebuilds(tmp_path):
    decisions = run_clusters("dpfl:period=4", tmp_path / "run", rounds=8)
    assert finds_cluster(decisions, since=3)
    rebuilt, between = decisions.filter(pl.col("round") % 4 == 0), decisions.filter(pl.col("round") % 4 != 0)
    assert set(rebuilt["transferred"]) == {11}
    assert (between["transferred"] == between["merged"]).all()
    assert between["merged"].max() <= 9
