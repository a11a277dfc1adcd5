"""What the author of a rule may get wrong: requests that nobody could answer, exchanges that mean nothing.

Each mistake is one sentence that names the rule and the word, before anything is asked or mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import isfinite
from typing import Any

import numpy as np

from ..errors import UsageError
from .outcome import Exchange, Reason
from .requests import ME, METRICS, READS, SPLITS, Inspect, Peer, Probe, Read, Request
from .selector import Hood, Selector

ROUNDING = 1e-9  # by how much a sum of weights may exceed 1
REASONS = tuple(reason.value for reason in Reason)
WHOLE = (int, np.integer)


@contextmanager
def blaming(selector: Selector) -> Iterator[None]:
    """A rule of somebody's that asks or returns what it must not is their mistake; one of ours is a bug."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(selector).__module__.partition(".")[0] == __package__.partition(".")[0]:
            raise
        raise UsageError(str(error)) from None


def check_asked(asked: Any, selector: Selector, hood: Hood) -> None:
    """Refuse a request that nobody could answer or that would dodge its price."""
    name = type(selector).__name__
    if not isinstance(asked, Request):
        raise TypeError(f"{name} yielded {asked!r}; a selector yields Probe, Inspect or Read")
    if not isinstance(asked.peers, tuple | list):
        raise TypeError(f"{name} asks {asked.peers!r}; expected a tuple of peers, such as hood.peers or (peer,)")
    if asked.peers != hood.peers:
        free = () if isinstance(asked, Probe) else (ME,)
        if isinstance(asked, Probe) and ME in asked.peers:
            raise ValueError(f"{name} probes ME, itself: probes go to neighbours; Inspect or Read tells about oneself")
        if extra := set(asked.peers) - set(hood.peers) - {*free}:
            raise ValueError(f"{name} asked peers that are not in the neighbourhood: {sorted(map(repr, extra))}")
        if len(set(asked.peers)) != len(asked.peers):
            raise ValueError(f"{name} asked a peer twice in one request: {asked.peers}")
    if isinstance(asked, Probe):
        if not (isinstance(asked.start, WHOLE) and isinstance(asked.stop, WHOLE)):
            raise TypeError(f"{name} asked for anchors {asked.start!r}..{asked.stop!r}; expected whole numbers")
        if not 0 <= asked.start < asked.stop <= hood.anchors:
            raise ValueError(f"{name} asked for anchors {asked.start}..{asked.stop} of a pool of {hood.anchors}")
        _check_declared(asked, selector)
        if asked.mask is not None and (np.shape(asked.mask) != asked.shape or asked.mask.dtype != np.bool_):
            raise ValueError(f"{name}: a mask is a boolean array of shape {asked.shape}, got {np.shape(asked.mask)}")
    if isinstance(asked, Inspect) and (unpaid := set().union(*(asked.groups or ())) - {*asked.peers, ME}):
        raise ValueError(f"{name} averages models it did not ask for: {sorted(map(repr, unpaid))}")
    _check_words(asked, name)


def _check_words(asked: Request, name: str) -> None:
    """Refuse a misspelt word: nobody would notice that something else was measured, or nothing."""
    if isinstance(asked, Inspect):
        for what, word, words in (("split", asked.split, SPLITS), ("metric", asked.metric, METRICS)):
            if word not in words:
                raise ValueError(
                    f"{name} inspects the {what} {word!r}; expected one of {', '.join(words)}{_meant(word, words, 0.6)}"
                )
    elif isinstance(asked, Read) and asked.what not in READS and (hint := _meant(asked.what, READS, 0.75)):
        raise ValueError(f"{name} reads {asked.what!r}{hint} What a rule keeps needs another name")


def _meant(word: str, words: Sequence[str], cutoff: float) -> str:
    close = get_close_matches(word, words, n=1, cutoff=cutoff)
    return f", did you mean {close[0]!r}?" if close else ""


def _check_declared(probe: Probe, selector: Selector) -> None:
    """A rule asks for what it says it asks for: privacy, recording and replay rely on that before anything is asked."""
    name = type(selector).__name__
    if probe.scoring not in selector.scorings:
        declared = " or ".join(map(str, selector.scorings)) or "no probes"
        raise ValueError(f"{name} asked for {probe.scoring}, but declares {declared}: say so in its `scorings`")
    if probe.stop > selector.reach:
        raise ValueError(f"{name} asked for {probe.stop} anchors, but declares a `reach` of {selector.reach}")


def check_exchange(exchange: Any, selector: Selector, known: Collection[Peer]) -> None:
    """Refuse an exchange with a stranger or for an unknown reason, and weights that make no mix."""
    name = type(selector).__name__
    if not isinstance(exchange, Exchange):
        raise TypeError(f"{name}.decide returned {exchange!r}, not an Exchange")
    reason: Any = exchange.reason
    if not isinstance(reason, Reason) and reason not in REASONS:
        hint = _meant(str(reason), REASONS, 0.6)
        raise ValueError(f"{name} gives the reason {reason!r}; expected a sagefl.Reason{hint}")
    if not isinstance(exchange.state, Mapping | None):
        raise TypeError(f"{name} remembers {exchange.state!r}; expected a dictionary of arrays and JSON values")
    for peer in (*exchange.peers, *(exchange.weights or ())):
        if peer not in known:
            raise ValueError(f"{name} chose {peer!r}, which is not in the neighbourhood")
    if len(exchange.peers) > 1:
        if len(set(exchange.peers)) != len(exchange.peers):
            raise ValueError(f"{name} chose a peer twice: {exchange.peers}")
        if exchange.weights is None and exchange.direction == "pull":
            raise ValueError(f"{name} pulls {len(exchange.peers)} models without saying their weights")
    if exchange.weights is not None:
        _check_weights(exchange, name)


def _check_weights(exchange: Exchange, name: str) -> None:
    """A mix keeps a share of one's own model and adds a share of each pulled one; no share is negative."""
    weights = exchange.weights or {}
    if weights.keys() != set(exchange.peers):
        raise ValueError(f"{name} weighs {sorted(map(repr, weights))}, but chose {sorted(map(repr, exchange.peers))}")
    values = list(weights.values())
    if not (all(isfinite(w) and w >= 0 for w in values) and sum(values) <= 1 + ROUNDING):
        raise ValueError(f"{name}: weights are finite, not negative and sum to at most 1, got {values}")
