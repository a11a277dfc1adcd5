"""DPFL: average with a collaboration set that is grown greedily on full models and rebuilt from time to time.

S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. arXiv:2406.06520.

Established. Collaborators are chosen as a *set*: from S = {i}, the client is added whose inclusion improves the
averaged model most on i's validation data, while the reward does not fall and |S| <= B_c (non-monotone greedy). The
set is rebuilt periodically; in between clients average with their set.

Ours. Candidates are the neighbours in the graph, and all of their models are moved at a rebuild (the paper first cuts
the pool of candidates down in a preprocessing phase; we leave that out). "Validation" is the anchor pool, the reward
its cross-entropy, and what is averaged is the shared block under the client's own head. The set is built in the first
round and every P = 10 rounds, B_c = 5 counts oneself. Equal gains are broken at random. Members that are not reachable
are left out of the average until they are back.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.dpfl import DpflRule
from .base import Method

__all__ = ["Dpfl"]


class Dpfl(Method):
    """Average a greedily built collaboration set."""

    id: ClassVar[str] = "dpfl"
    rule = DpflRule
    citation: ClassVar[str] = (
        "S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. "
        "arXiv:2406.06520"
    )
    evidence: ClassVar[str] = "full models of all neighbours at rebuilds"
    communication: ClassVar[str] = "|S|-1 / d at rebuilds, |S|-1 / |S|-1 between"
