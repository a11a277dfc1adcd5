"""PFedDST: pull from the peers that a score of loss, task similarity and recency ranks highest; train in two phases.

M. Fan, K. Li, T. Zhang, Q. Tian, B. Geng. PFedDST: Personalized Federated Learning with Decentralized Selection
Training. IJCNN 2025. arXiv:2502.07750. Read: abstract and introduction of the arXiv page (v2), and two public summaries
of the whole text; no code is public.

Established. Models have a shared extractor and a personal header. A client scores peers by S = s_p (a s_l - s_d + c):
the loss disparity s_l is the loss of *its own* model on the *peer's* data, high where there is much to learn from that
peer; s_d is the distance of the headers by their cosine, low for similar tasks; s_p is low for a peer chosen lately.
It aggregates the extractors of the highest and trains in two phases, one part at a time.

Ours. Data never move, and no model moves to be scored: a peer probes its neighbours with its own anchors (class
probabilities, clipped cross-entropy in [0, 1]), and tells each what its answers came to; so s_l is of the model of the
round before, and 0 until a peer has told. It is paid for as evaluations and control bytes, so that k models are
transferred, not d. s_d = 1 - cos(head_i, head_j), heads are read from all neighbours and counted as control bytes.
s_p = 1 - exp(-rate (t - last)), 1 for a peer never chosen. a = c = 1, rate = .5 and k = 2 are ours, the paper's values
could not be read; k = 2 gives the CommOH of 1.980 that the SAGE paper reports. Equal scores are broken at random.

The printed order of the phases is extractor, then header. There the header is last fitted to an extractor that merging
replaces at once, and everybody's accuracy after merging collapses: of clients' own data .46 against .83 of plain
training (8 clients of the embedded data, 12 rounds of gossip; .76 before merging). `first=head` fits the header to the
merged extractor and then trains the extractor for it: .85 after merging. It is the default, `first=body` the printed
order. `alternate=false` trains plainly, as the rules SAGE is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..learning.training import Alternating, Half, LocalTraining
from ..selection import ME, Deciding, Draws, Exchange, Hood, Probe, Read, Reason, Selector, State, option
from ..selection.ranking import best, cosines
from ..selection.requests import Array, Peer
from ..selection.scoring import Scoring, scoring
from ..selection.theory import SCHEDULE
from .base import Method


@dataclass(frozen=True)
class PFedDSTRule(Selector):
    """Top k by S = s_p (a s_l - s_d + c)."""

    k: int = option(2, "peers merged a round", ge=1)
    a: float = option(1.0, "weight of the loss score s_l: my model's loss on the peer's data")
    c: float = option(1.0, "constant that keeps the score positive")
    rate: float = option(
        0.5, "how fast a chosen peer becomes eligible again: s_p = 1 - exp(-rate * rounds since)", gt=0
    )
    anchors: int = option(SCHEDULE[-1], "anchors a neighbour's loss is measured on, at most", ge=1)

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        """Class probabilities by cross-entropy."""
        return (scoring("probs", "ce"),)

    @property
    def reach(self) -> int:
        """The anchors it asks about."""
        return self.anchors

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the heads and what peers say of my model, take the top k; tell them what theirs is worth to me.

        `state` holds the round each peer was last chosen in, and for each the loss of its model on my anchors.
        """
        if not hood.peers:
            return Exchange.none(state=state)
        mine, *theirs = yield Read((ME, *hood.peers), "head")
        told = yield Read(hood.peers, loss_of(hood.me))
        last = state.get("last", {})
        since = np.array([hood.round - last[p] if p in last else np.inf for p in hood.peers])
        losses = np.array([float(np.ravel(t)[0]) for t in told])
        scores = self.scores(losses, 1.0 - cosines(mine, theirs), since)
        chosen = best(hood.peers, scores, self.k, rng)
        kept: State = {**state, "last": last | dict.fromkeys(chosen, hood.round)}
        if asked := min(self.anchors, hood.anchors):
            answers = yield Probe(hood.peers, 0, asked, self.scoring)
            kept |= {loss_of(p): float(loss) for p, loss in zip(hood.peers, answers.mean(axis=1), strict=True)}
        return Exchange.merge(chosen, Reason.COMMITTED, state=kept)

    def scores(self, losses: Array, distances: Array, since: Array) -> Array:
        """S for every neighbour; `since` counts rounds since it was chosen, infinite if it never was."""
        recency = 1.0 - np.exp(-self.rate * since)
        scores: Array = recency * (self.a * losses - distances + self.c)
        return scores


def loss_of(peer: Peer) -> str:
    """The name under which a client publishes how a neighbour's model does on its data."""
    return f"loss-of-{peer}"


class PFedDST(Method):
    """Score peers by loss, head similarity and recency; train head and body in turn."""

    id: ClassVar[str] = "pfeddst"
    rule = PFedDSTRule
    evidence: ClassVar[str] = "all neighbours' heads, their class probabilities for anchor inputs, and how mine do"
    communication: ClassVar[str] = "k / k"
    fidelity: ClassVar[str] = (
        "adapted: the head trains first, since the printed order collapses after merging; losses are a round old"
    )

    @dataclass(frozen=True)
    class Options(Method.Options):
        """What PFedDST adds to its rule."""

        alternate: bool = option(True, "train one part at a time, a pass over the data each")
        first: Half = option("head", "which part trains first: head fits the merged body | body as printed")

    options: Options

    def make_training(self) -> LocalTraining:
        """Two phases, unless switched off."""
        return Alternating(self.options.first) if self.options.alternate else LocalTraining()
