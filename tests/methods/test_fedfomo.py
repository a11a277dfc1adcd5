from __future__ import annotations

import numpy as np
import pytest
from driving import Given, drive

from sagefl.selection import ME, Reason
from sagefl.selection.fedfomo import FedFomo, first_order


def world(losses: dict[str, float], distances: dict[str, float], mine: float = 1.0) -> Given:
    return Given(inspections={"ce": {ME: mine, **losses}, "distance": distances})


def test_first_order_weights_by_hand():
    # gains (1 - .5)/2 = .25, (1 - .9)/1 = .1, (1 - 1.5)/1 = -.5: weights .25/.35, .1/.35, none.
    answers = world({"a": 0.5, "b": 0.9, "c": 1.5}, {"a": 2.0, "b": 1.0, "c": 1.0})
    outcome = drive(FedFomo(downloads=3).begin("abc", 8), answers)
    assert outcome.weights == {"a": pytest.approx(0.25 / 0.35), "b": pytest.approx(0.1 / 0.35)}
    assert set(outcome.peers) == {"a", "b"}
    assert set(outcome.inspected) == {"a", "b", "c"}  # all three moved, once
    assert outcome.state["affinity"] == {"a": pytest.approx(0.25), "b": pytest.approx(0.1), "c": pytest.approx(-0.5)}
    assert [r.split for r in answers.asked] == ["anchor", "anchor"]


def test_a_model_at_no_distance_gains_nothing():
    assert first_order(1.0, np.array([0.5, 0.5]), np.array([0.0, 0.5])).tolist() == [0.0, 1.0]


def test_whoever_gains_nothing_keeps_its_own_but_remembers():
    outcome = drive(FedFomo().begin("ab", 8), world({"a": 2.0, "b": 3.0}, {"a": 1.0, "b": 1.0}))
    assert (outcome.peers, outcome.reason) == ((), Reason.NONE)
    assert set(outcome.inspected) == {"a", "b"}
    assert outcome.state["affinity"] == {"a": -1.0, "b": -2.0}


def test_downloads_follow_the_affinity_and_untried_peers_stand_between_good_and_bad():
    answers = world(dict.fromkeys("abcd", 0.5), dict.fromkeys("abcd", 1.0))
    state = {"affinity": {"a": -1.0, "b": 2.0, "c": 1.0}}
    rule = FedFomo(downloads=3, epsilon=0.0)
    outcome = drive(rule.begin("abcd", 8, state=state), answers)
    assert outcome.inspected == ("b", "c", "d")
    assert outcome.state["affinity"] == {"a": -1.0, "b": 2.5, "c": 1.5, "d": 0.5}
    assert state == {"affinity": {"a": -1.0, "b": 2.0, "c": 1.0}}


def test_epsilon_explores_and_shrinks_to_nothing():
    answers = world(dict.fromkeys("abc", 0.5), dict.fromkeys("abc", 1.0))
    state = {"affinity": {"a": 9.0, "b": -1.0, "c": -1.0}}

    def tried(round: int) -> set[str]:
        rule = FedFomo(downloads=1, epsilon=0.9, decay=0.3)
        return {drive(rule.begin("abc", 8, s, round=round, state=state), answers).inspected[0] for s in range(40)}

    assert tried(0) == {"a", "b", "c"}
    assert tried(3) == {"a"}


def test_few_neighbours():
    assert drive(FedFomo().begin((), 8), Given()).reason is Reason.NONE
    only = drive(FedFomo(downloads=3).begin("a", 8), world({"a": 0.5}, {"a": 1.0}))
    assert only.weights == {"a": 1.0}


@pytest.mark.parametrize("wrong", [{"downloads": 0}, {"epsilon": 1.5}, {"decay": -0.1}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedFomo(**wrong)
