"""Driving a selector: ask-and-answer decisions, the ledger of paid evidence, and replay of recorded losses.

`Decision` turns the generator a selector author wrote into the loop a user wants::

    while (probe := decision.request) is not None:
        decision.answer(my_losses(probe.peers, probe.start, probe.stop))

It checks every answer before the rule sees it, buffers answers that come in pieces, keeps the account of what was
asked, and can be restarted on fewer peers without paying twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace as _replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .outcome import Exchange, Outcome, Reason, State
from .requests import ME, Array, Inspect, Mask, Peer, Probe, Request
from .selector import Draws, Hood, Selector

__all__ = ["Decision", "DecisionError", "Ledger", "replay"]


class DecisionError(ValueError):
    """An answer or argument that does not fit; the decision stays as it was."""


class Ledger:
    """The account of one decision: (peer, anchor) -> loss, models inspected, messages read."""

    __slots__ = ("anchors", "books", "evaluations", "inspected", "peers", "reads", "rows")

    def __init__(self, peers: tuple[Peer, ...], anchors: int) -> None:
        self.peers = peers
        self.anchors = anchors
        self.rows = {p: i for i, p in enumerate(peers)}
        self.books: dict[tuple[str, str], Array] = {}
        self.evaluations = 0
        self.inspected: dict[Peer, None] = {}  # an ordered set
        self.reads: dict[str, int] = {}

    def book(self, probe: Probe) -> Array:
        """The (peers x anchors) losses of one kind of probe; NaN where nothing was asked."""
        key = (probe.kind, probe.loss)
        book = self.books.get(key)
        if book is None:
            book = self.books[key] = np.full((len(self.peers), self.anchors), np.nan)
        return book

    def restricted(self, peers: tuple[Peer, ...]) -> Ledger:
        """The same account for some of the peers; what was spent on the others stays spent."""
        kept = Ledger(peers, self.anchors)
        rows = [self.rows[p] for p in peers]
        kept.books = {key: book[rows] for key, book in self.books.items()}
        kept.evaluations, kept.inspected, kept.reads = (
            self.evaluations,
            dict(self.inspected),
            dict(self.reads),
        )
        return kept


class Decision:
    """One client-round decision in ask-and-answer form. Made by `Selector.begin`."""

    __slots__ = (
        "_asked", "_at", "_generator", "_outcome", "_pending", "_rows", "anchors", "hood", "ledger", "seed",
        "selector", "state",
    )  # fmt: skip

    def __init__(
        self,
        selector: Selector,
        hood: Hood,
        *,
        seed: int | tuple[int, ...] = 0,
        state: State | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        _check_hood(hood)
        _check_seed(seed)
        self.selector, self.hood, self.seed, self.state = selector, hood, seed, state
        self.anchors = 0  # the furthest anchor the rule has looked at
        self._asked: Request | None = None
        self._outcome: Outcome | None = None
        self._at = 0  # the first column of the open probe that is not answered yet
        self._rows: Any = slice(None)  # where the open probe's peers stand in the ledger
        self._pending: Mask | None = None  # what of it must be asked; None: everything
        if ledger is not None and not hood.peers:
            self.ledger = ledger
            self._finish(Exchange.none(Reason.FAILED, state=state))
            return
        self.ledger = ledger or Ledger(hood.peers, hood.anchors)
        self._generator = selector.decide(hood, dict(state or {}), Draws(seed))
        self._advance(None)

    # What a user sees ---------------------------------------------------------------------------------------------

    @property
    def request(self) -> Request | None:
        """What is still to be answered, or None when the decision is finished."""
        asked = self._asked
        if not isinstance(asked, Probe) or (self._at == asked.start and self._pending is asked.mask):
            return asked
        mask = None if self._pending is None else self._pending[:, self._at - asked.start :]
        return _replace(asked, start=self._at, mask=None if mask is None or mask.all() else mask)

    @property
    def outcome(self) -> Outcome:
        """The result, once `request` is None."""
        if self._outcome is None:
            raise DecisionError(f"the decision is still open: answer {self.request} first")
        return self._outcome

    def answer(self, answer: npt.ArrayLike | Sequence[Any]) -> None:
        """Answer the open request; for a probe, any number of its columns from the left."""
        asked = self._asked
        if asked is None:
            raise DecisionError("the decision is finished: there is nothing to answer; read .outcome")
        if isinstance(asked, Probe):
            self._answer_probe(asked, answer)
        elif isinstance(asked, Inspect):
            rows = _finite_rows(answer, len(asked.groups or asked.peers), "one value or row per inspected model")
            self.ledger.inspected.update(dict.fromkeys(asked.models))
            self._advance(rows)
        else:
            items = _finite_items(answer, len(asked.peers))
            self.ledger.reads[asked.what] = self.ledger.reads.get(asked.what, 0) + len(asked.peers)
            self._advance(items)

    def restart(self, responders: Iterable[Peer]) -> Decision:
        """The decision begun anew on the peers that still answer; what was paid for is not asked again.

        A peer that drops out changes what gossip means, so the rule must run again from its first stage on the
        responders. Nobody left ends it with reason ``failed``.
        """
        left = set(responders)
        if strangers := left - set(self.hood.peers):
            raise DecisionError(
                f"cannot restart on peers that were not neighbours before: {sorted(map(repr, strangers))}"
            )
        survivors = tuple(p for p in self.hood.peers if p in left)
        return Decision(
            self.selector,
            _replace(self.hood, peers=survivors),
            seed=self.seed,
            state=self.state,
            ledger=self.ledger.restricted(survivors),
        )

    # How it works -------------------------------------------------------------------------------------------------

    def _advance(self, answer: Any) -> None:
        """Hand the rule its answer and open its next request, served from the ledger as far as that reaches."""
        while True:
            try:
                asked = self._generator.send(answer)
            except StopIteration as stop:
                self._asked = None
                self._finish(stop.value)
                return
            self._check_asked(asked)
            self._asked = asked
            if not isinstance(asked, Probe):
                return
            self._open_probe(asked)
            if self._at < asked.stop:
                return
            answer = self._columns(asked)

    def _open_probe(self, probe: Probe) -> None:
        """Find what of `probe` the ledger does not hold yet."""
        same = probe.peers == self.hood.peers
        self._rows = slice(None) if same else np.array([self.ledger.rows[p] for p in probe.peers])
        self._at, self._pending = probe.start, probe.mask
        self.anchors = max(self.anchors, probe.stop)
        known = ~np.isnan(self.ledger.book(probe)[self._rows, probe.start : probe.stop])
        if known.any():
            self._pending = ~known if probe.mask is None else ~known & probe.mask
        self._skip_known(probe)

    def _skip_known(self, probe: Probe) -> None:
        if self._pending is not None:
            open_columns = self._pending[:, self._at - probe.start :].any(axis=0)
            self._at = self._at + int(open_columns.argmax()) if open_columns.any() else probe.stop

    def _answer_probe(self, probe: Probe, answer: Any) -> None:
        losses = self._checked_losses(probe, answer)
        width = losses.shape[1]
        book = self.ledger.book(probe)
        asked = None if self._pending is None else self._pending[:, self._at - probe.start :][:, :width]
        if asked is None:
            book[self._rows, self._at : self._at + width] = losses
            self.ledger.evaluations += losses.size
        else:
            held = book[self._rows, self._at : self._at + width]
            book[self._rows, self._at : self._at + width] = np.where(asked, losses, held)
            self.ledger.evaluations += int(asked.sum())
        self._at += width
        self._skip_known(probe)
        if self._at >= probe.stop:
            self._advance(self._columns(probe))

    def _columns(self, probe: Probe) -> Array:
        """The whole answer to `probe`, always laid out the same way so that sums do not depend on batching."""
        losses: Array = np.array(self.ledger.book(probe)[self._rows, probe.start : probe.stop], order="C")
        if probe.mask is not None:
            losses[~probe.mask] = np.nan
        return losses

    def _checked_losses(self, probe: Probe, answer: Any) -> Array:
        try:
            losses: Array = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DecisionError(f"losses must be numbers: {error}") from None
        rows, most = len(probe.peers), probe.stop - self._at
        if losses.ndim != 2 or losses.shape[0] != rows or not 1 <= losses.shape[1] <= most:
            raise DecisionError(
                f"expected losses of shape ({rows} peers, 1 to {most} anchors), got {losses.shape}: "
                f"one row per peer of the request, one column per anchor from {self._at} on"
            )
        bound = self.selector.bound
        values = losses
        if self._pending is not None:
            values = losses[self._pending[:, self._at - probe.start :][:, : losses.shape[1]]]
        if values.size and not (values.min() >= 0.0 and values.max() <= bound):  # a NaN fails both
            raise DecisionError(_bad_loss(values, bound))
        return losses

    def _check_asked(self, asked: Any) -> None:
        """A selector's own mistakes: a request nobody could answer."""
        name = type(self.selector).__name__
        if not isinstance(asked, Request):
            raise TypeError(f"{name} yielded {asked!r}; a selector yields Probe, Inspect or Read")
        if asked.peers != self.hood.peers and (extra := set(asked.peers) - self.ledger.rows.keys() - {ME}):
            raise ValueError(f"{name} asked peers that are not in the neighbourhood: {sorted(map(repr, extra))}")
        if isinstance(asked, Probe) and not 0 <= asked.start < asked.stop <= self.hood.anchors:
            raise ValueError(f"{name} asked for anchors {asked.start}..{asked.stop} of a pool of {self.hood.anchors}")

    def _finish(self, exchange: Exchange) -> None:
        if not isinstance(exchange, Exchange):
            raise TypeError(f"{type(self.selector).__name__}.decide returned {exchange!r}, not an Exchange")
        self._outcome = Outcome(
            exchange.peers,
            exchange.selected,
            exchange.reason,
            exchange.weights,
            exchange.direction,
            self.anchors,
            self.ledger.evaluations,
            tuple(self.ledger.inspected),
            self.ledger.reads,
            exchange.trace,
            exchange.state,
        )


