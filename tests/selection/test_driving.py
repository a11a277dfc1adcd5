"""Decisions driven by a callback: everybody is asked for what it is asked, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from authored import Shopper, ThriftyLeader

from sagefl import DecisionError, SageE, SageOS, Selector, drive, make, replay, scoring


def asking(losses: np.ndarray) -> tuple[Any, list[tuple[int, int]]]:
    """A callback on a recorded matrix, and what it was asked."""
    asked: list[tuple[int, int]] = []

    def ask(peer: Any, anchors: np.ndarray) -> np.ndarray:
        asked.extend((peer, int(i)) for i in anchors)
        return losses[peer, anchors]

    return ask, asked


@pytest.mark.parametrize("rule", [SageOS(), SageE(), SageE(screen=8, delta=1e-6), ThriftyLeader(), make("rg")], ids=str)
def test_driving_is_replaying_one_peer_at_a_time(rule: Selector) -> None:
    """The same outcome, and what was asked is what is on the bill: masks are obeyed, nothing is asked twice."""
    rng = np.random.default_rng(3)
    losses = (rng.random((6, 128)) < np.linspace(0.2, 0.7, 6)[:, None]).astype(float)
    ask, asked = asking(losses)
    outcome = drive(rule.begin(range(6), 128, 5), ask)
    assert outcome == replay(rule, losses, 5)
    assert len(asked) == len(set(asked)) == outcome.evaluations


def test_a_rule_that_wants_other_answers_is_refused_before_anybody_is_asked() -> None:
    ask, asked = asking(np.zeros((3, 64)))
    with pytest.raises(
        DecisionError, match=r"latents scored by ce, but `ask` gives labels scored by error: say scoring="
    ):
        drive(SageE(kind="latents", loss="ce").begin(range(3), 64), ask)
    with pytest.raises(DecisionError, match="asks for labels scored by error, but `ask` gives probs scored by ce"):
        drive(SageE().begin(range(3), 64), ask, scoring=scoring("probs", "ce"))
    with pytest.raises(DecisionError, match="more than losses: answer its requests in a loop of your own"):
        drive(Shopper().begin(range(3), 64), ask)
    assert asked == []
    rule, form = SageE(kind="latents", loss="ce"), scoring("latents", "ce")
    assert drive(rule.begin(range(3), 64), ask, scoring=form).anchors == 8


def test_what_a_rule_remembers_is_handed_on_by_the_caller() -> None:
    ask, _ = asking(np.full((3, 64), 0.5))
    rule, state = SageE(gate=True), None
    for _ in range(3):
        state = drive(rule.begin(range(3), 64, state=state), ask).state or state
    assert state is not None
    assert state["gate_probed"] >= 2


@pytest.mark.parametrize("told", [[0.0] * 3, 0.5, [[0.0] * 8]])
def test_losses_of_another_shape_name_the_peer(told: Any) -> None:
    with pytest.raises(DecisionError, match=r"ask\('b', ...\) must give 8 losses, one per anchor, got shape"):
        drive(SageE().begin("abc", 64), lambda peer, at: told if peer == "b" else np.zeros(len(at)))


def test_losses_out_of_bounds_are_refused() -> None:
    with pytest.raises(DecisionError, match="losses must lie in"):
        drive(SageE().begin("abc", 64), lambda _, at: np.full(len(at), 1.5))
