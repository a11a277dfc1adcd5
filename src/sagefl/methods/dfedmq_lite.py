"""DFedMQ-lite: merge the neighbours of the best training quality.

B. Jiang, J. Wu, G. Yue, X. Cui, J. Wang, H. H. Song. DFedMQ: Decentralized Federated Learning Based on Dynamic
Selection Collaboration and Topology Optimization. IEEE Internet of Things Journal 2025.

Established, from the abstract alone (the paper is not public, hence "-lite"). Clients are selected dynamically by the
training quality of nodes, on a Watts-Strogatz topology, with a temporary topology per round for the exchange.

Ours. Everything else. Quality is the neighbour's training loss of the round, low is good (``quality=progress``: how
much it fell since last reported; ``quality=anchors``: right answers to the receiver's own anchor inputs). The best
k = 2 are merged; the temporary topology is whoever is merged in the round. The Watts-Strogatz graph is a property of
the world, not of the method: run with ``topology.kind = ws``. Quality as reported is the same for every receiver, so
the default does not look for *compatible* peers; with ``quality=anchors`` it does.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.dfedmq_lite import DFedMQLiteRule
from .base import Method

__all__ = ["DFedMQLite"]


class DFedMQLite(Method):
    """Merge the neighbours of the best training quality; read from the abstract."""

    id: ClassVar[str] = "dfedmq-lite"
    rule = DFedMQLiteRule
    citation: ClassVar[str] = (
        "B. Jiang, J. Wu, G. Yue, X. Cui, J. Wang, H. H. Song. DFedMQ: Decentralized Federated Learning Based on "
        "Dynamic Selection Collaboration and Topology Optimization. IEEE Internet of Things Journal 2025 (abstract)"
    )
    evidence: ClassVar[str] = "neighbours' training losses (quality=anchors: answers to anchor inputs)"
    communication: ClassVar[str] = "k / k"
