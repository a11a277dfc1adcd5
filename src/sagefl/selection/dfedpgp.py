"""DFedPGP's choice of peers: k uniformly drawn out-neighbours to push to.

The rule alone; the paper, our deviations, the push-sum exchange and the alternating training are in
`sagefl.methods.dfedpgp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .ranking import sample
from .selector import Deciding, Draws, Hood
from .uniform_neighbours import UniformNeighboursRule

__all__ = ["DFedPGPRule"]


@dataclass(frozen=True)
class DFedPGPRule(UniformNeighboursRule):
    """Draw k out-neighbours: a directed graph that changes every round."""

    summary: ClassVar[str] = "push to k uniformly drawn out-neighbours, no evidence"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Draw k and push."""
        yield from ()
        if not hood.peers:
            return Exchange.none()
        return Exchange(sample(hood.peers, self.k, rng), False, Reason.UNIFORM, direction="push")
