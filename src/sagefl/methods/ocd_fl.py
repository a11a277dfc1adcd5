"""OCD-FL: every node sends its model to the neighbours that gain most from it for the energy it costs.

N. Masmoudi, W. Jaafar. OCD-FL: A Novel Communication-Efficient Peer Selection-based Decentralized Federated Learning.
2025. arXiv:2403.04037.

Established. Selection is the sender's. Nodes tell each other their losses; the knowledge a neighbour gains grows with
how much worse than the sender it does and saturates, sending costs energy that grows with distance, and a node serves
the neighbours for which gain outweighs energy. Receivers average what arrives with their own model.

Ours. gain(i -> j) = 1 - exp(-2 delta) with delta = loss_j - loss_i where positive, else 0; j is served if gain / energy
exceeds theta = .1, one threshold for all nodes. The loss is the training loss of the round. A link costs 1; with
``energy=distance`` nodes stand at random places of the unit square, publish their coordinates, and a link costs
(distance / mean distance)^2, a free-space law in place of the paper's radio model. Only the shared block is sent. A
lower loss says who has learnt more (or has the easier data), not who is compatible: the method does not claim that.
Traffic stands in the row of the sender: models and bytes it sends, losses it reads.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.ocd_fl import OcdFLRule
from .base import Method

__all__ = ["OcdFL"]


class OcdFL(Method):
    """Push to neighbours whose gain per energy exceeds a threshold."""

    id: ClassVar[str] = "ocd-fl"
    rule = OcdFLRule
    citation: ClassVar[str] = (
        "N. Masmoudi, W. Jaafar. OCD-FL: A Novel Communication-Efficient Peer Selection-based Decentralized Federated "
        "Learning. 2025. arXiv:2403.04037"
    )
    evidence: ClassVar[str] = "neighbours' training losses (energy=distance: and their positions)"
    communication: ClassVar[str] = "0..d / 0..d, pushed"
