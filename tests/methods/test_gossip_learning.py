from __future__ import annotations

import pytest
from clusters import clustered_world, config, simulate
from driving import Given, drive

from sagefl.selection import ME, RandomGossip
from sagefl.selection.gossip_learning import GossipLearning


def merge(state, *, mine: int, theirs: int, age: float, round: int = 0):
    answers = Given(readings={"samples": {ME: mine, "p": theirs}, "age": {"p": age}})
    return drive(GossipLearning().begin(["p"], 0, round=round, state=state), answers)


def test_models_weigh_what_they_have_seen_and_the_older_age_stays():
    # Mine: 100 seen before, 50 now. Theirs: 20 before, 30 now. Weight 50 / 200, age max(150, 50).
    outcome = merge({"age": 100.0}, mine=50, theirs=30, age=20.0)
    assert outcome.weights == {"p": 0.25}
    assert outcome.state == {"age": 150.0}
    older = merge({"age": 0.0}, mine=50, theirs=30, age=120.0)
    assert older.weights == {"p": 0.75}
    assert older.state == {"age": 150.0}


def test_a_first_round_weighs_by_samples_and_empty_models_evenly():
    assert merge(None, mine=30, theirs=10, age=0.0).weights == {"p": 0.25}
    assert merge(None, mine=0, theirs=0, age=0.0).weights == {"p": 0.5}


def test_the_draw_is_that_of_rg_and_costs_one_model_and_two_scalars():
    answers = Given(readings={"samples": {ME: 1, **dict.fromkeys("abc", 1)}, "age": dict.fromkeys("abc", 0)})
    for seed in range(8):
        outcome = drive(GossipLearning().begin("abc", 0, seed), answers)
        assert outcome.peers == drive(RandomGossip().begin("abc", 0, seed), Given()).peers
        assert outcome.reads == {"age": 1, "samples": 1}
        assert not outcome.selected


def test_alone_one_still_ages():
    outcome = drive(GossipLearning().begin((), 0, state={"age": 5.0}), Given(readings={"samples": {ME: 7}}))
    assert (outcome.peers, outcome.state) == ((), {"age": 12.0})


def test_in_the_simulator_the_weights_follow_the_ages(tmp_path):
    uneven = {"data": {"partition": "dirichlet", "alpha": 0.5, "anchor": 0.2, "eval": 0.1}}
    run = config("gossip-learning", rounds=4, **uneven)
    sizes = [len(roles.train) for roles in clustered_world(run).federation.roles]
    assert len(set(sizes)) > 6
    ages = [0] * 12
    weights = set()
    decisions = simulate(run, tmp_path / "run").table("decisions")
    for round in range(4):
        trained = [age + size for age, size in zip(ages, sizes, strict=True)]
        for row in decisions.filter(decisions["round"] == round).iter_rows(named=True):
            mine, other = trained[row["client"]], trained[row["chosen"][0]]
            assert row["weights"] == [pytest.approx(other / (mine + other))]
            ages[row["client"]] = max(mine, other)
            weights.add(row["weights"][0])
    assert len(weights) > 12
