from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from clusters import config, simulate
from driving import Given, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.selection import ME, Reason
from sagefl.selection.ocd_fl import LONGEST, NEAREST, OcdFL, chosen, gain
from sagefl.selection.outcome import decode, encode
from sagefl.selection.selector import Draws


def told(losses: dict[str, float], mine: float, **readings: dict[str, float]) -> Given:
    return Given(readings={"loss": {ME: mine, **losses}, **readings})


def test_gain_saturates_and_is_never_negative():
    assert gain(np.array([0.5, 1.0, 1.5, 50.0]), 1.0) == pytest.approx([0.0, 0.0, 1 - math.exp(-1), 1.0])


def literal(gains: list[float], energies: list[float], theta: float, start: list[float]) -> list[float]:
    """The authors' objective (`PeerSelectionModel`) and its ascent, by torch's own optimiser and gradients."""
    w = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    g, e = torch.tensor(gains, dtype=torch.float64), torch.tensor(energies, dtype=torch.float64)
    adam = torch.optim.Adam([w], lr=0.1, maximize=True)
    before, quiet = None, 0
    for _ in range(1000):
        adam.zero_grad()
        reward = torch.dot(torch.sigmoid(w), g) / torch.dot(torch.sigmoid(w), e) + theta * w.norm()
        reward.backward()
        adam.step()
        if before is not None and abs(reward.item() - before) < 1e-4:
            if quiet >= 3:
                break
            quiet += 1
        before = reward.item()
    return torch.sigmoid(w).tolist()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), theta=st.sampled_from([0.0, 0.02, 0.1, 1.0]))
def test_the_set_is_that_of_a_literal_transcription(seed, n, theta):
    rng = np.random.default_rng(seed)  # plain draws: simple numbers settle where most ascents do
    gains, energies, start = rng.random(n), 0.05 + 0.95 * rng.random(n), rng.random(n)
    ours = chosen(gains, energies, theta, start)
    assert ours == pytest.approx(literal(gains.tolist(), energies.tolist(), theta, start.tolist()), abs=1e-4)


def test_the_set_leaves_out_those_who_lower_its_gain_per_energy():
    # Gains .63, .08, 0: the last two only dilute the ratio, and Adam drives them below one half.
    answers = told({"a": 1.5, "b": 1.04, "c": 0.5}, 1.0)
    outcome = drive(OcdFL().begin("abc", 0), answers)
    assert (outcome.peers, outcome.direction, outcome.reason) == (("a",), "push", Reason.COMMITTED)
    assert outcome.reads == {"loss": 3}  # one's own loss is free
    assert all((score > 0.5) == (peer == "a") for peer, score in zip("abc", outcome.trace[0].scores, strict=True))


def test_whoever_does_worst_has_nothing_to_weigh_and_serves_all():
    """All gains are 0, so only theta |w| is left: as released, every weight grows from its positive start."""
    outcome = drive(OcdFL().begin("ab", 0), told({"a": 0.1, "b": 0.2}, 3.0))
    assert outcome.peers == ("a", "b")


def test_few_neighbours():
    assert drive(OcdFL().begin((), 0), Given()).reason is Reason.NONE
    assert drive(OcdFL().begin("a", 0), told({"a": 9.0}, 1.0)).peers == ("a",)


def test_distant_neighbours_must_gain_more():
    losses = {"near": 1.2, "far": 1.2, "here": 1.2}
    answers = told(losses, 1.0, x={"near": 0.3, "far": 0.9, "here": 0.2}, y=dict.fromkeys(losses, 0.5))
    rule, state = OcdFL(energy="distance"), {"x": 0.2, "y": 0.5}
    outcome = drive(rule.begin(tuple(losses), 0, state=state, round=4), answers)
    energies = [(0.1 / LONGEST) ** 2, (0.7 / LONGEST) ** 2, (NEAREST / LONGEST) ** 2]
    start = Draws(0)("weights").random(3)
    assert outcome.trace[0].scores == pytest.approx(tuple(literal([1 - math.exp(-0.4)] * 3, energies, 0.02, start)))
    assert outcome.peers == ("here",)  # the cheapest link alone has the best ratio
    assert outcome.reads == {"loss": 3, "x": 3, "y": 3}


def test_a_place_is_drawn_once_and_kept():
    rule, answers = OcdFL(energy="distance"), told({"a": 1.5}, 1.0, x={"a": 0.0}, y={"a": 0.0})
    first = drive(rule.begin("a", 0, seed=1), answers)
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
    assert decisions["merged"].sum() > 0
