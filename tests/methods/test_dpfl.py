from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from clusters import clustered_world, config, finds_cluster, run_clusters
from driving import drive
from hypothesis import given
from hypothesis import strategies as st
from rows import Rows, pulled

from sagefl.exchange import Mix
from sagefl.learning.tasks import InspectModels, Train
from sagefl.learning.training import LocalTraining
from sagefl.methods import method
from sagefl.methods.dpfl import DPFLRule
from sagefl.selection import ME, Inspect, Read, Reason, Request
from sagefl.selection.outcome import decode, encode
from sagefl.selection.selector import Draws
from sagefl.simulation.engines import make_engine


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


def Greedy(**options: Any) -> DPFLRule:  # noqa: N802
    """The deterministic search in the first round, all models counting the same, sets averaged in every round."""
    ours = {"start": 0, "period": 10, "pool": "all", "between": "average"}
    return DPFLRule(growth="greedy", average="uniform", **(ours | options))


# As released ----------------------------------------------------------------------------------------------------------


def released(peers: str, budget: int, loss: Callable[[frozenset[str]], float], rounds: int, seed: int) -> list[set]:
    """Whom one client of the released trainer averages with, round by round, word for word.

    fl/train_clients_constrained_rgl.py with periodicity_of_bandit = 2, repetition and greedy_set; `optimized_rgl_p` of
    selection/bandits.py with f = (10 - loss) / 10. Draws are those of the rule. Where both gains are equal and positive
    that code uses the probability of the candidate before; here it is 1/2.
    """

    def f(members: list[str]) -> float:
        return (10 - loss(frozenset(members))) / 10

    first, averaged = None, []
    for t in range(rounds):
        if not (t % 2 == 0 and t != 0 and t >= 2):
            averaged.append(set())
            continue
        candidates = list(peers) if first is None else [p for p in peers if p in first]
        draws = Draws(seed + t)
        x, y = [], list(candidates)
        for i in draws("order").permutation(len(candidates)):
            z = candidates[i]
            if len(x) + 1 >= budget:
                break
            a = max(f([*x, z]) - f(x), 0)
            b = max(f([p for p in y if p != z]) - f(y), 0)
            p = 1.0 if a == b == 0 else a / (a + b)
            if draws("add").random() < p:
                x.append(z)
            else:
                y.remove(z)
        first = x if first is None else first
        averaged.append(set(x))
    return averaged


@given(seed=st.integers(0, 10**6), budget=st.integers(1, 6), n=st.integers(1, 6))
def test_a_run_is_that_of_a_literal_transcription_of_the_released_trainer(seed, budget, n):
    """When it searches, among whom, what it finds, and that it averages in no other round."""
    peers, rounds, state = "abcdef"[:n], 9, None

    def loss(members: frozenset[str]) -> float:
        return float(np.random.default_rng([seed, *sorted(map(ord, members))]).random())

    found = []
    for t in range(rounds):
        outcome = drive(DPFLRule(budget=budget).begin(peers, 10, seed=seed + t, round=t, state=state), Sets(loss))
        state = decode(encode(outcome.state))
        found.append(set(outcome.peers))
        assert t in (2, 4, 6, 8) or not outcome.inspected
    assert found == released(peers, budget, loss, rounds, seed)


def test_between_searches_clients_train_alone_and_later_ones_look_at_the_first_set_only():
    rule, state = DPFLRule(), {"members": ("a",), "first": ("a", "c")}
    for t in (0, 1, 3, 5):
        assert rule.begin("abc", 10, state=state, round=t).outcome.peers == ()
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    outcome = drive(rule.begin("abc", 10, state=state, round=4), answers)
    assert outcome.inspected == ("a", "c")
    assert outcome.state == {"members": outcome.peers, "first": ("a", "c")}
    everybody = drive(DPFLRule(pool="all").begin("abc", 10, state=state, round=4), answers)
    assert everybody.inspected == ("a", "b", "c")


