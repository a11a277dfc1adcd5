"""Peers with representation probes that stretch their blocks or lie under cover of one huge value: real processes.

So is their victim: what became of it is read from its events log and run folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attackers import LASTING, peer
from processes import Left, lived
from test_faults import MALLORY

LATENTS = {"id": "aq-128", "options": {"kind": "latents", "loss": "ce"}}
UNBOUNDED = {"norm_ratio": 1e9, "norm_growth": 1e9}
TRAINED = {"training": {"max_batches": None, "epochs": 2, "learning_rate": 0.01}}


@pytest.fixture
def victim(config: Callable[..., Path]) -> Callable[..., Left]:
    """What is left of alice after so many rounds with an attacker as her only neighbour."""

    def live(kind: str, rounds: int, first: str = "", **settings: Any) -> Left:
        with peer(kind, config("mallory", ("alice",), **LASTING)):
            path = config("alice", ("mallory",), rounds=rounds, method=LATENTS, **TRAINED, **settings)
            return lived(path, first)

    return live


def _stretched(alice: Left) -> float:
    """How many times its initial norm the most stretched layer has."""
    norms = alice.node.norms
    now = norms._of(alice.node.learner.kept())
    return max(norm / then for norm, then in zip(now, norms._initial, strict=True))


ALONE = {"acceptance": {"share": 0.0}}  # the bounds on norms are to hold without the test after mixing


def test_a_patient_ratchet_comes_to_an_end_at_the_bounds(victim: Callable[..., Left]) -> None:
    """Every block is the victim's own, 2.9 times as large: merge by merge her own history would follow."""
    slowly = {"norm_growth": 4.0, "pace": 0.5}  # so that what she merges is stretched again in between
    alice = victim("ratchet", 12, exchange=slowly, **ALONE)
    assert alice.blamed["fault-norm-bound", "mallory"] >= 3
    assert alice.decisions["rejected"].sum() >= 3
    assert _stretched(alice) < 5.0  # blocks end at 4; her own training goes on
    assert alice.node.learner.finite()
    assert alice.node.learner.evaluate(last=True).client > 0.8


@pytest.mark.slow
def test_without_the_bounds_the_same_ratchet_goes_on_for_ever(victim: Callable[..., Left]) -> None:
    """The control."""
    alice = victim("ratchet", 12, exchange=UNBOUNDED, **ALONE)
    assert alice.blamed["fault-norm-bound", "mallory"] == 0
    assert alice.decisions["merged"].sum() >= 8
    assert _stretched(alice) > 20.0


def test_one_huge_latent_excuses_no_lie(victim: Callable[..., Left]) -> None:
    alice = victim("one-huge-latent", 3, exchange=UNBOUNDED, **ALONE)
    assert alice.blamed["fault-latent-mismatch", "mallory"] == 3
    assert alice.decisions["lost"].to_list() == [[MALLORY]] * 3
    assert alice.decisions["merged"].sum() == 0
    assert alice.decisions["rejected"].sum() == 3


@pytest.mark.slow
def test_with_a_tolerance_by_the_largest_latent_the_same_lie_passes(victim: Callable[..., Left]) -> None:
    """The control: 1e-3 of 10,000 is 10, and the answers are off by 9."""
    by_the_largest = "from sagefl.node import verify; verify.TOLERANCE = 1e-3 * 1e4"
    alice = victim("one-huge-latent", 3, by_the_largest, exchange=UNBOUNDED, **ALONE)
    assert alice.blamed["fault-latent-mismatch", "mallory"] == 0
    assert alice.decisions["merged"].sum() == 3
