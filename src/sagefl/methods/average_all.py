"""Average with everybody: all clients share one block after every round, as if a server stood in the middle.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017. arXiv:1602.05629. Read: the abstract; the average is as every later paper has it.

Established. A server averages the models of all clients, weighted by their samples.

Ours. Every client counts alike; only the shared block is averaged, heads and optimisers stay local. Graph,
availability and lost links are ignored: it is the upper row of a world without groups, not a method for one with a
graph. Each client is charged for the K - 1 blocks it merges. A decision in the audit names no peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..exchange import ExchangeLayer, Sizes, Traffic
from ..exchange.mixing import Mix
from ..learning.tasks import Tasks
from ..selection import LocalOnly, Outcome
from ..selection.scoring import Scoring
from .base import Method


class _Everybody(ExchangeLayer):
    """Everybody's published block, equally weighted, whatever was decided."""

    beyond: ClassVar[str] = "averages the models of everybody, including those who are not neighbours"

    clients = 1

    def publish(self, tasks: Tasks, clients: int, round: int) -> None:
        """Note how many there are."""
        self.clients = clients

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """A full matrix."""
        share = 1.0 / self.clients
        others = [(peer, 0, share) for peer in range(self.clients)]
        return {k: Mix(share, (*others[:k], *others[k + 1 :])) for k in range(self.clients)} if share < 1 else {}

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """A block from each of the others."""
        others = self.clients - 1
        return Traffic(models=others * sizes.shared_block, merged=others, transferred=others)


class AverageAll(Method):
    """The average of all clients, whatever the graph."""

    id: ClassVar[str] = "average-all"
    rule = LocalOnly
    evidence: ClassVar[str] = "none"
    communication: ClassVar[str] = "K - 1 / K - 1"
    fidelity: ClassVar[str] = "adapted: no server, every client counts alike, heads stay local"

    def make_exchange(self) -> ExchangeLayer:
        """Average everybody's models."""
        return _Everybody()
