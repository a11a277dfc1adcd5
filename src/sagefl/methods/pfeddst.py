"""PFedDST: pull from the peers that a score of loss, task similarity and recency ranks highest; train in two phases.

M. Fan, K. Li, T. Zhang, Q. Tian, B. Geng. PFedDST: Personalized Federated Learning with Decentralized Selection
Training. 2025. arXiv:2502.07750.

Established. Models have a shared extractor and a personal head. A client scores peers by S = s_p (a s_l - s_d + c)
with a loss score s_l, a head distance s_d and a recency score s_p, aggregates the extractors of the highest, and
trains in two phases: the extractor with the head frozen, then the head with the extractor frozen.

Ours. s_l is the loss of the peer's model on *my* data, scaled to [0, 1] over the neighbourhood. With the printed sign
it prefers peers on which there is most to gain; `loss_sign=-1` is the other reading, peers that fit. The loss comes
from probes of class probabilities on the anchor pool (clipped cross-entropy), so that no model moves for it and k
models are transferred, not d; it is paid for as evaluations. s_d = 1 - cos(head_i, head_j); heads are read from all
neighbours every round and counted as control bytes. s_p = 1 - exp(-rate (t - last)), 1 for a peer never chosen.
a = c = 1, rate = .5 and k = 2 are ours, the paper's values are not public; k = 2 gives the CommOH of 1.980 that the
SAGE paper reports. Equal scores are broken at random. The two training phases share one local epoch, half of the
batches each (`sagefl.learning.alternating`); `alternate=False` trains plainly, as the rules SAGE is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..learning.alternating import Alternating
from ..learning.training import LocalTraining
from ..selection import ME, Deciding, Draws, Exchange, Hood, Probe, Read, Reason, Selector, State, option
from ..selection.ranking import best, cosines
from ..selection.requests import Array
from ..selection.scoring import Scoring, scoring
from ..selection.theory import SCHEDULE
from .base import Method

__all__ = ["PFedDST", "PFedDSTRule"]


@dataclass(frozen=True)
class PFedDSTRule(Selector):
    """Top k by S = s_p (a s_l - s_d + c)."""

    k: int = option(2, "peers merged a round", ge=1)
    a: float = option(1.0, "weight of the loss score s_l")
    c: float = option(1.0, "constant that keeps the score positive")
    rate: float = option(
        0.5, "how fast a chosen peer becomes eligible again: s_p = 1 - exp(-rate * rounds since)", gt=0
    )
    loss_sign: Literal[1, -1] = option(1, "1: prefer peers with much to gain from (as printed) | -1: those that fit")
    anchors: int = option(SCHEDULE[-1], "anchors a peer's loss is measured on, at most", ge=1)

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        """Class probabilities by cross-entropy."""
        return (scoring("probs", "ce"),)

    @property
    def reach(self) -> int:
        """All that it asks about."""
        return self.anchors

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the heads, probe the losses, take the top k; `state` holds the round each peer was last chosen in."""
        if not hood.peers:
            return Exchange.none(state=state)
        mine, *theirs = yield Read((ME, *hood.peers), "head")
        losses: Array = np.zeros(len(hood.peers))
        if asked := min(self.anchors, hood.anchors):
            answers = yield Probe(hood.peers, 0, asked, self.scoring)
            losses = answers.mean(axis=1)
        last = state.get("last", {})
        since = np.array([hood.round - last[p] if p in last else np.inf for p in hood.peers])
        chosen = best(hood.peers, self.scores(losses, 1.0 - cosines(mine, theirs), since), self.k, rng)
        return Exchange.merge(chosen, Reason.COMMITTED, state={"last": last | dict.fromkeys(chosen, hood.round)})

    def scores(self, losses: Array, distances: Array, since: Array) -> Array:
        """S for every neighbour; `since` counts rounds since it was chosen, infinite if it never was."""
        recency = 1.0 - np.exp(-self.rate * since)
        scores: Array = recency * (self.a * self.loss_sign * _min_max(losses) - distances + self.c)
        return scores


def _min_max(values: Array) -> Array:
    """Values scaled into [0, 1] over the neighbourhood; all 0 where they are equal."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


class PFedDST(Method):
    """Score peers by loss, head similarity and recency; train body and head in turn."""

    id: ClassVar[str] = "pfeddst"
    rule = PFedDSTRule
    citation: ClassVar[str] = (
        "M. Fan, K. Li, T. Zhang, Q. Tian, B. Geng. PFedDST: Personalized Federated Learning with Decentralized "
        "Selection Training. 2025. arXiv:2502.07750"
    )
    evidence: ClassVar[str] = "all neighbours' heads, and their class probabilities for anchor inputs"
    communication: ClassVar[str] = "k / k"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """What PFedDST adds to its rule."""

        alternate: bool = option(True, "train the body with the head frozen, then the head with the body frozen")

    options: Options

    def make_training(self) -> LocalTraining:
        """Two phases, unless switched off."""
        return Alternating("body") if self.options.alternate else LocalTraining()
