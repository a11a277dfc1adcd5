"""RG: one uniformly drawn neighbour, no evidence. The outside option every other rule is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class RandomGossip(Selector):
    """Uniform random gossip."""

    id: ClassVar[str] = "rg"
    summary: ClassVar[str] = "one uniformly drawn neighbour, no evidence"
    fidelity: ClassVar[str] = "as published: the SAGE paper's baseline"
    evidence: ClassVar[str] = "none"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Draw one neighbour at random."""
        yield from ()
        if not hood.peers:
            return Exchange.none()
        return Exchange.gossip(rng.gossip(hood), Reason.UNIFORM)
