from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from clusters import config, simulate
from driving import Given, drive

from sagefl.selection import ME, Reason
from sagefl.selection.ocd_fl import NEAREST, TYPICAL, OcdFL, gain
from sagefl.selection.outcome import decode, encode


def told(losses: dict[str, float], mine: float, **readings: dict[str, float]) -> Given:
    return Given(readings={"loss": {ME: mine, **losses}, **readings})


def test_gain_saturates_and_is_never_negative():
    assert gain(np.array([0.5, 1.0, 1.5, 50.0]), 1.0) == pytest.approx([0.0, 0.0, 1 - math.exp(-1), 1.0])


def test_one_pushes_to_those_who_do_clearly_worse():
    # delta = .2, .04, -.5: gains .3297, .0769, 0 against theta = .1.
    answers = told({"a": 1.2, "b": 1.04, "c": 0.5}, 1.0)
    outcome = drive(OcdFL().begin("abc", 0), answers)
    assert (outcome.peers, outcome.direction, outcome.reason) == (("a",), "push", Reason.COMMITTED)
    assert outcome.trace[0].scores == pytest.approx((1 - math.exp(-0.4), 1 - math.exp(-0.08), 0.0))
    assert outcome.reads == {"loss": 3}  # one's own loss is free
    assert drive(OcdFL(theta=0.05).begin("abc", 0), answers).peers == ("a", "b")


def test_the_threshold_is_strict():
    assert drive(OcdFL(theta=0.0).begin("ab", 0), told({"a": 1.0, "b": 1.0 + 1e-9}, 1.0)).peers == ("b",)


def test_whoever_does_worst_sends_nothing():
    outcome = drive(OcdFL().begin("ab", 0), told({"a": 0.1, "b": 0.2}, 3.0))
    assert (outcome.peers, outcome.selected, outcome.reason) == ((), False, Reason.NONE)


def test_few_neighbours():
    assert drive(OcdFL().begin((), 0), Given()).reason is Reason.NONE
    assert drive(OcdFL().begin("a", 0), told({"a": 9.0}, 1.0)).peers == ("a",)


def test_distant_neighbours_must_gain_more():
    losses = {"near": 1.2, "far": 1.2, "here": 1.2}
    answers = told(losses, 1.0, x={"near": 0.3, "far": 0.2 + 2 * TYPICAL, "here": 0.2}, y=dict.fromkeys(losses, 0.5))
    rule, state = OcdFL(energy="distance"), {"x": 0.2, "y": 0.5}
    outcome = drive(rule.begin(tuple(losses), 0, state=state, round=4), answers)
    worth = 1 - math.exp(-0.4)
    energies = ((0.1 / TYPICAL) ** 2, 4.0, (NEAREST / TYPICAL) ** 2)
    assert outcome.trace[0].scores == pytest.approx(tuple(worth / e for e in energies))
    assert outcome.peers == ("near", "here")
    assert outcome.reads == {"loss": 3, "x": 3, "y": 3}


def test_a_place_is_drawn_once_and_kept():
    rule, answers = OcdFL(energy="distance"), told({"a": 1.5}, 1.0, x={"a": 0.0}, y={"a": 0.0})
    first = drive(rule.begin("a", 0, seed=1), answers)
    assert first.trace[0].scores == pytest.approx((1 - math.exp(-1),))  # round 0: nobody has told where it is
    assert all(0 <= first.state[axis] < 1 for axis in "xy")
    again = drive(rule.begin("a", 0, seed=2, round=1, state=decode(encode(first.state))), answers)
    assert again.state == first.state
    alone = drive(rule.begin((), 0, seed=1), Given())
    assert alone.state == first.state  # also whoever is alone in round 0 has a place


@pytest.mark.parametrize("options", [{"theta": -1.0}, {"energy": "solar"}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        OcdFL(**options)


def test_in_the_simulator_models_flow_downhill_and_the_sender_is_charged(tmp_path):
    run = simulate(config("ocd-fl", rounds=3), tmp_path / "run")
    decisions = run.table("decisions")
    assert set(decisions["direction"]) == {"push"}
    assert decisions["merged"].to_list() == decisions["chosen"].list.len().to_list()
    block = 4 * (16 * 24 + 24)
    assert (decisions["model_bytes"] == block * decisions["merged"]).all()
    assert (decisions["control_bytes"] == 4 * decisions["degree"]).all()
    for _, group in decisions.group_by("round"):
        senders = set(group.filter(pl.col("merged") > 0)["client"])
        # Who sends does better than whom it sends to: somebody receives only, and nobody sends to each other.
        links = {(k, j) for k, chosen in group.select("client", "chosen").iter_rows() for j in chosen}
        assert links
        assert len(senders) < 12
        assert not any((j, k) in links for k, j in links)
