from __future__ import annotations

import numpy as np
import pytest
from driving import Given, drive

from sagefl.selection import Probe, RandomGossip, Reason, VanillaSage, replay
from sagefl.selection.hoeffding_race import HoeffdingRace
from sagefl.selection.theory import radius


def zeros_and_ones(risks: dict[str, float], anchors: int = 128) -> dict[str, np.ndarray]:
    """Losses whose mean over every stage of 16, 32, 64, 128 is the risk (a multiple of 1/16)."""
    return {p: np.tile(np.arange(16) < round(16 * r), anchors // 16).astype(float) for p, r in risks.items()}


def race(risks: dict[str, float], rule: HoeffdingRace | None = None, seed: int = 0):
    answers = Given(probes=zeros_and_ones(risks))
    return drive((rule or HoeffdingRace()).begin(list(risks), 128, seed), answers), answers


def test_a_race_by_hand():
    # d = 3, L = 4: 2r = .828, .585, .414, .293. b is out at 32 (.6875 > .585), c at 128 (.375 > .293).
    widths = [2 * radius(m, 3) for m in (16, 32, 64, 128)]
    assert widths == pytest.approx([0.8277, 0.5853, 0.4138, 0.2926], abs=1e-4)
    outcome, answers = race({"a": 0.0, "b": 0.6875, "c": 0.375})
    assert (outcome.peers, outcome.reason, outcome.selected) == (("a",), Reason.CERTIFIED, True)
    assert [(r.peers, r.start, r.stop) for r in answers.asked if isinstance(r, Probe)] == [
        (("a", "b", "c"), 0, 16),
        (("a", "b", "c"), 16, 32),
        (("a", "c"), 32, 64),
        (("a", "c"), 64, 128),
    ]
    assert outcome.evaluations == 3 * 32 + 2 * 96
    assert [s.fired for s in outcome.trace] == ["continue", "continue", "continue", "certified"]
    assert [s.width for s in outcome.trace] == pytest.approx(widths)  # of all that started, to the end
    assert outcome.trace[-1].risks == (0.0, 0.6875, 0.375)
    assert outcome.trace[-1].gap == 0.375


def test_several_survivors_gossip_among_themselves_or_commit():
    risks = {"a": 0.25, "b": 0.3125, "c": 1.0}
    drawn = {race(risks, seed=seed)[0].peers[0] for seed in range(30)}
    assert drawn == {"a", "b"}
    outcome, _ = race(risks)
    assert (outcome.reason, outcome.selected, outcome.trace[-1].fired) == (Reason.EXHAUSTED, False, "exhausted")
    outcome, _ = race(risks, HoeffdingRace(finish="commit"))
    assert (outcome.peers, outcome.reason, outcome.trace[-1].fired) == (("a",), Reason.COMMITTED, "committed")


def test_ties_are_drawn_or_go_to_the_lowest_index():
    tied = {"a": 0.3125, "b": 0.25, "c": 0.25}
    for ties, expected in (("random", {"b", "c"}), ("lowest-index", {"b"})):
        rule = HoeffdingRace(finish="commit", ties=ties)
        assert {race(tied, rule, seed=seed)[0].peers[0] for seed in range(30)} == expected


def test_with_nobody_dropped_the_draw_is_that_of_rg():
    for seed in range(8):
        outcome, _ = race({"a": 0.25, "b": 0.25, "c": 0.25}, seed=seed)
        assert outcome.peers == drive(RandomGossip().begin("abc", 0, seed), Given()).peers


def test_nobody_one_and_too_few_anchors():
    rule = HoeffdingRace()
    assert drive(rule.begin((), 128), Given()).reason is Reason.NONE
    only = drive(rule.begin(["p"], 128), Given())
    assert (only.peers, only.reason, only.evaluations) == (("p",), Reason.ONLY, 0)
    assert drive(rule.begin("abc", 15), Given()).reason is Reason.NO_ANCHORS


def test_wherever_vanilla_sage_certifies_the_race_certifies_the_same_peer_for_less():
    rng = np.random.default_rng(0)
    certified = cheaper = 0
    for seed in range(150):
        losses = (rng.random((6, 128)) < rng.choice([0.05, 0.5, 0.9], size=(6, 1))).astype(float)
        vanilla, racing = replay(VanillaSage(), losses, seed), replay(HoeffdingRace(), losses, seed)
        assert racing.evaluations <= vanilla.evaluations
        if vanilla.reason is Reason.CERTIFIED:
            assert (racing.peers, racing.reason) == (vanilla.peers, Reason.CERTIFIED)
            certified += 1
            cheaper += racing.evaluations < vanilla.evaluations
    assert certified > 20
    assert cheaper > 10


def test_a_certified_winner_is_the_best_except_with_probability_delta():
    rng = np.random.default_rng(1)
    risks = np.array([[0.1], [0.42], [0.45], [0.7]])
    outcomes = [replay(HoeffdingRace(), (rng.random((4, 128)) < risks).astype(float), s) for s in range(200)]
    winners = [o.peers[0] for o in outcomes if o.reason is Reason.CERTIFIED]
    assert winners.count(0) > 100  # a gap of .32 at 2r = .30 is certified in most races
    assert len(winners) - winners.count(0) <= 0.1 * 200


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="finish"):
        HoeffdingRace(finish="sprint")  # type: ignore[arg-type]
