"""SAGE-E-trim: who is dropped, who is drawn, and what it promises. (How rarely it errs: test_betting's dual.)"""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from nulls import PATTERNS, differences, highest_wealth, upper_limit

from sagefl import RandomGossip, Reason, SageETrim, explain, replay
from sagefl.selection.betting import BETS, paired_differences

LEVEL = 0.999


def one_bad(degree: int, bad: int, anchors: int = 64) -> np.ndarray:
    """Everybody right but one."""
    losses = np.zeros((degree, anchors))
    losses[bad] = 1
    return losses


def draws(rule: SageETrim, losses: np.ndarray, seeds: int = 200) -> list[int]:
    return [int(replay(rule, losses, seed).peers[0]) for seed in range(seeds)]


def test_a_bad_peer_is_dropped_and_the_others_are_drawn_uniformly() -> None:
    rule = SageETrim(stop="none")
    chosen = draws(rule, one_bad(5, 3))
    counts = np.bincount(chosen, minlength=5)
    assert counts[3] == 0
    assert (np.abs(np.delete(counts, 3) - 50) < 4 * np.sqrt(200 * 0.25 * 0.75)).all()
    outcome = replay(rule, one_bad(5, 3))
    assert (outcome.reason, outcome.selected) == (Reason.CERTIFIED, True)


def test_whoever_is_dropped_has_a_wealth_on_the_other_side() -> None:
    losses = np.round(np.random.default_rng(1).random((6, 128)) * np.linspace(0.5, 1.4, 6)[:, None]).clip(0, 1)
    outcome = replay(SageETrim(stop="none"), losses)
    y = paired_differences(losses)
    expected = np.log(np.maximum(highest_wealth(-y[None])[0], 1))
    assert outcome.trace[-1].wealth == pytest.approx(expected)
    assert outcome.trace[-1].threshold == pytest.approx(log(6 / 0.1))
    dropped = set(np.flatnonzero(expected >= log(50)))
    assert 0 < len(dropped) < 5
    assert not dropped & set(draws(SageETrim(stop="none"), losses, 60))


def test_nobody_dropped_is_exactly_gossip() -> None:
    losses = np.ones((5, 40))
    for seed in range(20):
        trimmed, gossip = replay(SageETrim(), losses, seed), replay(RandomGossip(), losses, seed)
        assert (trimmed.peers, trimmed.selected) == (gossip.peers, False)
        assert trimmed.reason == Reason.COST
    assert replay(SageETrim(stop="none"), losses).reason == Reason.EXHAUSTED


def test_two_peers_one_left() -> None:
    outcome = replay(SageETrim(), one_bad(2, 0))
    assert (outcome.peers, outcome.reason, outcome.trace[-1].fired) == ((1,), Reason.CERTIFIED, "certified")
    assert outcome.anchors == 8


def test_should_all_be_dropped_the_least_suspicious_stays() -> None:
    """Peers 0 and 2 are far worse at first, then peer 1 for long, all within one look: everybody has been certified."""
    losses = np.zeros((3, 100))
    losses[[0, 2], :12] = losses[1, 12:] = 1
    y = paired_differences(losses)
    assert (highest_wealth(-y[None])[0] >= 2 / 0.1).all()
    now = np.array([np.mean([np.prod(1 - g * row) for g in BETS]) for row in y])
    assert now[0] == now[2] < now[1]
    outcome = replay(SageETrim(first=100, stop="none"), losses)
    assert (outcome.reason, outcome.trace[-1].fired) == (Reason.CERTIFIED, "certified")
    assert set(draws(SageETrim(first=100, stop="none"), losses, 40)) == {0, 2}


def test_the_predictive_stop_weighs_what_dropping_one_of_many_gains() -> None:
    """Dropping one bad peer of many lowers the mean risk little: at the same price it pays for few, not for many."""
    few, many = one_bad(3, 0), one_bad(12, 0)
    few[0, ::2] = many[0, ::2] = 0
    assert replay(SageETrim(probe_cost=1e-3), few).reason == Reason.CERTIFIED
    assert replay(SageETrim(probe_cost=1e-3), many).reason == Reason.COST
    assert replay(SageETrim(probe_cost=0), many).reason == Reason.CERTIFIED


def test_voi_stops_where_not_even_the_best_peer_could_pay() -> None:
    alike = np.tile(np.round(np.random.default_rng(2).random(128)), (4, 1))
    assert replay(SageETrim(stop="voi", looks="stages", probe_cost=1e-2), alike).reason == Reason.COST
    assert replay(SageETrim(stop="voi", looks="stages", probe_cost=1e-6), alike).reason == Reason.EXHAUSTED


def test_losses_of_any_bound() -> None:
    losses = one_bad(4, 1)
    one, five = replay(SageETrim(), losses, 3), replay(SageETrim(loss_bound=5, probe_cost=1e-2), 5 * losses, 3)
    assert (one.peers, one.evaluations, one.reason) == (five.peers, five.evaluations, five.reason)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_survivors_are_on_average_no_worse_than_a_random_draw(name: str) -> None:
    """The promise: with one clearly worse peer, the mean true risk of the survivors is at most R_RG."""
    rng, degree = np.random.default_rng(3), 5
    base = PATTERNS[name](400, degree, 128, rng)
    worse = np.maximum(base[:, :1], rng.random((400, 1, 128)) < 0.4)
    losses = np.concatenate([worse, base[:, 1:]], axis=1)
    dropped = highest_wealth(-differences(losses)) >= degree / 0.1
    false = int(dropped[:, 1:].any(axis=1).sum())
    assert upper_limit(false, 400, LEVEL) < 0.1
    risks = losses.mean(axis=(0, 2))  # of all worlds together, close to the true ones
    kept = [risks[~row].mean() if not row.all() else risks.mean() for row in dropped]
    assert np.mean(kept) <= risks.mean() + 1e-3
    assert dropped[:, 0].mean() > (0.02 if name == "independent .1" else 0)


def test_the_fast_dual_is_the_selectors() -> None:
    losses = PATTERNS["independent .5"](30, 4, 64, np.random.default_rng(4)) * np.array([[1], [1], [1], [0.2]])
    for seed, x in enumerate(losses):
        expected = np.flatnonzero(highest_wealth(-differences(x[None]))[0] >= 4 / 0.1)
        trace = replay(SageETrim(first=1, step=1, stop="none"), x, seed).trace
        assert trace[-1].wealth is not None
        found = np.flatnonzero(np.array(trace[-1].wealth) >= log(40))
        assert found.tolist() == expected.tolist()


def test_words_say_worse_than_a_random_draw() -> None:
    names = ["ada", "bob", "cyd", "dan"]
    told = explain(replay(SageETrim(stop="none"), one_bad(4, 2), peers=names), names)
    assert "1 certified worse than a random draw (cyd)" in told[-2]
    assert told[-2].endswith("no anchors left, so draw among the others.")
    assert "a random draw among the 3 of 4 not certified worse than a random draw" in told[-1]
    early = explain(replay(SageETrim(stop="none"), np.ones((4, 40)), peers=names), names)
    assert "needed to prove a peer worse than a random draw; ask on." in early[0]
    alike = explain(replay(SageETrim(), np.ones((4, 40)), peers=names), names)
    assert alike[-2].endswith("more evidence is not expected to pay, so gossip.")
    assert "a random draw, because more evidence is not expected to pay" in alike[-1]
    two = explain(replay(SageETrim(), one_bad(2, 0), peers=names[:2]), names[:2])
    assert two[-2].endswith("1 certified worse than a random draw (ada); nobody else is left to drop.")
