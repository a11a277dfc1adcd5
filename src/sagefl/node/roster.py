"""Who belongs to a federation, who neighbours whom, and which tickets are open. Plain values; no clock, no network.

Members are known by name. A number is given once and never again, because audits name peers by it. Everybody has about
`degree` neighbours, always in both directions: whoever comes is put next to those who have fewest, and when somebody
goes, those left with too few are put next to each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..runs.files import UNFIT
from .errors import NodeError
from .identity import check_name

KEEPER = "keeper"  # the name in the keeper's own certificate; no member can have it
TICKETS = 1000  # open at the same time


@dataclass
class Member:
    """One member: where it is reached, the fingerprint of its key, its certificates and its neighbours."""

    number: int
    address: str
    key: str
    serials: dict[int, float] = field(default_factory=dict)  # of its valid certificates, and when each ends
    neighbours: list[str] = field(default_factory=list)


@dataclass
class Invitation:
    """An open ticket for one name; once it is used, it is good for the same key only (a lost answer is asked again)."""

    name: str
    until: float
    key: str = ""


@dataclass
class Roster:
    """The federation as its keeper knows it."""

    address: str = ""  # where the keeper itself is reached
    degree: int = 4
    edition: int = 0  # raised with every change that members should know
    numbers: int = 0  # how many were ever given
    members: dict[str, Member] = field(default_factory=dict)
    tickets: dict[str, Invitation] = field(default_factory=dict)  # by the hash of their secret

    def invite(self, name: str, secret: bytes, now: float, until: float) -> None:
        """Open a ticket; earlier ones for the same name and those out of date are void."""
        check_name(name)
        if name == KEEPER:
            raise NodeError(f"{KEEPER} is the name of the federation's keeper: choose another name")
        if name in self.members:
            raise NodeError(f"{name} is a member already: choose another name, or revoke it first")
        self.tickets = {h: t for h, t in self.tickets.items() if t.until > now and t.name != name}
        if len(self.tickets) >= TICKETS:
            raise NodeError(f"{TICKETS} tickets are open: wait until some are used or out of date")
        self.tickets[_hashed(secret)] = Invitation(name, until)

    def admit(self, secret: bytes, key: str, address: str, now: float) -> str:
        """Let the bearer of a ticket in; returns its name. The same bearer may ask again."""
        ticket = self.tickets.get(_hashed(secret))
        if ticket is None or ticket.until <= now or ticket.key not in ("", key):
            raise NodeError("this ticket is unknown, used or out of date: ask for a new one")
        if ticket.key and ticket.name not in self.members:
            raise NodeError(f"{ticket.name} has left since: ask for a new ticket")
        if any(m.key == key for name, m in self.members.items() if name != ticket.name):
            raise NodeError("this key belongs to another member: make a new one")
        if not ticket.key:
            ticket.key = key
            self.members[ticket.name] = Member(self.numbers, address, key)
            self.numbers += 1
            self._connect([ticket.name])
            self.edition += 1
        return ticket.name

    def dismiss(self, name: str) -> dict[int, float]:
        """Take a member out; returns what its certificates' serial numbers and ends are, which are to be revoked."""
        member = self.members.pop(name, None)
        if member is None:
            raise NodeError(f"{name} is no member of this federation; there are {', '.join(self.members) or 'none'}")
        for other in member.neighbours:
            self.members[other].neighbours.remove(name)
        self._connect(member.neighbours)
        self.edition += 1
        return member.serials

    def move(self, name: str, address: str) -> None:
        """A member is reached at another address from now on."""
        if self.members[name].address != address:
            self.members[name].address = address
            self.edition += 1

    def around(self, name: str) -> dict[str, dict[str, Any]]:
        """A member's neighbours, as it enters them into its config."""
        found = {n: self.members[n] for n in sorted(self.members[name].neighbours)}
        return {n: {"address": m.address, "number": m.number, "key": m.key} for n, m in found.items()}

    def _connect(self, names: Iterable[str]) -> None:
        """Put members that have too few neighbours next to those who have fewest."""
        for name in names:
            mine = self.members[name].neighbours
            others = [n for n in self.members if n != name and n not in mine]
            others.sort(key=lambda n: (len(self.members[n].neighbours), self.members[n].number))
            for other in others[: max(0, self.degree - len(mine))]:
                mine.append(other)
                self.members[other].neighbours.append(name)

    def to_json(self) -> str:
        """For the keeper's disk."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Roster:
        """As `to_json` wrote it."""
        try:
            found = json.loads(text)
            members = {name: _member(m) for name, m in found.pop("members").items()}
            tickets = {hashed: Invitation(**t) for hashed, t in found.pop("tickets").items()}
            return cls(**found, members=members, tickets=tickets)
        except UNFIT as error:
            raise NodeError(f"this is not a roster: {error}") from None


def _member(found: dict[str, Any]) -> Member:
    serials = {int(serial): float(end) for serial, end in found.pop("serials").items()}
    return Member(**found, serials=serials)


def _hashed(secret: bytes) -> str:
    """What is kept of a ticket's secret: enough to know it again, not to use it."""
    return hashlib.sha256(b"sagefl ticket" + secret).hexdigest()
