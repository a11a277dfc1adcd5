"""What clients ask and move, one thing after another, as scripts for a clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ..clock import Script, TimedLook, evidence, transfer
from ..exchange import Traffic
from ..exchange.mixing import client_of
from ..selection import Decision, Inspect
from .world import World


class Scripts:
    """The looks of decisions that are made together."""

    def __init__(self, world: World, ages: Mapping[tuple[int, int], int]) -> None:
        self.world = world
        self._ages = ages  # by how many rounds a peer's model is behind its receiver's; none where not named
        self._of: dict[int, list[TimedLook]] = defaultdict(list)

    def note(self, client: int, decision: Decision) -> None:
        """Keep what an open decision asks for, from which its time follows."""
        request, roles = decision.request, self.world.federation.roles[client]
        assert request is not None
        train = isinstance(request, Inspect) and request.split == "train"
        samples = len(roles.train if train else roles.anchor)
        inspected, old = decision.ledger.inspected, self._old(client, decision)
        self._of[client].append(evidence(request, self.world.sizes, inspected, samples, old))

    def of(self, client: int, decision: Decision, traffic: Traffic) -> Script:
        """What a client did after training: its looks, and the exchange that its decision ended with."""
        exchange = transfer(decision.outcome, traffic, self.world.sizes, self._old(client, decision))
        return Script(tuple(self._of[client]), exchange)

    def _old(self, client: int, decision: Decision) -> list[Any]:
        return [peer for peer in decision.hood.peers if self._ages.get((client, client_of(peer)), 0) > 0]
