"""FedeRiCo-lite's choice and weights: the E-step, which model explains which of my samples.

The rule alone; the paper and what "lite" leaves out are in `sagefl.methods.federico_lite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .outcome import Exchange, Reason, State
from .ranking import epsilon_greedy, whole
from .requests import ME, Array, Inspect, Peer, Split
from .selector import Deciding, Draws, Hood, Selector, option
from .staged import one_of

__all__ = ["FedericoLiteRule", "responsibilities"]

FLOOR = 1e-6  # a peer's share never vanishes, or it could not come back


@dataclass(frozen=True)
class FedericoLiteRule(Selector):
    """Pull some models by their share pi, update the shares by their responsibilities, merge by the shares."""

    summary: ClassVar[str] = "weigh models by how many of one's own samples they explain best"

    downloads: int = option(3, "M: models pulled a round")
    epsilon: float = option(0.3, "probability that a pull explores instead of following the shares")
    momentum: float = option(0.5, "how much of the old share is kept in the moving average")
    split: Split = option("anchor", "samples that are explained")

    def __post_init__(self) -> None:
        whole("downloads", self.downloads)
        one_of("split", self.split, ("anchor", "train"))
        if not (0 <= self.epsilon <= 1 and 0 <= self.momentum < 1):
            raise ValueError(
                f"epsilon must lie in [0, 1] and momentum in [0, 1), got {self.epsilon} and {self.momentum}"
            )

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """One E-step; `state` holds the shares pi of oneself and of every neighbour met so far."""
        if not hood.peers:
            return Exchange.none(state=state)
        shares = self.shares(hood, state)
        pulled = epsilon_greedy(hood.peers, shares, self.downloads, self.epsilon, rng)
        models = (ME, *pulled)
        losses = yield Inspect(models, self.split, "losses")
        prior = np.array([shares[p] for p in models])
        explained = responsibilities(prior, losses).mean(axis=1)
        # The models asked keep, together, the share they had; how it is split among them moves.
        posterior = self.momentum * prior + (1 - self.momentum) * prior.sum() * explained
        shares |= dict(zip(models, np.maximum(posterior, FLOOR).tolist(), strict=True))
        total = sum(shares[p] for p in models)
        weights = {p: shares[p] / total for p in pulled}
        return Exchange.merge(pulled, Reason.COMMITTED, weights, state={"pi": state.get("pi", {}) | shares})

    def shares(self, hood: Hood, state: State) -> dict[Peer, float]:
        """pi over oneself and the active neighbours, summing to one; those never met get an even share."""
        known, models = state.get("pi", {}), (ME, *hood.peers)
        raw = {p: known.get(p, 1.0 / len(models)) for p in models}
        total = sum(raw.values())
        return {p: share / total for p, share in raw.items()}


def responsibilities(shares: Array, losses: Array) -> Array:
    """r_n(j), proportional to pi(j) exp(-loss_j(x_n)) and summing to one over the models j (rows)."""
    logs = np.log(shares)[:, None] - losses
    weights = np.exp(logs - logs.max(axis=0))
    normal: Array = weights / weights.sum(axis=0)
    return normal
