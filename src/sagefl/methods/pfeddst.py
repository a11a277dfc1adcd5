"""PFedDST: pull from the peers that a score of loss, task similarity and recency ranks highest; train in two phases.

M. Fan, K. Li, T. Zhang, Q. Tian, B. Geng. PFedDST: Personalized Federated Learning with Decentralized Selection
Training. 2025. arXiv:2502.07750.

Established. Models have a shared extractor and a personal head. A client scores peers by S = s_p (a s_l - s_d + c)
with a loss score s_l, a head distance s_d and a recency score s_p, aggregates the extractors of the highest, and
trains in two phases: the extractor with the head frozen, then the head with the extractor frozen.

Ours. s_l is the loss of the peer's model on *my* data, scaled to [0, 1] over the neighbourhood. With the printed sign
it prefers peers on which there is most to gain; ``loss_sign=-1`` is the other reading, peers that fit. The loss comes
from probes of class probabilities on the anchor pool (clipped cross-entropy), so that no model moves for it and k
models are transferred, not d; it is paid for as evaluations. s_d = 1 - cos(head_i, head_j); heads are read from all
neighbours every round and counted as control bytes. s_p = 1 - exp(-rate (t - last)), 1 for a peer never chosen.
a = c = 1, rate = .5 and k = 2 are ours, the paper's values are not public; k = 2 gives the CommOH of 1.980 that the
SAGE paper reports. Equal scores are broken at random. The two training phases share one local epoch, half of the
batches each (`sagefl.learning.alternating`); ``alternate=False`` trains plainly, as the rules SAGE is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from ..learning.alternating import Alternating
from ..learning.training import LocalTraining
from ..selection import option
from ..selection.pfeddst import PFedDSTRule
from .base import Method

__all__ = ["PFedDST"]


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
    class Options:
        """What PFedDST adds to its rule."""

        alternate: bool = option(True, "train the body with the head frozen, then the head with the body frozen")

    def make_training(self) -> LocalTraining:
        """Two phases, unless switched off."""
        return Alternating("body") if cast(PFedDST.Options, self.options).alternate else LocalTraining()
