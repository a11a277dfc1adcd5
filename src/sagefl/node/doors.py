"""How many connections one identity may hold, and how long a connection may stay silent.

gRPC accepts connections and makes handshakes below Python and has no limit per caller. So each call tells who is on
its connection; connections of callers that are turned away are hung up, and one that opens too many loses its own
oldest, so that whoever reconnects in a hurry is served. Those on which nobody ever calls are closed after a while, and
sooner when there are many: first from where most of them come. Sockets are found in /proc; where there is none (not
Linux), calls are still capped per identity, connections are not.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from .journal import Journal
from .limits import Limits
from .watch import Watch

Address = tuple[str, int]
DESCRIPTORS = Path("/proc/self/fd")
EVERY = 1.0  # seconds between two looks at the open connections
SOON = 0.02  # at least, when somebody seems to hold too many
FLUSH = 0.2  # seconds that a refusal has to reach its caller before the connection is closed
UNKNOWN = 64  # connections on which nobody has called yet, beside those of the last second: handshakes take a while


class Doors:
    """The connections of one server, by who is on them."""

    def __init__(self, limits: Limits, journal: Journal, watch: Watch) -> None:
        self.limits, self.journal, self.watch = limits, journal, watch
        self.port = 0
        self._who: dict[Address, str] = {}  # connection -> the identity that has called on it
        self._since: dict[Address, float] = {}  # when a connection was first seen
        self._doomed: set[Address] = set()  # to be closed in a moment
        self._looked = 0.0
        self._lock = threading.Lock()

    def open(self, port: int) -> None:
        """Begin to look after the connections to `port`."""
        self.port = port
        if DESCRIPTORS.is_dir():
            self._look()

    def enter(self, peer: str, told: str) -> None:
        """`peer` calls on the connection that gRPC names `told`; if that is one too many, its oldest is closed."""
        address = _address(told)
        if address is None:
            return
        with self._lock:
            too_many = bool(self._surplus(peer, address))
        if too_many:
            self._look_again()  # some of those counted may be gone by now
        with self._lock:
            surplus = self._surplus(peer, address)
            for old in surplus:
                del self._who[old]
            self._who[address] = peer
        if surplus:
            why = f"more than {self.limits.connections} connections at once: the oldest is closed"
            self.journal.event("over-limit", peer=peer, why=why)
            self._doom(surplus)

    def _surplus(self, peer: str, address: Address) -> list[Address]:
        """The connections of `peer` that have to go if it is to have one at `address`, the oldest first."""
        others = [at for at, who in self._who.items() if who == peer and at != address]
        return others[: max(0, len(others) + 1 - self.limits.connections)]

    def _look_again(self) -> None:
        """Look at the open connections now, but not so often that asking for it would cost much."""
        if self.port and time.monotonic() - self._looked > SOON:
            with suppress(OSError):
                self._forget_gone()

    def hang_up(self, told: str) -> None:
        """Close a connection, once what was said on it has been sent."""
        if (address := _address(told)) is not None:
            self._doom([address])

    def _doom(self, addresses: list[Address]) -> None:
        """Close connections in a moment, all that have gathered by then at once."""
        with self._lock:
            waiting = bool(self._doomed)
            self._doomed.update(addresses)
        if not waiting:
            self.watch.later(FLUSH, self._close)

    def _look(self) -> None:
        """Forget connections that are gone, and close those that have been silent for too long."""
        with suppress(OSError):
            silent = self._forget_gone()
            if useless := self._useless(silent):
                for host, count in sorted(Counter(host for host, _ in useless).items()):
                    self.journal.event("silent-connections", peer=host, why=f"{count} closed: nobody called")
                self._doom(useless)
        self.watch.later(EVERY, self._look)

    def _forget_gone(self) -> dict[Address, float]:
        """Look at the open connections; those on which nobody has called yet, and for how many seconds."""
        now = self._looked = time.monotonic()
        there = {address for address, _ in _connections(self.port)}
        with self._lock:
            for gone in self._who.keys() - there:
                del self._who[gone]
            self._since = {address: self._since.get(address, now) for address in there}
            return {address: now - since for address, since in self._since.items() if address not in self._who}

    def _useless(self, silent: dict[Address, float]) -> list[Address]:
        """Those that are silent for too long, and those that are too many, first from where most of them come."""
        from_there = Counter(host for host, _ in silent)
        in_turn = sorted(silent, key=lambda one: (-from_there[one[0]], -silent[one]))
        many = [one for one in in_turn if silent[one] >= EVERY][: max(0, len(silent) - UNKNOWN)]
        return [one for one in in_turn if one in many or silent[one] > self.limits.silent_seconds]

    def _close(self) -> None:
        with self._lock:
            wanted, self._doomed = self._doomed, set()
        for address, connection in _connections(self.port):
            if address in wanted:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _address(told: str) -> Address | None:
    """`ipv4:127.0.0.1:5` or `ipv6:%5B::1%5D:5` as a host and a port."""
    family, _, rest = unquote(told).partition(":")
    host, _, port = rest.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _plain(host.strip("[]")), int(port)


def _plain(host: str) -> str:
    return host.removeprefix("::ffff:").partition("%")[0]


def _connections(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """This process's accepted connections on `port`: where they come from, and a handle that closes with the loop."""
    for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 (names alone: the links behind them come and go)
        with suppress(OSError, ValueError), _duplicate(int(name)) as connection:
            ours, theirs = connection.getsockname(), connection.getpeername()
            if len(ours) >= 2 and ours[1] == port:
                yield (_plain(theirs[0]), int(theirs[1])), connection


@contextmanager
def _duplicate(descriptor: int) -> Iterator[socket.socket]:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise ValueError("not a socket")
    copy = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=copy)
    except BaseException:
        os.close(copy)
        raise
    with connection:
        yield connection
