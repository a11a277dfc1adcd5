"""Which clients are active in a round.

An inactive client asks nobody and answers nobody; whether it trains is up to the simulator. Each kind of availability
is a small frozen class with one method, `active(round, clients, seed)`. Rounds count from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import Literal, Protocol, get_args

import numpy as np

from ..streams import stream
from ._common import BoolArray, Seed, TopologyError, numbered_fields, probability, whole

Beyond = Literal["cycle", "hold"]


class Availability(Protocol):
    """What the simulator asks in every round."""

    def active(self, round: int, clients: int, seed: Seed) -> BoolArray:
        """One truth value per client; the same arguments always give the same answer."""
        ...


@dataclass(frozen=True)
class Always:
    """Everyone, in every round."""

    def active(self, round: int, clients: int, seed: Seed) -> BoolArray:
        """Every client."""
        whole("round", round)
        return np.ones(whole("clients", clients, 1), dtype=np.bool_)


@dataclass(frozen=True)
class Bernoulli:
    """Every client is active with probability `p`, independently of other clients and other rounds.

    Draws are coupled in p: a client that is active at p = .5 is also active at p = .8 in the same round.
    """

    p: float

    def __post_init__(self) -> None:
        probability("availability p", self.p)

    def active(self, round: int, clients: int, seed: Seed) -> BoolArray:
        """A fresh draw keyed by `(seed, "availability", round)`."""
        rng = stream(seed, "availability", whole("round", round))
        return rng.random(whole("clients", clients, 1)) < self.p


@dataclass(frozen=True)
class Churn:
    """Some clients join late and some leave for good; between that they are active as `others` says.

    Of exactly `round(share * clients)` clients every other one joins and the rest leave, each before a round drawn
    uniformly from 1 to `rounds` - 1. Those of a smaller share are among those of a larger one.
    """

    share: float
    rounds: int
    others: Availability = Always()

    def __post_init__(self) -> None:
        probability("churn", self.share)
        whole("rounds", self.rounds, 1)

    def active(self, round: int, clients: int, seed: Seed) -> BoolArray:
        """Draws are keyed by `(seed, "churn")` alone: a client that has left stays away."""
        active = self.others.active(round, clients, seed)
        rng = stream(seed, "churn")
        order, when = rng.permutation(clients), rng.integers(1, max(self.rounds, 2), size=clients)
        for place, client in enumerate(order[: int(np.rint(self.share * clients))]):
            joins = place % 2 == 0
            active[client] &= bool(round >= when[client]) if joins else bool(round < when[client])
        return active


@dataclass(frozen=True)
class Trace:
    """Availability read from a text file: line t is round t, with one 0 or 1 per client.

    Commas or blanks separate the values; empty lines and # comments are skipped. If the run is longer than the trace,
    `beyond="cycle"` starts over and `beyond="hold"` repeats the last line. The file is read once, here, so that a bad
    trace is reported before anything trains.
    """

    path: str | PathLike[str]
    beyond: Beyond = "cycle"
    rows: BoolArray = field(init=False, repr=False, compare=False)
    """The trace, rounds x clients."""

    def __post_init__(self) -> None:
        if self.beyond not in get_args(Beyond):
            raise TopologyError(f"beyond must be 'cycle' or 'hold', got {self.beyond!r}")
        object.__setattr__(self, "rows", _read_trace(self.path))

    def active(self, round: int, clients: int, seed: Seed) -> BoolArray:
        """The line of the round; the seed is not used."""
        length, columns = self.rows.shape
        if columns != clients:
            raise TopologyError(
                f"the trace {str(self.path)!r} describes {columns} clients, the run has {clients}; "
                "set clients to match or use another trace"
            )
        row = whole("round", round)
        row = row % length if self.beyond == "cycle" else min(row, length - 1)
        return np.array(self.rows[row], dtype=np.bool_)


def _read_trace(path: str | PathLike[str]) -> BoolArray:
    rows: list[BoolArray] = []
    for line, fields in numbered_fields(path, "availability trace"):
        where = f"{str(path)!r}, line {line}"
        wrong = next((value for value in fields if value not in ("0", "1")), None)
        if wrong is not None:
            raise TopologyError(f"{where}: expected one 0 or 1 per client, got {wrong!r}")
        if rows and len(fields) != rows[0].size:
            raise TopologyError(f"{where}: {len(fields)} values, but the first line has {rows[0].size}")
        rows.append(np.array([value == "1" for value in fields], dtype=np.bool_))
    if not rows:
        raise TopologyError(f"the trace {str(path)!r} has no rounds; write one line of 0s and 1s per round")
    trace: BoolArray = np.stack(rows)
    trace.setflags(write=False)
    return trace