def replay(
    selector: Selector,
    losses: npt.ArrayLike,
    seed: int | tuple[int, ...] = 0,
    *,
    peers: Sequence[Peer] | None = None,
    state: State | None = None,
    round: int = 0,
    rounds: int | None = None,
    me: Hashable = None,
) -> Outcome:
    """What `selector` decides on a recorded (peers x anchors) matrix; peers are named 0..d-1 unless given."""
    matrix: Array = np.asarray(losses, dtype=np.float64)
    if matrix.ndim != 2:
        raise DecisionError(f"expected a (peers x anchors) matrix, got shape {matrix.shape}")
    names = tuple(range(len(matrix))) if peers is None else tuple(peers)
    if len(names) != len(matrix):
        raise DecisionError(f"{len(names)} peer names for {len(matrix)} rows of losses")
    row = {p: i for i, p in enumerate(names)}
    decision = selector.begin(names, matrix.shape[1], seed, state=state, round=round, rounds=rounds, me=me)
    while (probe := decision.request) is not None:
        if not isinstance(probe, Probe):
            raise DecisionError(
                f"{type(selector).__name__} asks for {type(probe).__name__}: recorded losses answer probes only"
            )
        rows: Any = slice(None) if probe.peers == names else [row[p] for p in probe.peers]
        decision.answer(matrix[rows, probe.start : probe.stop])
    return decision.outcome


