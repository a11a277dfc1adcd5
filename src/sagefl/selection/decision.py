"""One decision in ask-and-answer form, and the ledger of the evidence it has paid for.

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

from ..errors import UsageError
from .mistakes import blaming, check_asked, check_exchange
from .outcome import Exchange, Outcome, Reason, State
from .requests import ME, Array, Inspect, Mask, Peer, Probe, Read, Request
from .scoring import Scoring
from .selector import Draws, Hood, Selector


class DecisionError(UsageError):
    """An answer or argument that does not fit; the decision stays as it was."""


class Ledger:
    """The account of one decision: (peer, anchor) -> loss, models inspected, messages read."""

    __slots__ = ("anchors", "asked", "books", "inspected", "kept", "peers", "reach", "reads", "rows")

    def __init__(self, peers: tuple[Peer, ...], anchors: int) -> None:
        self.peers = peers
        self.anchors = anchors
        self.rows = {p: i for i, p in enumerate(peers)}
        self.books: dict[Scoring, Array] = {}
        self.reach = 0  # no book holds a loss from this anchor on
        self.asked: dict[Scoring, int] = {}  # evaluations by form of answer
        self.inspected: dict[Peer, None] = {}  # an ordered set
        self.reads: dict[str, int] = {}
        self.kept: dict[Hashable, Array] = {}  # what inspections and reads have answered

    def book(self, probe: Probe) -> Array:
        """The (peers x anchors) losses of one form of answer; NaN where nothing was asked."""
        book = self.books.get(probe.scoring)
        if book is None:
            book = self.books[probe.scoring] = np.full((len(self.peers), self.anchors), np.nan)
        return book

    @property
    def evaluations(self) -> int:
        """Anchor-peer evaluations paid for."""
        return sum(self.asked.values())

    def charge(self, probe: Probe, upto: int, evaluations: int) -> None:
        """Pay for evaluations of anchors before `upto`."""
        self.asked[probe.scoring] = self.asked.get(probe.scoring, 0) + evaluations
        self.reach = max(self.reach, upto)

    def missing(self, asked: Inspect | Read) -> tuple[Any, ...]:
        """The peers, or groups of them, whose answer is not held yet."""
        return tuple(entry for entry in asked.entries if (asked.key, entry) not in self.kept)

    def held(self, asked: Inspect | Read) -> list[Array]:
        """The whole answer, one item per entry, for the rule to keep."""
        return [self.kept[asked.key, entry].copy() for entry in asked.entries]

    def keep(self, asked: Inspect | Read, entries: Sequence[Any], answers: Iterable[Array]) -> None:
        """Book what was just answered for `entries` and what it cost; oneself is free."""
        for entry, answer in zip(entries, answers, strict=True):
            self.kept[asked.key, entry] = answer
        if isinstance(asked, Inspect):
            self.inspected.update(dict.fromkeys(asked.models))
        else:
            messages = sum(p != ME for p in entries)
            self.reads[asked.what] = self.reads.get(asked.what, 0) + messages

    def restricted(self, peers: tuple[Peer, ...]) -> Ledger:
        """The same account for some of the peers; what was spent on the others stays spent."""
        left = Ledger(peers, self.anchors)
        rows = [self.rows[p] for p in peers]
        left.books = {key: book[rows] for key, book in self.books.items()}
        left.reach, left.asked = self.reach, dict(self.asked)
        left.inspected, left.reads, left.kept = dict(self.inspected), dict(self.reads), dict(self.kept)
        return left


class Decision:
    """One client-round decision in ask-and-answer form. Made by `Selector.begin`."""

    __slots__ = (
        "_asked", "_at", "_book", "_failure", "_generator", "_missing", "_outcome", "_pending", "_rows", "anchors",
        "hood", "ledger", "seed", "selector", "state",
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
        self._failure: str | None = None  # what the rule itself raised
        self._at = 0  # the first column of the open probe that is not answered yet
        self._book: Array  # the losses of the open probe's form of answer
        self._rows: Any = slice(None)  # where the open probe's peers stand in the book
        self._pending: Mask | None = None  # what of it must be asked; None: everything
        self._missing: tuple[Any, ...] = ()  # what of an open inspection or read must be asked
        if ledger is not None and not hood.peers and not selector.remembers:
            self.ledger = ledger
            self._finish(Exchange.none(Reason.FAILED, state=state))
            return
        self.ledger = ledger or Ledger(hood.peers, hood.anchors)
        self._generator = selector.decide(hood, dict(state or {}), Draws(seed))
        with blaming(selector):
            if not hasattr(self._generator, "send"):
                raise TypeError(
                    f"{type(selector).__name__}.decide has no yield: put `yield from ()` where it asks nothing"
                )
        self._advance(None)

    # What a user sees ---------------------------------------------------------------------------------------------

    @property
    def request(self) -> Request | None:
        """What is still to be answered, or None when the decision is finished."""
        asked = self._asked
        if asked is None:
            return None
        if not isinstance(asked, Probe):
            return asked if self._missing == asked.entries else asked.only(self._missing)
        if self._at == asked.start and self._pending is asked.mask:
            return asked
        mask = None if self._pending is None else self._pending[:, self._at - asked.start :]
        return _replace(asked, start=self._at, mask=None if mask is None or mask.all() else mask)

    @property
    def outcome(self) -> Outcome:
        """The result, once `request` is None."""
        if self._outcome is None:
            self._check_alive()
            raise DecisionError(f"the decision is still open: answer {self.request} first")
        return self._outcome

    def answer(self, answer: npt.ArrayLike | Sequence[Any]) -> None:
        """Answer the open request; for a probe, any number of its columns from the left.

        Losses must lie in [0, M]; M rounded to float32 counts as M. An answer refused with `DecisionError` changes
        nothing. An error that the rule itself raises ends the decision: begin anew, or `restart` without the peer.
        """
        asked = self._asked
        if asked is None:
            self._check_alive()
            raise DecisionError("the decision is finished: there is nothing to answer; read .outcome")
        if isinstance(asked, Probe):
            self._answer_probe(asked, answer)
        elif isinstance(asked, Inspect):
            rows = _finite_rows(answer, len(self._missing), asked)
            self.ledger.keep(asked, self._missing, rows)
            self._advance(np.array(self.ledger.held(asked)))
        else:
            items = _finite_items(answer, len(self._missing))
            self.ledger.keep(asked, self._missing, items)
            self._advance(self.ledger.held(asked))

    def restart(self, responders: Iterable[Peer]) -> Decision:
        """The decision started over with the peers that still answer; what was paid for is not asked again.

        A peer that drops out changes what gossip means, so the rule must run again from its first stage on those that
        are left. Rules that certify go on at half of their delta (`Selector.restarted`): however many peers drop out,
        a certificate of the whole decision is wrong with a probability below 2 delta. If nobody is left, the decision
        ends with reason `failed`; a rule that remembers is run once more, to hold it against those who left.
        """
        left = set(responders)
        if strangers := left - set(self.hood.peers):
            raise DecisionError(
                f"cannot restart on peers that were not neighbours before: {', '.join(sorted(map(repr, strangers)))}"
            )
        survivors = tuple(p for p in self.hood.peers if p in left)
        ages = tuple(age for p, age in zip(self.hood.peers, self.hood.ages, strict=False) if p in left)
        silent = (*self.hood.silent, *(p for p in self.hood.peers if p not in left))
        return Decision(
            self.selector.restarted(),
            _replace(self.hood, peers=survivors, silent=silent, ages=ages),
            seed=self.seed,
            state=self.state,
            ledger=self.ledger.restricted(survivors),
        )

    # How it works -------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise DecisionError(f"the rule failed ({self._failure}): begin anew, or restart on other peers")

    def _advance(self, answer: Any) -> None:
        """Hand the rule its answer; what it raises ends the decision."""
        try:
            self._step(answer)
        except Exception as error:
            self._asked, self._failure = None, f"{type(error).__name__}: {error}"
            raise

    def _step(self, answer: Any) -> None:
        """Open the rule's next request, served from the ledger as far as that reaches."""
        while True:
            try:
                asked = self._generator.send(answer)
            except StopIteration as stop:
                self._asked = None
                self._finish(stop.value)
                return
            with blaming(self.selector):
                check_asked(asked, self.selector, self.hood)
            self._asked = asked
            if isinstance(asked, Probe):
                self._open_probe(asked)
                if self._at < asked.stop:
                    return
                answer = self._columns(asked)
            else:
                self._missing = self.ledger.missing(asked)
                if self._missing:
                    return
                held = self.ledger.held(asked)
                answer = np.array(held) if isinstance(asked, Inspect) else held

    def _open_probe(self, probe: Probe) -> None:
        """Find what of `probe` the ledger does not hold yet."""
        same = probe.peers == self.hood.peers
        self._rows = slice(None) if same else np.array([self.ledger.rows[p] for p in probe.peers], dtype=np.intp)
        self._book = self.ledger.book(probe)
        self._at, self._pending = probe.start, probe.mask
        self.anchors = max(self.anchors, probe.stop)
        if probe.start < self.ledger.reach:
            known = ~np.isnan(self._book[self._rows, probe.start : probe.stop])
            if known.any():
                self._pending = ~known if probe.mask is None else ~known & probe.mask
        self._skip_known(probe)

    def _skip_known(self, probe: Probe) -> None:
        if self._pending is not None:
            open_columns = self._pending[:, self._at - probe.start :].any(axis=0)
            self._at = self._at + int(open_columns.argmax()) if open_columns.any() else probe.stop

    def _answer_probe(self, probe: Probe, answer: Any) -> None:
        losses = _numbers(answer)
        rows, most = len(probe.peers), probe.stop - self._at
        if losses.ndim != 2 or losses.shape[0] != rows or not 1 <= losses.shape[1] <= most:
            raise DecisionError(
                f"expected losses of shape ({rows} peers, 1 to {most} anchors), got {losses.shape}: "
                f"one row per peer of the request, one column per anchor from {self._at} on"
            )
        upto = self._at + losses.shape[1]
        if self._pending is None:
            losses = _bounded(losses, self.selector.bound)
            spent = losses.size
        else:
            wanted = self._pending[:, self._at - probe.start : upto - probe.start]
            held = self._book[self._rows, self._at : upto]
            losses = np.where(wanted, _bounded(losses, self.selector.bound, wanted), held)
            spent = int(wanted.sum())
        self._book[self._rows, self._at : upto] = losses
        self.ledger.charge(probe, upto, spent)
        if self._at == probe.start and upto == probe.stop and self._pending is None:
            self._advance(losses)
            return
        self._at = upto
        self._skip_known(probe)
        if self._at >= probe.stop:
            self._advance(self._columns(probe))

    def _columns(self, probe: Probe) -> Array:
        """The whole answer to `probe`, laid out like one that came in one piece."""
        losses: Array = np.array(self._book[self._rows, probe.start : probe.stop], order="C")
        if probe.mask is not None:
            losses[~probe.mask] = np.nan
        return losses

    def _finish(self, exchange: Exchange) -> None:
        with blaming(self.selector):
            check_exchange(exchange, self.selector, self.ledger.rows)
        self._outcome = Outcome(
            exchange.peers,
            exchange.selected,
            Reason(exchange.reason) if self.hood.peers or not self.hood.silent else Reason.FAILED,
            exchange.weights,
            exchange.direction,
            self.anchors,
            self.ledger.evaluations,
            tuple(self.ledger.inspected),
            dict(self.ledger.reads),
            exchange.trace,
            exchange.state,
        )


