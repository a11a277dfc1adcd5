"""A node's neighbours, from its config and from its keeper: they come, go and move while it runs.

Changes are carried out between two rounds; a revocation takes effect with the next call, because the gate reads the
list itself. A neighbour is known by its name: another address is the same neighbour, another number a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import SageflError
from .client import PeerClient
from .config import NeighbourConfig, NodeConfig
from .errors import Fault, NodeError
from .gate import Gate
from .identity import SOON, Identity
from .joining import MEMBERS, KeptBy, keep_members, kept_members, neighbours_in, understood
from .journal import Journal
from .learner import Learner
from .presence import Presence

Known = Mapping[str, NeighbourConfig]


class Neighbourhood:
    """Who is a neighbour now, and how each is called."""

    def __init__(
        self,
        config: NodeConfig,
        identity: Identity | None,
        journal: Journal,
        learner: Learner,
        describe: Callable[[PeerClient], Any],
    ) -> None:
        self.config, self.identity, self.journal, self.learner = config, identity, journal, learner
        self.known: dict[str, NeighbourConfig] = {}
        self.names: dict[int, str] = {}  # also of those who have left: earlier rounds name them
        self.clients: dict[int, PeerClient] = {}
        self.room = max(len(config.neighbours), 0 if config.keeper is None else config.keeper.most)
        self.presence = Presence(self.clients, describe, self.heard, self.room)
        self.gate = Gate(identity, {}, config.limits, journal)
        self.members = None
        self.round = 0
        self._past = 0  # bytes exchanged with those who have left
        if config.keeper is not None and identity is not None:
            self.members = Members(KeptBy(config.keeper, identity), config, journal)
        named: Known = {}
        if self.members is not None:
            named, self.names = kept_members(Path(config.identity))
        self._become(self._together(named))

    @property
    def ever(self) -> int:
        """How many can ever be neighbours, which is what rules count on that promise something for a whole run.

        With a keeper there is no end of newcomers, but they come in lots of `room`: whoever is in lot k = 1, 2, ... has
        1/(k(k+1)) of what a rule may err, shared among the lot. That adds up to all of it however many come and go.
        """
        if self.members is None:
            return self.room
        lot = max(1, -(-len(self.names) // self.room))
        return self.room * lot * (lot + 1)

    def look(self, round: int) -> None:
        """Carry out what the keeper has said meanwhile."""
        self.round = round
        if self.members is not None and (named := self.members.news()) is not None:
            self._become(self._together(named))

    def called(self, peer: str) -> None:
        """A neighbour has called: if it was away, it can be reached again."""
        if (found := self.known.get(peer)) is not None:
            self.presence.called(found.number)

    def wire_bytes(self) -> int:
        """Bytes of all messages so far."""
        return self._past + sum(client.sent + client.received for client in self.clients.values())

    def close(self) -> None:
        """Call nobody any more."""
        if self.members is not None:
            self.members.close()
        self.presence.close()
        for client in self.clients.values():
            client.close()

    # Pieces --------------------------------------------------------------------------------------------------------

    def _together(self, named: Known) -> dict[str, NeighbourConfig]:
        """Those in the config and those the keeper names, as far as numbers and room allow."""
        found = dict(self.config.neighbours)
        numbers = {self.config.number: self.config.name, **self.names, **{n.number: name for name, n in found.items()}}
        for name, neighbour in sorted(named.items()):
            if name in found or name == self.config.name:
                continue
            if numbers.setdefault(neighbour.number, name) != name:
                other = numbers[neighbour.number]
                self.journal.event("not-taken", peer=name, why=f"its number {neighbour.number} is that of {other}")
            elif len(found) >= self.room:
                self.journal.event("not-taken", peer=name, why=f"it has keeper.most = {self.room} neighbours already")
            else:
                found[name] = neighbour
        return found

    def _become(self, wanted: dict[str, NeighbourConfig]) -> None:
        for name, old in list(self.known.items()):
            if wanted.get(name) != old:
                self._drop(name, left=name not in wanted)
        new = {name: found for name, found in wanted.items() if name not in self.known}
        self.learner.seat([found.number for found in new.values()])
        for name, found in new.items():
            began = found.number in self.names
            self.known[name], self.names[found.number] = found, name
            self.clients[found.number] = self._client(name, found)
            if self.members is not None and not began:
                self.journal.event("new-neighbour", peer=name, address=found.address, number=found.number)
        self.gate.admit({name: found.key for name, found in self.known.items()})
        if self.identity is not None and self.members is not None:
            try:
                keep_members(self.identity.folder, self.known, self.names)
            except (OSError, SageflError) as error:
                self.journal.event("write-failed", what=MEMBERS, why=str(error))

    def _drop(self, name: str, *, left: bool) -> None:
        number = self.known.pop(name).number
        client = self.clients.pop(number)
        self.presence.forget(number)
        self.learner.unseat(number)
        self._past += client.sent + client.received
        client.close()
        if left:
            self.journal.event("neighbour-left", peer=name)

    def _client(self, name: str, neighbour: NeighbourConfig) -> PeerClient:
        c = self.config.exchange
        return PeerClient(
            name,
            neighbour.address,
            self.identity,
            me=self.config.name,
            key=neighbour.key,
            deadline=c.deadline,
            transfer_deadline=c.transfer_deadline,
            retries=c.retries,
        )

    def heard(self, number: int, fault: Fault) -> None:
        """Write down what a neighbour did wrong."""
        self.journal.event(f"fault-{fault.kind}", peer=self.names[number], round=self.round, why=str(fault))


class Members:
    """Asks the keeper every few seconds, on a thread of its own: a round never waits for it."""

    def __init__(self, kept: KeptBy, config: NodeConfig, journal: Journal) -> None:
        self.kept, self.config, self.journal = kept, config, journal
        self._named: Known | None = None
        self._last: Known | None = None
        self._trouble = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def news(self) -> Known | None:
        """The neighbours that the keeper names, if that has changed since it was last asked for."""
        named, self._named = self._named, None
        return named

    def close(self) -> None:
        """Ask no more; an answer that is under way is not waited for."""
        self._over.set()

    def _run(self) -> None:
        assert self.config.keeper is not None
        while not self._over.is_set():
            try:
                self._ask()
                self._trouble = ""
            except (NodeError, ValueError, OSError) as error:
                if self._trouble != (why := str(error)):
                    self.journal.event("keeper", why=f"{why}; this node goes on with the neighbours it knows")
                self._trouble = why
            self._over.wait(self.config.keeper.every)

    def _ask(self) -> None:
        keeper, identity = self.config.keeper, self.kept.identity
        assert keeper is not None
        found = self.kept.news(keeper.advertise or self.config.listen)
        named = neighbours_in(found)
        with understood():
            revoked = found["revoked"].encode()
        if identity.replace_revocations(revoked):
            self.journal.event("revocation-list", why="a newer one came from the keeper")
        if named != self._last:
            self._named = self._last = named
        if identity.days_left < SOON.days:
            self.kept.renew()
