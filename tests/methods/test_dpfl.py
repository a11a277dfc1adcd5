from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from clusters import finds_cluster, run_clusters
from driving import drive

from sagefl.selection import ME, Inspect, Reason, Request
from sagefl.selection.dpfl import Dpfl
from sagefl.selection.outcome import decode, encode


class Sets:
    """Validation losses of averaged sets, by who else is in them."""

    def __init__(self, loss: Callable[[frozenset[str]], float]) -> None:
        self.loss, self.asked = loss, []

    def __call__(self, asked: Request) -> list[float]:
        assert isinstance(asked, Inspect)
        assert asked.groups is not None
        assert (asked.split, asked.metric) == ("anchor", "ce")
        self.asked.append(asked)
        assert all(group[0] == ME for group in asked.groups)
        return [self.loss(frozenset(group[1:])) for group in asked.groups]


def table(**losses: float) -> Sets:
    """Losses spelt out: ``table(none=1.0, a=.8, ab=.7)``; whatever is not named is bad."""
    return Sets(lambda members: losses.get("".join(sorted(members)) or "none", 9.0))


def test_the_set_grows_by_the_best_addition_while_nothing_is_lost():
    # alone 1.0; a .8, b .7, c .9; then with b: a .6, c .75; then abc .6: a gain of exactly 0 still counts.
    answers = table(none=1.0, a=0.8, b=0.7, c=0.9, ab=0.6, bc=0.75, abc=0.6)
    outcome = drive(Dpfl().begin("abc", 10), answers)
    assert set(outcome.state["members"]) == {"a", "b", "c"}
    assert outcome.weights == pytest.approx(dict.fromkeys("abc", 0.25))
    assert outcome.inspected == ("a", "b", "c")  # each model moves once
    assert [look.advantage for look in outcome.trace] == pytest.approx([0.3, 0.1, 0.0])


def test_a_good_pair_can_beat_two_good_singles():
    """Sets, not scores: c alone is better than b, but together with a it is not."""
    answers = table(none=1.0, a=0.5, b=0.9, c=0.6, ab=0.4, ac=0.55)
    assert set(drive(Dpfl(budget=3).begin("abc", 10), answers).state["members"]) == {"a", "b"}


def test_growing_stops_when_the_average_gets_worse():
    outcome = drive(Dpfl().begin("abc", 10), table(none=1.0, a=0.5, ab=0.51, ac=0.6))
    assert (outcome.peers, outcome.reason) == (("a",), Reason.COMMITTED)


def test_whoever_is_best_alone_merges_nothing_but_has_paid_for_looking():
    outcome = drive(Dpfl().begin("abc", 10), table(none=0.1))
    assert (outcome.peers, outcome.reason, outcome.inspected) == ((), Reason.NONE, ("a", "b", "c"))
    assert outcome.state == {"members": ()}


def test_the_budget_counts_oneself():
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    for budget, merged in ((1, 0), (2, 1), (3, 2), (9, 4)):
        assert len(drive(Dpfl(budget=budget).begin("abcd", 10), answers).peers) == merged


def test_between_rebuilds_the_set_is_averaged_unasked():
    rule, state = Dpfl(period=4), {"members": ("a", "c")}
    later = rule.begin("abc", 10, state=decode(encode(state)), round=3)
    assert later.request is None
    assert (later.outcome.peers, later.outcome.inspected) == (("a", "c"), ())
    assert rule.begin("abc", 10, state=state, round=4).request is not None  # due again
    assert rule.begin("abc", 10, round=3).request is not None  # never built yet


def test_members_that_are_away_are_left_out_and_come_back():
    rule, state = Dpfl(), {"members": ("a", "c")}
    away = rule.begin("bc", 10, state=state, round=1).outcome
    assert (away.peers, away.weights) == (("c",), {"c": 0.5})
    nobody = rule.begin("b", 10, state=state, round=1).outcome
    assert (nobody.peers, nobody.state) == ((), state)


def test_few_neighbours_and_no_anchors():
    assert Dpfl().begin((), 10).outcome.reason is Reason.NONE
    assert drive(Dpfl().begin("a", 10), table(none=1.0, a=0.5)).peers == ("a",)
    assert Dpfl().begin("ab", 0).outcome.peers == ()


def test_equal_gains_are_broken_at_random():
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    chosen = {drive(Dpfl(budget=2).begin("abcd", 10, seed), answers).peers for seed in range(60)}
    assert chosen == {("a",), ("b",), ("c",), ("d",)}


@pytest.mark.parametrize("option", ["period", "budget"])
def test_options_that_make_no_sense_are_refused(option):
    with pytest.raises(ValueError, match=option):
        Dpfl(**{option: 0})


def test_it_finds_its_cluster_and_pays_for_looking_only_at_rebuilds(tmp_path):
    decisions = run_clusters("dpfl:period=4", tmp_path / "run", rounds=8)
    assert finds_cluster(decisions, since=3)
    rebuilt, between = decisions.filter(pl.col("round") % 4 == 0), decisions.filter(pl.col("round") % 4 != 0)
    assert set(rebuilt["transferred"]) == {11}
    assert (between["transferred"] == between["merged"]).all()
    assert between["merged"].max() <= 4
