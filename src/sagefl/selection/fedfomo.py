"""FedFomo's choice and weights: how much lower a peer's loss is, per unit of distance to its model.

The rule alone; the paper and our deviations are in `sagefl.methods.fedfomo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .outcome import Exchange, Reason, State
from .ranking import epsilon_greedy, whole
from .requests import ME, Array, Inspect, Peer
from .selector import Deciding, Draws, Hood, Selector, option

__all__ = ["FedFomoRule"]


@dataclass(frozen=True)
class FedFomoRule(Selector):
    """Download some models by affinity, merge those that are better than one's own by first-order weights."""

    summary: ClassVar[str] = "weigh downloaded models by loss gained per distance, drop those that gain nothing"

    downloads: int = option(3, "M: models downloaded a round")
    epsilon: float = option(0.3, "probability that a download explores instead of following the affinity")
    decay: float = option(0.05, "how much epsilon shrinks every round, down to zero")

    def __post_init__(self) -> None:
        whole("downloads", self.downloads)
        if not (0 <= self.epsilon <= 1 and self.decay >= 0):
            raise ValueError(
                f"epsilon must lie in [0, 1] and decay must not be negative, got {self.epsilon}, {self.decay}"
            )

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Download, weigh, merge; `state` is the running affinity of every neighbour tried so far."""
        if not hood.peers:
            return Exchange.none(state=state)
        affinity: dict[Peer, float] = state.get("affinity", {})
        known = {p: affinity.get(p, 0.0) for p in hood.peers}
        epsilon = max(0.0, self.epsilon - self.decay * hood.round)
        pulled = epsilon_greedy(hood.peers, known, self.downloads, epsilon, rng)
        losses = yield Inspect((ME, *pulled), "anchor", "ce")
        distances = yield Inspect(pulled, "anchor", "distance")
        gains = first_order(losses[0], losses[1:], distances)
        kept = state | {"affinity": affinity | {p: known[p] + g for p, g in zip(pulled, gains.tolist(), strict=True)}}
        useful = np.maximum(gains, 0.0)
        if not useful.any():
            return Exchange.none(state=kept)
        weights = {p: w for p, w in zip(pulled, (useful / useful.sum()).tolist(), strict=True) if w > 0}
        return Exchange.merge(tuple(weights), Reason.COMMITTED, weights, state=kept)


def first_order(mine: float, theirs: Array, distances: Array) -> Array:
    """(L(theta_i) - L(theta_j)) / |theta_j - theta_i|, with its sign; 0 for a model that is one's own."""
    gains: Array = np.divide(mine - theirs, distances, out=np.zeros(len(theirs)), where=distances > 0)
    return gains
