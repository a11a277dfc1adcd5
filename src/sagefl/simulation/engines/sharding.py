"""A population in pieces: who holds which clients' rows.

A shard holds some clients' rows and addresses them by client number, as if all were there; rows of others are guests,
brought along for one piece of work. Work that reaches for a row which is neither is refused: silence would be a wrong
result. Nothing here knows how rows travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index as as_index
from typing import Any, NoReturn

from torch import Tensor

from ...learning.population import Population
from .base import EngineError

Key = tuple[str, int, int]  # a row: tensor, snapshot slot (0 where there are none), client


class NotHereError(EngineError):
    """Work on a shard reached for rows that are not there."""


def deal(sizes: Sequence[float], shards: int) -> list[list[int]]:
    """Deal clients to shards with about equal amounts of training: the largest first, to the shard that has least."""
    held: list[list[int]] = [[] for _ in range(shards)]
    loads = [0.0] * shards
    for client in sorted(range(len(sizes)), key=lambda k: (-sizes[k], k)):
        least = min(range(shards), key=lambda s: (loads[s], len(held[s]), s))
        held[least].append(client)
        loads[least] += sizes[client]
    return [sorted(clients) for clients in held]


class Shard:
    """Some clients' rows in the place of a whole `Population`, as far as work on single rows goes."""

    def __init__(self, held: Population, clients: Sequence[int], total: int) -> None:
        self.held, self.clients = held, total
        place = {client: i for i, client in enumerate(clients)}

        def rows(name: str, tensor: Tensor) -> _Rows:
            return _Rows(name, tensor, place, total)

        self.params, self.first = rows("params", held.params), rows("first", held.first)
        self.second, self.steps = rows("second", held.second), rows("steps", held.steps)
        self.snapshots = rows("snapshots", held.snapshots)
        self.voices = rows("voices", held.voices) if held.voices is not held.snapshots else self.snapshots
        self.extras = {name: rows(f"extras.{name}", tensor) for name, tensor in held.extras.items()}
        plain = (self.params, self.first, self.second, self.steps, self.snapshots, self.voices)
        self._named = {rows.name: rows for rows in (*plain, *self.extras.values())}

    def slot(self, round: int, age: int = 0) -> int:
        """Which snapshot was published `age` rounds before `round`."""
        return self.held.slot(round, age)

    def row(self, key: Key) -> Tensor:
        """One row that is held here."""
        rows = self._named[key[0]]
        return rows[rows.address(key)]

    def welcome(self, guests: Mapping[Key, Tensor]) -> None:
        """Make these rows of other clients readable, instead of the previous ones."""
        for rows in self._named.values():
            rows.guests.clear()
        for key, row in guests.items():
            rows = self._named[key[0]]
            rows.guests[rows.address(key)] = row


class _Rows:
    """One tensor of the population of which only some rows are there."""

    def __init__(self, name: str, held: Tensor, place: Mapping[int, int], total: int) -> None:
        self.name, self.guests = name, dict[tuple[int, ...], Tensor]()
        self._held, self._place, self._total = held, place, total
        self._deep = held.dim() > 2  # snapshots: a slot stands before the client

    def address(self, key: Key) -> tuple[int, ...]:
        """Where a row stands: its client, with the slot before it where there are slots."""
        return key[1:] if self._deep else key[2:]

    def __getitem__(self, key: Any) -> Tensor:
        key = key if isinstance(key, tuple) else (key,)
        depth = 2 if self._deep else 1
        try:
            *slot, client = address = tuple(as_index(k) for k in key[:depth])
        except TypeError:
            self._refuse("many rows at once")
        if len(address) < depth:
            self._refuse("many rows at once")
        if client in self._place:
            return self._held[(*slot, self._place[client], *key[depth:])]
        if address not in self.guests:
            self._refuse(f"the row of client {client}")
        return self.guests[address][key[depth:]]

    def __len__(self) -> int:
        return len(self._held) if self._deep else self._total

    def __iter__(self) -> NoReturn:
        self._refuse("many rows at once")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f"many rows at once (.{name})")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise NotHereError("reads many rows of the population at once")

    def _refuse(self, what: str) -> NoReturn:
        raise NotHereError(f"reads {what} of {self.name!r} without having declared it")
