"""What a decision ends with: the exchange a selector returns, and the outcome with what it cost and why.

`Exchange` is what a selector returns; `Outcome` is that plus the account the driver kept (evaluations, models and
messages actually asked for) and is what users read. Both are plain data; an outcome goes to JSON and back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from .requests import Peer

__all__ = ["Exchange", "Outcome", "Reason", "Stage", "State"]

State = dict[str, Any]
"""Per-client memory across rounds: arrays and JSON values, nothing else."""


class Reason(StrEnum):
    """Why a decision ended."""

    CERTIFIED = "certified"  # the evidence proves the choice at level delta
    COST = "cost"  # more evidence could not repay its price: gossip
    EXHAUSTED = "exhausted"  # all anchors used, nothing certified: gossip
    NO_ANCHORS = "no-anchors"  # the pool is smaller than the first stage: gossip
    COMMITTED = "committed"  # the rule commits without a certificate
    UNIFORM = "uniform"  # a uniform draw is the rule
    ONLY = "only"  # one neighbour, nothing to choose
    GATED = "gated"  # past rounds say probing does not pay here: gossip unasked
    FAILED = "failed"  # peers stopped answering
    NONE = "none"  # no exchange: no active neighbour, or the rule never exchanges


@dataclass(frozen=True, slots=True)
class Stage:
    """One look at the evidence. Fields a rule does not use stay None."""

    anchors: int
    fired: str  # certified | cost | exhausted | committed | continue
    test: str | None = None  # what the certificate looks at: advantage | gap | wealth; None: no certificate
    risks: tuple[float, ...] | None = None  # per peer, in the order the peers were given
    radius: float | None = None  # r of eq:radius
    width: float | None = None  # what the certificate compares with: 2r, or 2r(1 - 1/d) when tight
    advantage: float | None = None  # A of eq:gossip-advantage
    gap: float | None = None  # runner-up minus best
    next_cost: float | None = None  # price of the next stage in risk units (eq:stage-cost)
    wealth: tuple[float, ...] | None = None  # log-wealth per peer (betting certificates)
    threshold: float | None = None  # log-threshold the wealth must reach
    scores: tuple[float, ...] | None = None  # per peer, for rules that rank by a score of their own


@dataclass(frozen=True, slots=True)
class Exchange:
    """Whom to exchange with. Made by the named constructors below; `trace` and `state` travel along."""

    peers: tuple[Peer, ...]
    selected: bool
    reason: Reason
    weights: Mapping[Peer, float] | None = None
    direction: Literal["pull", "push"] = "pull"
    trace: tuple[Stage, ...] = ()
    state: State | None = None

    @classmethod
    def select(cls, peer: Peer, reason: Reason, trace: Sequence[Stage] = (), state: State | None = None) -> Exchange:
        """Commit to one peer."""
        return cls((peer,), True, reason, trace=tuple(trace), state=state)

    @classmethod
    def gossip(cls, peer: Peer, reason: Reason, trace: Sequence[Stage] = (), state: State | None = None) -> Exchange:
        """Take a randomly drawn peer: the outside option."""
        return cls((peer,), False, reason, trace=tuple(trace), state=state)

    @classmethod
    def none(cls, reason: Reason = Reason.NONE, trace: Sequence[Stage] = (), state: State | None = None) -> Exchange:
        """Exchange nothing this round."""
        return cls((), False, reason, trace=tuple(trace), state=state)

    @classmethod
    def merge(
        cls,
        peers: Sequence[Peer],
        reason: Reason,
        weights: Mapping[Peer, float] | None = None,
        *,
        selected: bool = True,
        trace: Sequence[Stage] = (),
        state: State | None = None,
    ) -> Exchange:
        """Merge several peers; without `weights` a uniform average over oneself and them."""
        if not peers:
            return cls.none(trace=trace, state=state)
        if weights is None:
            weights = {p: 1.0 / (len(peers) + 1) for p in peers}
        return cls(tuple(peers), selected, reason, weights=weights, trace=tuple(trace), state=state)

    @classmethod
    def push(
        cls, peers: Sequence[Peer], reason: Reason, trace: Sequence[Stage] = (), state: State | None = None
    ) -> Exchange:
        """Send one's own model to `peers` (sender-side selection)."""
        return cls(tuple(peers), bool(peers), reason, direction="push", trace=tuple(trace), state=state)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished decision.

    `weights` maps peers to weights, the rest stays with oneself; None means the caller's mixing coefficient.
    `anchors` is the final stage, `evaluations` the anchor-peer evaluations paid for, `inspected` the peers whose
    full model had to be moved to look at it, `reads` the control messages by what was read.
    """

    peers: tuple[Peer, ...]
    selected: bool
    reason: Reason
    weights: Mapping[Peer, float] | None = None
    direction: Literal["pull", "push"] = "pull"
    anchors: int = 0
    evaluations: int = 0
    inspected: tuple[Peer, ...] = ()
    reads: Mapping[str, int] = field(default_factory=dict)
    trace: tuple[Stage, ...] = ()
    state: State | None = None

    def to_json(self) -> str:
        """One line of JSON that `from_json` turns back into an equal outcome."""
        doc: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        doc["peers"] = [_encode(p) for p in self.peers]
        doc["inspected"] = [_encode(p) for p in self.inspected]
        doc["weights"] = None if self.weights is None else [[_encode(p), w] for p, w in self.weights.items()]
        doc["trace"] = [{k: v for k, v in asdict(s).items() if v is not None} for s in self.trace]
        doc["state"] = None if self.state is None else _encode(self.state)
        return json.dumps(doc, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """The inverse of `to_json`."""
        doc = json.loads(text)
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(doc) - known):
            raise ValueError(f"not an outcome: unknown fields {unknown}")
        doc["peers"] = tuple(_decode(p) for p in doc["peers"])
        doc["inspected"] = tuple(_decode(p) for p in doc["inspected"])
        doc["reason"] = Reason(doc["reason"])
        if doc["weights"] is not None:
            doc["weights"] = {_decode(p): w for p, w in doc["weights"]}
        doc["trace"] = tuple(_stage(s) for s in doc["trace"])
        doc["state"] = _decode(doc["state"])
        return cls(**doc)


def _stage(doc: dict[str, Any]) -> Stage:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in doc.items()}
    return Stage(**values)


def _encode(value: Any) -> Any:
    """Peers and state as JSON: scalars as they are, tuples and arrays tagged."""
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {"tuple": [_encode(v) for v in value]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, list):
        return [_encode(v) for v in value]
    if isinstance(value, dict):
        return {"dict": [[_encode(k), _encode(v)] for k, v in value.items()]}
    raise TypeError(
        f"cannot write {value!r} ({type(value).__name__}) to JSON: name peers by strings, numbers or tuples"
    )


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v) for v in value]
    if isinstance(value, dict):
        if "tuple" in value:
            return tuple(_decode(v) for v in value["tuple"])
        if "array" in value:
            return np.array(value["array"], dtype=value["dtype"])
        return {_decode(k): _decode(v) for k, v in value["dict"]}
    return value
