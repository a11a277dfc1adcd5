"""PENS: find peers with similar data by trying their models on your own, then gossip among them.

N. Onoszko, G. Karlsson, O. Mogren, E. Listo Zec. Decentralized federated learning of deep neural networks on non-iid
data. ICML 2021 workshop on federated learning for user privacy and data confidentiality. arXiv:2107.08517.

Established. Phase one: sample n_sampled neighbours, evaluate their full models on one's own training data, average
one's own model with the best m, and count who was chosen. Then keep the neighbours that were chosen more often than
chance would have it. Phase two: ordinary gossip among those kept.

Ours. Neighbours are those of a fixed graph instead of everybody, so every count is capped at the degree:
n' = min(n_sampled, d), m' = min(m, n'). Chance is m'/d in every round in which a neighbour is active, T1 m'/d when
everybody always is. A client that keeps nobody, or none of whose kept neighbours is active, draws from all of its
active ones. The draw of phase two is the one RG would make where all are kept. Clients pull, in synchronous rounds,
and merge the shared block only; the evaluation is of the peer's full predictor, its own head included.
The defaults n_sampled = 3, m = 2, T1 = 40 % of the rounds give the transfers the SAGE paper reports (CommOH 1.784 at
T = 250); ``pens-original`` has 10, 2 and 80 %.

Two mistakes of public ports, not made here: with fewer than n_sampled neighbours never to merge in phase one, and to
evaluate one's own model on the peer's data.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..selection.pens import PensRule
from .base import Method

__all__ = ["Pens", "PensOriginal"]


class Pens(Method):
    """Merge the best of a few sampled models, then gossip among those that were often best."""

    id: ClassVar[str] = "pens"
    rule = PensRule
    citation: ClassVar[str] = (
        "N. Onoszko, G. Karlsson, O. Mogren, E. Listo Zec. Decentralized federated learning of deep neural networks "
        "on non-iid data. FL-ICML 2021. arXiv:2107.08517"
    )
    evidence: ClassVar[str] = "n_sampled full models on one's own training data, in phase one"
    communication: ClassVar[str] = "m / n_sampled in phase one, then 1 / 1"


class PensOriginal(Pens):
    """PENS with the budget of its own paper: ten models sampled, for four fifths of the run."""

    id: ClassVar[str] = "pens-original"
    preset: ClassVar[dict[str, Any]] = {"n_sampled": 10, "m": 2, "first_phase": 0.8}
