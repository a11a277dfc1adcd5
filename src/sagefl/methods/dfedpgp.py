"""DFedPGP: directed push-sum of the shared body, with head and body trained in turn.

Y. Liu, Y. Shi, Q. Li, B. Wu, X. Wang, L. Shen. Decentralized Directed Collaboration for Personalized Federated
Learning. CVPR 2024. arXiv:2405.17876. Read: the abstract, a public summary, and a copy of its code in another project
(SafeAI-Wshuai/pDFL: standalone/dfedpgp, main_dfedpgp.py), which merges before training and averages the bodies plainly.

Established. The linear classifier is personal, the rest is shared. Every round a client trains its head with the body
frozen, then the body with the head frozen, and pushes the body to a few out-neighbours of a directed graph that
changes over time; push-sum weights undo the bias of uneven in-degrees (stochastic gradient push).

Ours. Out-neighbours are k = 2 uniform draws among the active neighbours. A client keeps the de-biased z = u / w as its
parameters and mixes with weights p_ij w_j / w_i, which is the same step (`sagefl.exchange.push_sum`); gradient steps
(Adam) then act on z, where the paper's act on u and so move z by 1 / w as much. On a link with delay the older block
arrives with the present weight, so that no weight is lost. Each phase is a pass over the epoch's batches
(`sagefl.learning.training`). Traffic is counted in the sender's row: the shared block and one weight (4 bytes,
control) per out-neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..exchange import ExchangeLayer
from ..exchange.push_sum import PushSum
from ..learning.training import Alternating, LocalTraining
from ..selection import Deciding, Draws, Exchange, Hood, Reason, State
from ..selection.ranking import sample
from ..selection.uniform_neighbours import UniformNeighbours
from .base import Method


@dataclass(frozen=True)
class DFedPGPRule(UniformNeighbours):
    """Draw k out-neighbours: a directed graph that changes every round."""

    pushes: ClassVar[bool] = True

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Draw k and push."""
        yield from ()
        if not hood.peers:
            return Exchange.none()
        return Exchange(sample(hood.peers, self.k, rng), False, Reason.UNIFORM, direction="push")


class DFedPGP(Method):
    """Directed push-sum of the body, alternating training."""

    id: ClassVar[str] = "dfedpgp"
    rule = DFedPGPRule
    evidence: ClassVar[str] = "none"
    communication: ClassVar[str] = "k / k, pushed"
    fidelity: ClassVar[str] = "adapted: gradient steps act on the de-biased parameters"

    def make_exchange(self) -> ExchangeLayer:
        """Push-sum."""
        return PushSum()

    def make_training(self) -> LocalTraining:
        """Head first, then body."""
        return Alternating("head")
