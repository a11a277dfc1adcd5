from __future__ import annotations

from math import log

import numpy as np
import pytest
from driving import Given, drive

from sagefl.selection import ME, Reason
from sagefl.selection.federico_lite import FLOOR, FedericoLite, responsibilities


def test_responsibilities_by_hand():
    # Likelihoods 1 and 1/3 at even shares: 3/4, 1/4. At shares 1/4, 3/4 they are even.
    losses = np.array([[0.0], [log(3)]])
    assert responsibilities(np.array([0.5, 0.5]), losses).ravel() == pytest.approx([0.75, 0.25])
    assert responsibilities(np.array([0.25, 0.75]), losses).ravel() == pytest.approx([0.5, 0.5])
    far = responsibilities(np.array([0.5, 0.5]), np.array([[900.0, 0.0], [0.0, 900.0]]))
    assert far.tolist() == [[0.0, 1.0], [1.0, 0.0]]  # no overflow


def test_one_e_step_by_hand():
    # Even shares 1/2, 1/2. Two samples: r(a) = 1/4 and 3/4, mean 1/2; with a third of 3/4: mean 7/12.
    third = log(3)
    losses = {ME: [0.0, third, third], "a": [third, 0.0, 0.0]}
    outcome = drive(FedericoLite(momentum=0.5).begin("a", 3), Given(inspections={"losses": losses}))
    share = 0.5 * 0.5 + 0.5 * 7 / 12
    assert outcome.weights == {"a": pytest.approx(share)}
    assert outcome.state["pi"] == {ME: pytest.approx(1 - share), "a": pytest.approx(share)}


def test_models_not_asked_keep_their_share_and_weights_are_over_those_pulled():
    state = {"pi": {ME: 0.2, "a": 0.4, "b": 0.3, "c": 0.1}}
    losses = {ME: [1.0], "a": [1.0], "b": [1.0]}
    rule = FedericoLite(downloads=2, epsilon=0.0)
    outcome = drive(rule.begin("abc", 1, state=state), Given(inspections={"losses": losses}))
    assert set(outcome.inspected) == {"a", "b"}
    assert outcome.state["pi"] == pytest.approx(state["pi"])  # equal losses say nothing new
    assert outcome.weights == {"a": pytest.approx(0.4 / 0.9), "b": pytest.approx(0.3 / 0.9)}
    assert sum(outcome.state["pi"].values()) == pytest.approx(1)


def test_a_hopeless_model_loses_its_share_but_can_come_back():
    answers = Given(inspections={"losses": {ME: [0.0], "a": [0.0], "b": [50.0]}})
    state = None
    for round in range(60):
        state = drive(FedericoLite().begin("ab", 1, round, round=round, state=state), answers).state
    assert state["pi"]["a"] > 0.4
    assert 0.5 * FLOOR < state["pi"]["b"] < 10 * FLOOR
    back = Given(inspections={"losses": {ME: [50.0], "a": [50.0], "b": [0.0]}})
    for round in range(3):
        state = drive(FedericoLite().begin("ab", 1, round, round=round, state=state), back).state
    assert state["pi"]["b"] > 0.8


def test_neighbours_that_come_and_go():
    state = {"pi": {ME: 0.5, "gone": 0.5}}
    answers = Given(inspections={"losses": {ME: [1.0], "new": [1.0]}})
    outcome = drive(FedericoLite().begin(["new"], 1, state=state), answers)
    assert outcome.weights == {"new": pytest.approx(0.5)}  # even share 1/2 beside one's own 1/2
    assert outcome.state["pi"]["gone"] == 0.5
    assert drive(FedericoLite().begin((), 1, state=state), answers).reason is Reason.NONE
    assert state == {"pi": {ME: 0.5, "gone": 0.5}}


def test_the_samples_are_the_anchors_unless_told_otherwise():
    for split in ("anchor", "train"):
        answers = Given(inspections={"losses": {ME: [1.0], "a": [1.0]}})
        drive(FedericoLite(split=split).begin("a", 1), answers)
        assert answers.asked[0].split == split


@pytest.mark.parametrize("wrong", [{"downloads": 0}, {"epsilon": -0.1}, {"momentum": 1.0}, {"split": "eval"}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedericoLite(**wrong)
