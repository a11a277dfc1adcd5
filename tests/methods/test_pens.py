from __future__ import annotations

import copy

import pytest
from driving import Anything, Given, drive

from sagefl.methods import method
from sagefl.selection import Inspect, RandomGossip, Reason, State
from sagefl.selection.pens import Pens

LOSSES = {"a": 0.9, "b": 0.2, "c": 0.5}


def phase_one(rule: Pens, losses: dict[str, float], state: State | None = None, seed: int = 0):
    answers = Given(inspections={"ce": losses})
    return drive(rule.begin(list(losses), 0, seed, rounds=10, state=state), answers), answers


def test_phase_one_merges_the_best_m_of_those_sampled_and_counts_them():
    outcome, answers = phase_one(Pens(n_sampled=3, m=2), LOSSES)
    assert outcome.peers == ("b", "c")
    assert outcome.weights == {"b": 1 / 3, "c": 1 / 3}  # uniform over oneself and both
    assert set(outcome.inspected) == {"a", "b", "c"}
    (asked,) = answers.asked
    assert isinstance(asked, Inspect)
    assert (asked.split, asked.metric) == ("train", "ce")
    assert outcome.state == {"chosen": {"b": 1, "c": 1}, "expected": {"a": 2 / 3, "b": 2 / 3, "c": 2 / 3}}


def test_only_those_sampled_are_moved_and_everybody_is_sampled_sometimes():
    seen = set()
    for seed in range(30):
        outcome, _ = phase_one(Pens(n_sampled=1, m=2), LOSSES, seed=seed)
        assert outcome.peers == outcome.inspected
        seen.update(outcome.inspected)
    assert seen == set(LOSSES)


@pytest.mark.parametrize("degree", [1, 2])
def test_fewer_neighbours_than_samples_are_all_tried_and_still_merged(degree):
    losses = dict(list(LOSSES.items())[:degree])
    outcome, _ = phase_one(Pens(n_sampled=3, m=2), losses)
    assert set(outcome.peers) == set(losses)
    assert outcome.weights == dict.fromkeys(outcome.peers, 1 / (degree + 1))
    assert outcome.state["expected"] == dict.fromkeys(losses, 1.0)  # m'/d with m' = min(m, d)


def test_phase_two_draws_among_those_chosen_more_often_than_chance():
    state = {"chosen": {"a": 4, "b": 3}, "expected": dict.fromkeys("abc", 8 / 3)}  # four rounds of 2/3
    drawn = set()
    for seed in range(40):
        outcome = drive(Pens().begin("abc", 0, seed, round=4, rounds=10, state=state), Given())
        assert outcome.reason is Reason.UNIFORM
        assert outcome.inspected == ()
        assert list(outcome.weights.values()) == [0.5]
        assert outcome.state == state
        drawn.add(outcome.peers[0])
    assert drawn == {"a", "b"}


def test_exactly_as_often_as_chance_is_not_more_whatever_the_rounding():
    rule, peers = Pens(n_sampled=3, m=2), tuple("abc")
    state: State | None = None
    for worst in "ccccaa":  # chance chooses each in 6 * 2/3 rounds, as often as a
        state = phase_one(rule, {p: float(p == worst) for p in peers}, state)[0].state
    assert state["chosen"] == {"a": 4, "b": 6, "c": 2}
    assert state["expected"]["a"] < 4  # by rounding alone
    assert rule.kept(rule.begin(peers, 0, round=6, rounds=10).hood, state) == ("b",)


def test_whoever_keeps_nobody_active_gossips_with_all_and_draws_what_rg_draws():
    state = {"chosen": {"gone": 9}, "expected": {"gone": 1.0, "a": 5.0, "b": 5.0, "c": 5.0}}
    for seed in range(10):
        pens = drive(Pens().begin("abc", 0, seed, round=9, rounds=10, state=state), Given())
        assert pens.peers == drive(RandomGossip().begin("abc", 0, seed), Given()).peers


def test_the_turn_is_a_share_of_the_run_or_a_number_of_rounds():
    def phase(rule: Pens, round: int, rounds: int | None) -> int:
        return 2 - bool(drive(rule.begin("abc", 0, round=round, rounds=rounds), Anything()).inspected)

    assert [phase(Pens(), t, 250) for t in (0, 99, 100, 249)] == [1, 1, 2, 2]
    assert [phase(Pens(first_phase=3), t, None) for t in (0, 2, 3)] == [1, 1, 2]
    with pytest.raises(ValueError, match="how long"):
        Pens().begin("abc", 0)


def test_the_state_handed_in_is_left_alone():
    state = {"chosen": {"b": 1}, "expected": {"b": 0.5}}
    before = copy.deepcopy(state)
    outcome, _ = phase_one(Pens(), LOSSES, state=state)
    assert state == before
    assert outcome.state["chosen"]["b"] == 2
    assert outcome.state["expected"]["b"] == 0.5 + 2 / 3


def test_no_neighbour_no_exchange():
    outcome = drive(Pens().begin((), 0, rounds=10), Given())
    assert (outcome.peers, outcome.reason) == ((), Reason.NONE)


def test_the_original_budget_is_a_preset():
    rule = method("pens-original").selector
    assert (rule.n_sampled, rule.m, rule.first_phase) == (10, 2, 0.8)
    assert method("pens-original", m=1).selector.m == 1
    rule = method("pens").selector
    assert (rule.n_sampled, rule.m, rule.first_phase) == (3, 2, 0.4)


@pytest.mark.parametrize("wrong", [{"n_sampled": 0}, {"m": 1.5}, {"first_phase": -0.1}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pens(**wrong)
