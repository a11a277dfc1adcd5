"""D-PSGD: decentralised parallel SGD, everybody averages with all of its neighbours.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu. Can Decentralized Algorithms Outperform Centralized
Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent. NeurIPS 2017. arXiv:1705.09056.
Read: the abstract and its public reviews; the update is as every later paper states it.

Established. x_i <- sum_j W_ij x_j - step * gradient with a symmetric, doubly stochastic W over the graph.

Ours. The paper leaves W open; we take Metropolis-Hastings weights W_ij = 1 / (1 + max(d_i, d_j)), the rest stays with
oneself. The degrees are those of the round, so W is symmetric and doubly stochastic also when clients come and go
(Xiao, Boyd, Lall 2006 show that such time-varying weights still reach consensus); only links that fail in one
direction break the symmetry. Mixing comes after a local epoch of Adam instead of after one SGD step, and covers the
shared block; heads stay local.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .requests import Read
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class DPSGD(Selector):
    """All active neighbours, weights 1 / (1 + max(d_i, d_j))."""

    id: ClassVar[str] = "d-psgd"
    summary: ClassVar[str] = "Average with every neighbour under Metropolis-Hastings weights."
    evidence: ClassVar[str] = "none (neighbours' degrees)"
    communication: ClassVar[str] = "d / d"
    fidelity: ClassVar[str] = "adapted: a local epoch is the step, heads stay local"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the neighbours' degrees; the weights are symmetric, so the mixing matrix is doubly stochastic."""
        if not hood.peers:
            return Exchange.none()
        degrees = yield Read(hood.peers, "degree")
        mine = len(hood.peers)
        weights = {p: 1.0 / (1.0 + max(mine, int(d))) for p, d in zip(hood.peers, degrees, strict=True)}
        return Exchange.merge(hood.peers, Reason.COMMITTED, weights, selected=False)