# What users may get wrong ---------------------------------------------------------------------------------------------


def _check_hood(hood: Hood) -> None:
    try:
        distinct = set(hood.peers)
    except TypeError as error:
        raise DecisionError(f"peers must be hashable (strings, numbers, tuples): {error}") from None
    if len(distinct) != len(hood.peers):
        twice = sorted({repr(p) for p in hood.peers if hood.peers.count(p) > 1})
        raise DecisionError(f"peers must be distinct, but {', '.join(twice)} stands more than once")
    if ME in distinct:
        raise DecisionError(f"{ME!r} names the receiver itself; give the peer another name")
    if not isinstance(hood.anchors, int | np.integer) or hood.anchors < 0:
        raise DecisionError(f"anchors is the size of the anchor pool, a whole number >= 0, got {hood.anchors!r}")


def _check_seed(seed: Any) -> None:
    parts = seed if isinstance(seed, tuple) else (seed,)
    if not parts or not all(isinstance(part, int | np.integer) and part >= 0 for part in parts):
        raise DecisionError(f"seed must be a whole number >= 0 or a tuple of them, got {seed!r}")


def _numbers(answer: Any) -> Array:
    """An own copy of the answer, always laid out the same way, so that no sum depends on whose array it was."""
    try:
        return np.array(answer, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise DecisionError(f"losses must be numbers: {error}") from None


def _bounded(losses: Array, bound: float, wanted: Mask | None = None) -> Array:
    """The losses if those `wanted` lie in [0, M]; M rounded to float32 counts as M."""
    values = losses.ravel() if wanted is None else losses[wanted]
    if not values.size:
        return losses
    lowest, highest = values[values.argmin()], values[values.argmax()]  # both find a NaN; cheaper than min and max
    if lowest >= 0.0 and highest <= bound:
        return losses
    if lowest >= 0.0 and highest <= np.float32(bound):
        return np.minimum(losses, bound)
    if not np.isfinite(values).all():
        worst = values[~np.isfinite(values)][0]
        raise DecisionError(f"losses must be finite, got {worst}: drop the peer and restart the decision")
    worst = lowest if lowest < 0 else highest
    raise DecisionError(f"losses must lie in [0, {bound:g}], got {worst:g}: clip or scale them, or set loss_bound")


def _finite_rows(answer: Any, rows: int, asked: Inspect) -> Array:
    by_sample = asked.metric == "losses" and asked.groups is None
    what = f"one finite {'row of losses' if by_sample else 'number'} per inspected model ({rows})"
    try:
        values: Array = np.array(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DecisionError(f"expected {what}: {error}") from None
    if values.ndim != (2 if by_sample else 1) or len(values) != rows:
        raise DecisionError(f"expected {what}, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise DecisionError(f"expected {what}, got {values[~np.isfinite(values)][0]}")
    return values


def _finite_items(answer: Any, count: int) -> list[Array]:
    what = f"one finite number or array per peer read ({count})"
    try:
        values: list[Array] = [np.array(item, dtype=np.float64) for item in answer]
    except (TypeError, ValueError) as error:
        raise DecisionError(f"expected {what}: {error}") from None
    if len(values) != count:
        raise DecisionError(f"expected {what}, got {len(values)}")
    if not all(np.isfinite(value).all() for value in values):
        raise DecisionError(f"expected {what}, got a value that is not")
    return values
