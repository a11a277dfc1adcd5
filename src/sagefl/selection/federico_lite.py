"""FedeRiCo-lite: weigh models by how many of one's own samples each explains best (the E-step of FedeRiCo).

Y. Sui, J. Wen, Y. Lau, B. L. Ross, J. C. Cresswell. Find Your Friends: Personalized Federated Learning with the Right
Collaborators. FL-NeurIPS 2022. arXiv:2210.06597.

Established. Expectation-maximisation over clients' models: the E-step gives model j the responsibility r_n(j),
proportional to pi_i(j) exp(-loss_j(x_n)), for sample n of client i; pi_i is the mean responsibility. Only some models
are asked a round, epsilon-greedily. The M-step sends weighted gradients back to the owners of the models, and
predictions are ensembles weighed by pi.

Lite: the E-step only. Nobody trains for others and nobody predicts as an ensemble; instead the client averages its own
and the pulled shared blocks with weights pi, normalised over them.

Ours. pi is a moving average (half old, half new); the models asked keep together the share they had, so that those not
asked keep theirs, and no share falls below 1e-6. Neighbours never asked start with an even share, as oneself does. The
samples are the anchor pool: on its own training samples a client's own model explains everything (`split="train"`).
M = 3 and epsilon = .3 are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .options import option
from .outcome import Exchange, Reason, State
from .ranking import epsilon_greedy
from .requests import ME, Array, Inspect, Peer, Split
from .selector import Deciding, Draws, Hood, Selector

__all__ = ["FedericoLite", "responsibilities"]

FLOOR = 1e-6  # a peer's share never vanishes, or it could not come back


@dataclass(frozen=True)
class FedericoLite(Selector):
    """Pull some models by their share pi, update the shares by their responsibilities, merge by the shares."""

    id: ClassVar[str] = "federico-lite"
    summary: ClassVar[str] = "Average models in proportion to the samples they explain (E-step of FedeRiCo only)."
    citation: ClassVar[str] = (
        "Y. Sui, J. Wen, Y. Lau, B. L. Ross, J. C. Cresswell. Find Your Friends: Personalized Federated Learning with "
        "the Right Collaborators. FL-NeurIPS 2022. arXiv:2210.06597"
    )
    evidence: ClassVar[str] = "per-sample losses of M full models on the anchor pool"
    communication: ClassVar[str] = "M / M"

    downloads: int = option(3, "models pulled a round", symbol="M", ge=1)
    epsilon: float = option(0.3, "probability that a pull explores instead of following the shares", ge=0, le=1)
    momentum: float = option(0.5, "how much of the old share is kept in the moving average", ge=0, lt=1)
    split: Split = option("anchor", "samples that are explained")

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
