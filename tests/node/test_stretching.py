"""Peers with representation probes that stretch their blocks or lie under cover of one huge value: real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attackers import LASTING, peer
from federation import Federation
from test_faults import MALLORY

from sagefl.node import verify
from sagefl.node.loop import Node

LATENTS = {"id": "aq-128", "options": {"kind": "latents", "loss": "ce"}}
UNBOUNDED = {"norm_ratio": 1e9, "norm_growth": 1e9}
TRAINED = {"training": {"max_batches": None, "epochs": 2, "learning_rate": 0.01}}


def _victim(federation: Federation, config: Callable[..., Path], kind: str, rounds: int, **settings: Any) -> Node:
    """alice after so many rounds with an attacker as her only neighbour."""
    with peer(kind, config("mallory", ("alice",), **LASTING)):
        alice = federation.node("alice", ("mallory",), rounds=rounds, method=LATENTS, **TRAINED, **settings)
        assert alice.run() is not None
    return alice


def _stretched(alice: Node) -> float:
    """How many times its initial norm the most stretched layer has."""
    norms = alice.norms
    return max(now / then for now, then in zip(norms._of(alice.learner.kept()), norms._initial, strict=True))


ALONE = {"acceptance": {"share": 0.0}}  # the bounds on norms are to hold without the test after mixing


def test_a_patient_ratchet_comes_to_an_end_at_the_bounds(federation: Federation, config: Callable[..., Path]) -> None:
    """Every block is the victim's own, 2.9 times as large: merge by merge her own history would follow."""
    slowly = {"norm_growth": 4.0, "pace": 0.5}  # so that what she merges is stretched again in between
    alice = _victim(federation, config, "ratchet", 12, exchange=slowly, **ALONE)
    decisions = alice.recorder.directory.table("decisions")
    assert alice.journal.counts[("fault-norm-bound", "mallory")] >= 3
    assert decisions["rejected"].sum() >= 3
    assert _stretched(alice) < 5.0  # blocks end at 4; her own training goes on
    assert alice.learner.finite()
    assert alice.learner.evaluate(last=True).client > 0.8


@pytest.mark.slow
def test_without_the_bounds_the_same_ratchet_goes_on_for_ever(
    federation: Federation, config: Callable[..., Path]
) -> None:
    """The control."""
    alice = _victim(federation, config, "ratchet", 12, exchange=UNBOUNDED, **ALONE)
    assert alice.journal.counts[("fault-norm-bound", "mallory")] == 0
    assert alice.recorder.directory.table("decisions")["merged"].sum() >= 8
    assert _stretched(alice) > 20.0


def test_one_huge_latent_excuses_no_lie(federation: Federation, config: Callable[..., Path]) -> None:
    alice = _victim(federation, config, "one-huge-latent", 3, exchange=UNBOUNDED, **ALONE)
    decisions = alice.recorder.directory.table("decisions")
    assert alice.journal.counts[("fault-latent-mismatch", "mallory")] == 3
    assert decisions["lost"].to_list() == [[MALLORY]] * 3
    assert decisions["merged"].sum() == 0
    assert decisions["rejected"].sum() == 3


@pytest.mark.slow
def test_with_a_tolerance_by_the_largest_latent_the_same_lie_passes(
    federation: Federation, config: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: 1e-3 of 10,000 is 10, and the answers are off by 9."""
    monkeypatch.setattr(verify, "TOLERANCE", 1e-3 * 1e4)
    alice = _victim(federation, config, "one-huge-latent", 3, exchange=UNBOUNDED, **ALONE)
    assert alice.recorder.directory.table("decisions")["merged"].sum() == 3
