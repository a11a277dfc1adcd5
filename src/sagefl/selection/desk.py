"""What a receiver has been told in a round: losses by peer, anchor and form of answer, in [0, 1].

Whoever drives decisions for real, the simulator and a node, keeps one desk per receiver: it says what of a probe is
still to be asked, takes in what peers' answers came to, hands the decision its losses, and gives for the record what
was paid for. A decision's own ledger knows only what it has asked for, in units of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .decision import Decision, Ledger
from .requests import Array, Peer, Probe
from .scoring import Scoring

Indices = npt.NDArray[np.int64]


class Desk:
    """One receiver in one round; `peers` are all that may be asked, `anchors` the size of its pool."""

    __slots__ = ("_books", "_rows", "anchors")

    def __init__(self, peers: Sequence[Peer], anchors: int) -> None:
        self.anchors = anchors
        self._rows = {peer: row for row, peer in enumerate(peers)}
        self._books: dict[Scoring, Array] = {}

    def missing(self, probe: Probe, upto: int = 0) -> Iterator[tuple[Peer, Indices]]:
        """Whom to ask about which anchors: what of `probe` has not been told yet.

        Without a mask it may run ahead of the probe, to `upto`: what is fetched ahead is not paid for.
        """
        stop = probe.stop if probe.mask is not None else min(max(probe.stop, upto), self.anchors)
        missing = np.isnan(self._book(probe.scoring)[self._at(probe.peers), probe.start : stop])
        if probe.mask is not None:
            missing &= probe.mask
        every = np.arange(probe.start, stop)
        for peer, lacking, count in zip(probe.peers, missing, missing.sum(axis=1).tolist(), strict=True):
            if count:
                yield peer, every if count == len(every) else every[lacking]

    def file(self, peer: Peer, anchors: Indices, scoring: Scoring, losses: npt.ArrayLike) -> None:
        """Take in what a peer's answers came to."""
        self._book(scoring)[self._rows[peer], anchors] = losses

    def answer(self, decision: Decision) -> None:
        """Hand a decision the losses that its open probe asks for, in the rule's units."""
        probe = decision.request
        assert isinstance(probe, Probe)
        losses = self._book(probe.scoring)[self._at(probe.peers), probe.start : probe.stop]
        decision.answer(losses * decision.selector.bound)

    def paid(self, ledger: Ledger) -> dict[Scoring, Array]:
        """The losses that a decision paid for, by form of answer; NaN where it did not ask."""
        rows = self._at(ledger.peers)
        return {form: np.where(np.isnan(book), np.nan, self._book(form)[rows]) for form, book in ledger.books.items()}

    def upto(self, scoring: Scoring, peers: Sequence[Peer], stop: int) -> Array:
        """Everything told about the first `stop` anchors, asked for or not."""
        return self._book(scoring)[self._at(peers), :stop]

    def _book(self, scoring: Scoring) -> Array:
        book = self._books.get(scoring)
        if book is None:
            book = self._books[scoring] = np.full((len(self._rows), self.anchors), np.nan)
        return book

    def _at(self, peers: Sequence[Peer]) -> list[int]:
        return [self._rows[peer] for peer in peers]