def test_models_are_weighed_by_their_samples():
    answers = Sets(lambda members: 1.0 - 0.1 * len(members))
    outcome = drive(DPFLRule().begin("ab", 10, round=2), answers)
    assert outcome.weights == pytest.approx({"a": 1 / 6, "b": 3 / 6})  # 1, 3 and one's own 2 samples
    assert answers.asked[0].weights == (1.0, 3.0, 2.0)
    alike = drive(DPFLRule(average="uniform").begin("ab", 10, round=2), answers)
    assert alike.weights == pytest.approx({"a": 1 / 3, "b": 1 / 3})


def test_whole_models_are_judged_and_averaged_heads_included():
    world = clustered_world(config("dpfl"))
    engine = make_engine("sequential", world, LocalTraining())
    engine.population.reset(world.initial)
    engine.map([Train(k, 0) for k in range(3)])
    p, bench, layout = engine.population, engine._bench, world.layout
    indices = world.federation.roles[0].anchor
    models, groups, weights = [(1, 0), (2, 0), None], [[2, 0, 1], [2, 1]], [1.0, 3.0, 2.0]
    rows = [p.snapshots[0, 1], p.snapshots[0, 2], p.snapshots[0, 0]]
    averages = [(rows[2] * 2 + rows[0] + rows[1] * 3) / 6, (rows[2] * 2 + rows[1] * 3) / 5]
    (found,) = engine.map([InspectModels(0, 0, models, groups, indices, "ce", weights, True)])
    for loss, row in zip(found, averages, strict=True):
        layout.bind(bench.model, row)
        assert loss == pytest.approx(bench.judge(bench.infer(bench.corpus.train_x, indices), indices, "ce"), rel=1e-5)
    (under_own_head,) = engine.map([InspectModels(0, 0, models, groups, indices, "ce", weights)])
    assert found[0] != pytest.approx(under_own_head[0], rel=1e-3)
    method("dpfl").exchange.mix(engine, 0, {0: Mix(1 / 3, ((1, 0, 1 / 6), (2, 0, 1 / 2)))})
    assert torch.allclose(p.params[0, layout.trained], averages[0][layout.trained], atol=1e-6)
    before = p.params[0].clone()
    method("dpfl", models="shared").exchange.mix(engine, 0, {0: Mix(0.5, ((1, 0, 0.5),))})
    assert torch.equal(p.params[0, layout.shared_stop :], before[layout.shared_stop :])


def test_whole_models_are_paid_for():
    rows = Rows.made(3, method("dpfl").exchange)
    whole, block = rows.sizes.full_model, rows.sizes.shared_block
    assert method("dpfl").exchange.traffic(0, pulled({1: 0.5}), {}, rows.sizes).models == whole > block
    assert method("dpfl", models="shared").exchange.traffic(0, pulled({1: 0.5}), {}, rows.sizes).models == block


# With options of our own ----------------------------------------------------------------------------------------------


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
    assert outcome.state == {"members": (), "first": ()}


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


def test_it_finds_its_cluster_and_pays_for_looking_only_when_it_searches(tmp_path):
    decisions = run_clusters("dpfl", tmp_path / "run", rounds=9)
    assert finds_cluster(decisions, since=2)
    merged = decisions.group_by("round").agg(pl.col("merged").sum(), pl.col("transferred").sum()).sort("round")
    assert [m > 0 for m in merged["merged"]] == [False, False] + [True, False] * 3 + [True]
    assert merged["transferred"].to_list()[:4] == [0, 0, 12 * 11, 0]
    assert merged["transferred"][4] == merged["merged"][2]  # later searches look at the first set
    ours = run_clusters("dpfl:period=4:start=0:pool=all:between=average", tmp_path / "ours", rounds=8)
    assert finds_cluster(ours, since=3)
    rebuilt, between = ours.filter(pl.col("round") % 4 == 0), ours.filter(pl.col("round") % 4 != 0)
    assert set(rebuilt["transferred"]) == {11}
    assert (between["transferred"] == between["merged"]).all()
    assert between["merged"].max() <= 9
