"""FedFomo: first-order weights, how much a peer's model lowers my validation loss per step towards it.

M. Zhang, K. Sapra, S. Fidler, S. Yeung, J. M. Alvarez. Personalized Federated Learning with First Order Model
Optimization. ICLR 2021. arXiv:2012.08565. Read: the authors' code (NVlabs/FedFomo).

Established. Download M models, chosen epsilon-greedily by a running affinity (epsilon .3, shrinking by .05 a round, one
draw per download, in the authors' code); w_j = max(0, (L_val(theta_i) - L_val(theta_j)) / |theta_j - theta_i|),
normalised to sum to one; theta_i <- theta_i + sum_j w_j (theta_j - theta_i). The affinity adds up the weights before
clipping, so a harmful model sinks below one never tried.

Ours. There is no server: downloads come from neighbours. Validation is the anchor pool. The baseline theta_i is one's
own model after local training; in the authors' code and the commands of its README it is the one before, and the
trained one is a candidate among the others, so that it keeps a share where here a better peer replaces it. Their
affinity adds a round's weights divided by the size of their sum, ours adds them as they are. Losses are of full
predictors, as published; distance and update concern the shared block, since heads stay local. Models with weight zero
are transferred but not merged; where all are zero the client keeps its own. M = 3 is ours (4 or 9 in its README).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .options import option
from .outcome import Exchange, Reason, State
from .ranking import epsilon_greedy
from .requests import ME, Array, Inspect, Peer
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class FedFomo(Selector):
    """Download some models by affinity, merge those that are better than one's own by first-order weights."""

    id: ClassVar[str] = "fedfomo"
    summary: ClassVar[str] = "Merge models in proportion to the loss they would gain per distance."
    evidence: ClassVar[str] = "M full models on the anchor pool"
    communication: ClassVar[str] = "up to M / M"
    fidelity: ClassVar[str] = (
        "adapted: gains are over one's trained model (its code: over the one before), no server, heads stay local"
    )

    downloads: int = option(3, "models downloaded a round", symbol="M", ge=1)
    epsilon: float = option(0.3, "probability that a download explores instead of following the affinity", ge=0, le=1)
    decay: float = option(0.05, "how much epsilon shrinks every round, down to zero", ge=0)

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
