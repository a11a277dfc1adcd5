"""DFedMQ-lite: merge the neighbours of the best training quality.

B. Jiang, J. Wu, G. Yue, X. Cui, J. Wang, H. H. Song. DFedMQ: Decentralized Federated Learning Based on Dynamic
Selection Collaboration and Topology Optimization. IEEE Internet of Things Journal 2025. Read: the abstract; neither
text nor code is public.

Established, from the abstract alone (hence "-lite"). Clients are selected dynamically by the
training quality of nodes, on a Watts-Strogatz topology, with a temporary topology per round for the exchange.

Ours. Everything else. Quality is the neighbour's training loss of the round, low is good (`quality=progress`: how
much it fell since last reported; `quality=anchors`: right answers to the receiver's own anchor inputs). The best
k = 2 are merged; the temporary topology is whoever is merged in the round. The Watts-Strogatz graph is a property of
the world, not of the method: run with `topology.kind = ws`. Quality as reported is the same for every receiver, so
the default does not look for *compatible* peers; with `quality=anchors` it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .options import option
from .outcome import Exchange, Reason, Stage, State
from .ranking import best
from .requests import Array, Probe, Read
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class DFedMQLite(Selector):
    """The k neighbours of the best training quality."""

    id: ClassVar[str] = "dfedmq-lite"
    summary: ClassVar[str] = "Merge the neighbours of the best training quality; read from the abstract."
    evidence: ClassVar[str] = "neighbours' training losses (quality=anchors: answers to anchor inputs)"
    communication: ClassVar[str] = "k / k"
    fidelity: ClassVar[str] = "inspired by: only the abstract is public"

    k: int = option(2, "neighbours merged each round", ge=1)
    quality: Literal["loss", "progress", "anchors"] = option(
        "loss",
        "of a neighbour: low training loss (loss), its fall since last time (progress), or right answers on the "
        "receiver's anchors (anchors)",
    )
    anchors: int = option(64, "anchor inputs asked of each neighbour (quality = anchors)", ge=1)

    @property
    def reach(self) -> int:
        """The anchors it asks about."""
        return self.anchors

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Rate the neighbours, merge the best k."""
        if not hood.peers:
            return Exchange.none()
        asked, kept = 0, None
        if self.quality == "anchors":
            asked = min(self.anchors, hood.anchors)
            scores = np.zeros(len(hood.peers))
            if asked:
                scores = 1.0 - np.mean((yield Probe(hood.peers, 0, asked)), axis=1)
        else:
            losses = np.ravel((yield Read(hood.peers, "loss")))
            scores = self._ratings(hood, losses, state)
            kept = {"losses": state.get("losses", {}) | dict(zip(hood.peers, losses.tolist(), strict=True))}
        look = Stage(asked, Reason.COMMITTED, scores=tuple(map(float, scores)))
        return Exchange.merge(best(hood.peers, scores, self.k, rng), Reason.COMMITTED, trace=(look,), state=kept)

    def _ratings(self, hood: Hood, losses: Array, state: State) -> Array:
        """Quality from reported losses; progress is relative, and 0 for a neighbour's first report."""
        if self.quality == "loss":
            return -losses
        before: dict[Any, float] = state.get("losses", {})
        last = np.array([before.get(p, loss) for p, loss in zip(hood.peers, losses, strict=True)])
        fall: Array = np.divide(last - losses, last, out=np.zeros(len(losses)), where=last > 0)
        return fall
