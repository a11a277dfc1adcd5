"""D-PSGD's mixing: everybody averages with all neighbours, under Metropolis-Hastings weights.

The rule alone; the paper and our deviations are in `sagefl.methods.d_psgd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .requests import Read
from .selector import Deciding, Draws, Hood, Selector

__all__ = ["DPSGDRule"]


@dataclass(frozen=True)
class DPSGDRule(Selector):
    """All active neighbours, weights 1 / (1 + max(d_i, d_j))."""

    summary: ClassVar[str] = "average with every neighbour under Metropolis-Hastings weights"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the neighbours' degrees; the weights are symmetric, so the mixing matrix is doubly stochastic."""
        if not hood.peers:
            return Exchange.none()
        degrees = yield Read(hood.peers, "degree")
        mine = len(hood.peers)
        weights = {p: 1.0 / (1.0 + max(mine, int(d))) for p, d in zip(hood.peers, degrees, strict=True)}
        return Exchange.merge(hood.peers, Reason.COMMITTED, weights, selected=False)