def _check_hood(hood: Hood) -> None:
    if len(set(hood.peers)) != len(hood.peers):
        twice = sorted({repr(p) for p in hood.peers if hood.peers.count(p) > 1})
        raise DecisionError(f"peers must be distinct, but {', '.join(twice)} stands more than once")
    if ME in hood.peers:
        raise DecisionError(f"{ME!r} names the receiver itself; give the peer another name")
    if not isinstance(hood.anchors, int | np.integer) or hood.anchors < 0:
        raise DecisionError(f"anchors is the size of the anchor pool, a whole number >= 0, got {hood.anchors!r}")


def _check_seed(seed: Any) -> None:
    parts = seed if isinstance(seed, tuple) else (seed,)
    if not all(isinstance(part, int | np.integer) and part >= 0 for part in parts):
        raise DecisionError(f"seed must be a whole number >= 0 or a tuple of them, got {seed!r}")


def _bad_loss(values: Array, bound: float) -> str:
    if not np.isfinite(values).all():
        return f"losses must be finite, got {values[~np.isfinite(values)][0]}: drop the peer and restart the decision"
    worst = values.min() if values.min() < 0 else values.max()
    return f"losses must lie in [0, {bound:g}], got {worst:g}: clip or scale them, or set loss_bound"


def _finite_rows(answer: Any, rows: int, what: str) -> Array:
    try:
        values: Array = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DecisionError(f"expected {what}: {error}") from None
    if values.ndim == 0 or len(values) != rows:
        raise DecisionError(f"expected {what} ({rows}), got shape {values.shape}")
    if not np.isfinite(values).all():
        raise DecisionError(f"expected {what}, all finite")
    return values


def _finite_items(answer: Any, count: int) -> list[Array]:
    items = list(answer)
    if len(items) != count:
        raise DecisionError(f"expected one item per peer read ({count}), got {len(items)}")
    values: list[Array] = [np.asarray(item, dtype=np.float64) for item in items]
    if not all(np.isfinite(value).all() for value in values):
        raise DecisionError("what is read from peers must be finite")
    return values
