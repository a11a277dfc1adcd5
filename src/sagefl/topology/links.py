"""Dropped and delayed messages, and the neighbourhoods that remain in a round.

A link is directed, `receiver <- peer`: k may hear j while j does not hear k. A dropped link is dead for the whole round
(no probe, no model). A delayed one answers from an old snapshot, `age` rounds old, where 0 is the current one. Draws
are keyed by `(seed, purpose, round)` alone and follow the order of the graph's rows, so every method meets the same
conditions; drops and delays have their own streams, so changing one does not change the other. Rounds count from 0: in
round t there are t older snapshots, so no age exceeds t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..streams import stream
from ._common import BoolArray, IntArray, Seed, TopologyError, frozen, probability, whole
from .graphs import Graph


@dataclass(frozen=True, eq=False)
class LinkState:
    """The directed links of one round, aligned with `graph.indices`."""

    ok: BoolArray
    """Whether the link works."""
    age: IntArray
    """How many rounds old the answering snapshot is; 0 is current."""


@dataclass(frozen=True)
class Links:
    """Independent message loss and delay on every directed link of every round.

    A link is dropped with probability `drop`; it is delayed with probability `delay`, by 1 to `max_delay` rounds, all
    equally likely. The simulator has to keep the last `max_delay` snapshots if `delay` > 0.
    """

    drop: float = 0.0
    delay: float = 0.0
    max_delay: int = 1

    def __post_init__(self) -> None:
        probability("drop", self.drop)
        probability("delay", self.delay)
        whole("max_delay", self.max_delay, 1)

    @property
    def history(self) -> int:
        """How many older snapshots must be kept to answer delayed messages."""
        return self.max_delay if self.delay > 0 else 0

    def sample(self, graph: Graph, round: int, seed: Seed) -> LinkState:
        """The state of every link of the graph in one round."""
        round, size = whole("round", round), graph.indices.size
        ok, age = np.ones(size, dtype=np.bool_), np.zeros(size, dtype=np.int64)
        if self.drop > 0:
            ok = stream(seed, "link-drop", round).random(size) >= self.drop
        if self.delay > 0:
            rng = stream(seed, "link-delay", round)
            late = rng.random(size) < self.delay
            age = np.where(late, rng.integers(1, self.max_delay, size=size, endpoint=True), 0)
        return LinkState(ok, np.minimum(age, round))


@dataclass(frozen=True, eq=False)
class View:
    """Every client's neighbourhood in one round, as compressed rows like `Graph`'s. Read-only."""

    indptr: IntArray
    indices: IntArray
    staleness: IntArray
    """The age of the snapshot behind every entry of `indices`."""

    def _row(self, client: int) -> slice:
        if not 0 <= client < self.indptr.size - 1:
            raise TopologyError(f"no client {client}: they are numbered 0 to {self.indptr.size - 2}")
        return slice(self.indptr[client], self.indptr[client + 1])

    def peers(self, client: int) -> IntArray:
        """Whom the client can ask in this round, in ascending order; empty if it is inactive or alone."""
        return self.indices[self._row(client)]

    def ages(self, client: int) -> IntArray:
        """How old each of these peers' snapshots is, in rounds."""
        return self.staleness[self._row(client)]

    @property
    def degrees(self) -> IntArray:
        """The number of peers of every client: d of this round."""
        return np.diff(self.indptr)


def neighbourhoods(
    graph: Graph, active: npt.ArrayLike, links: Links, round: int, seed: Seed, behind: npt.ArrayLike = 0
) -> View:
    """Who can ask whom: both clients are active and the link between them works.

    `behind` says of every client how many rounds old what it hands over is, before any delay of the link.
    """
    present = np.asarray(active)
    if present.dtype != np.bool_ or present.shape != (graph.clients,):
        raise TopologyError(
            f"active must hold one truth value for each of the {graph.clients} clients, "
            f"got {present.dtype} of shape {present.shape}"
        )
    state = links.sample(graph, round, seed)
    keep = present[graph.receivers] & present[graph.indices] & state.ok
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    age = np.minimum(state.age + np.broadcast_to(behind, graph.clients)[graph.indices], round)
    rows = kept_before[graph.indptr], graph.indices[keep], age[keep]
    return View(*(frozen(part) for part in rows))
