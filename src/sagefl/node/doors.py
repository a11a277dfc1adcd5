"""How many connections one identity may hold, and how long a connection may stay silent.

gRPC accepts connections and makes handshakes below Python and has no limit per caller. So each call tells who is on
its connection; connections of callers that are turned away are hung up, an identity's connections are capped, and those
on which nobody ever calls are closed after a while, the oldest first when there are many. Sockets are found in /proc;
where there is none (not Linux), calls are still capped per identity, connections are not.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from .journal import Journal
from .limits import Limits, OverLimit
from .watch import Watch

Address = tuple[str, int]
DESCRIPTORS = Path("/proc/self/fd")
EVERY = 1.0  # seconds between two looks at the open connections
SOON = 0.02  # at least, when somebody is about to be refused
FLUSH = 0.2  # seconds that a refusal has to reach its caller before the connection is closed
UNKNOWN = 64  # connections on which nobody has called yet


class Doors:
    """The connections of one server, by who is on them."""

    def __init__(self, limits: Limits, journal: Journal, watch: Watch) -> None:
        self.limits, self.journal, self.watch = limits, journal, watch
        self.port = 0
        self._who: dict[Address, str] = {}  # connection -> the identity that has called on it
        self._since: dict[Address, float] = {}  # when a connection was first seen
        self._looked = 0.0
        self._lock = threading.Lock()

    def open(self, port: int) -> None:
        """Begin to look after the connections to `port`."""
        self.port = port
        if DESCRIPTORS.is_dir():
            self._look()

    def enter(self, peer: str, told: str) -> None:
        """`peer` calls on the connection that gRPC names `told`; a connection too many is refused and closed."""
        address = _address(told)
        if address is None:
            return
        if not self._seat(peer, address):
            self._look_again()  # some of those counted may be gone by now
            if not self._seat(peer, address):
                self.hang_up(told)
                raise OverLimit(f"{self.limits.connections} connections at once", EVERY)

    def _seat(self, peer: str, address: Address) -> bool:
        """Note who is on a connection, unless that is one too many."""
        with self._lock:
            held = sum(who == peer for who in self._who.values())
            if self._who.get(address) != peer and held >= self.limits.connections:
                return False
            self._who[address] = peer
            return True

    def _look_again(self) -> None:
        """Look at the open connections now, but not so often that asking for it would cost much."""
        if self.port and time.monotonic() - self._looked > SOON:
            with suppress(OSError):
                self._tidy()

    def hang_up(self, told: str) -> None:
        """Close a connection, once what was said on it has been sent."""
        address = _address(told)
        if address is not None and self.port:
            self.watch.later(FLUSH, lambda: self._close([address]))

    def _look(self) -> None:
        """Forget connections that are gone, and close those that have been silent for too long."""
        with suppress(OSError):
            self._tidy()
        self.watch.later(EVERY, self._look)

    def _tidy(self) -> None:
        now = self._looked = time.monotonic()
        there = {address for address, _ in _connections(self.port)}
        with self._lock:
            for gone in self._who.keys() - there:
                del self._who[gone]
            self._since = {address: self._since.get(address, now) for address in there}
            silent = sorted((since, address) for address, since in self._since.items() if address not in self._who)
        late = [address for since, address in silent if now - since > self.limits.silent_seconds]
        many = [address for _, address in silent[: max(0, len(silent) - UNKNOWN)]]
        if late or many:
            for host in sorted({host for host, _ in {*late, *many}}):
                self.journal.event("silent-connections", peer=host, why=f"{len({*late, *many})} closed: nobody called")
            self._close([*late, *many])

    def _close(self, addresses: list[Address]) -> None:
        wanted = set(addresses)
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
