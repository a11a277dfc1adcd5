"""What a decision ends with: the exchange a selector returns, and the outcome with what it cost and why.

`Exchange` is what a selector returns; `Outcome` is that plus the account the driver kept (evaluations, models and
messages actually asked for) and is what users read. Both are plain data; an outcome goes to JSON and back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import isfinite
from typing import Any, Final, Literal

import numpy as np

from ..errors import UsageError
from .requests import Peer

State = dict[str, Any]
"""Per-client memory across rounds: arrays and JSON values, nothing else."""


class Reason(StrEnum):
    """Why a decision ended."""

    CERTIFIED = "certified"  # the evidence proves what the rule claims at level delta; what that is, the rule says
    COST = "cost"  # more evidence could not repay its price: gossip
    EXHAUSTED = "exhausted"  # all anchors used, nothing certified: gossip
    NO_ANCHORS = "no-anchors"  # the pool is smaller than the first stage: gossip
    COMMITTED = "committed"  # the rule commits without a certificate
    UNIFORM = "uniform"  # a uniform draw is the rule
    ONLY = "only"  # one neighbour, nothing to choose
    GATED = "gated"  # past rounds say probing does not pay here: gossip unasked
    OPEN = "open"  # nothing is proven yet: gossip
    HOME = "home"  # whatever could be pulled harms: one's own model stays as it is
    FAILED = "failed"  # peers stopped answering
    NONE = "none"  # no exchange: no active neighbour, or the rule never exchanges


CONTINUE: Final = "continue"
"""What a look led to after which the rule asks for more; every other look led to the reason that ends the decision."""

Fired = Reason | Literal["continue"]


def audited(meaning: str, only: str | None = None) -> Any:
    """A field of `Stage` that the audit of a decision keeps a column for (in `only` such runs); None if unused."""
    return field(default=None, metadata={"meaning": meaning, "only": only})


@dataclass(slots=True)  # not frozen: freezing triples what making one costs, and every look makes one
class Stage:
    """One look at the evidence. Fields a rule does not use stay None; lists have the peers' order."""

    anchors: int
    fired: Fired  # what it led to
    test: str | None = audited("what the certificate looks at: advantage, gap, wealth, trim, sign, memory or guard")
    risks: tuple[float, ...] | None = audited("each peer's mean loss on the anchors it was asked about")
    radius: float | None = audited("r of eq:radius")
    width: float | None = audited("what the certificate compares with: 2r, or 2r(1 - 1/d) when tight")
    advantage: float | None = audited("A of eq:gossip-advantage: mean risk minus the best one")
    gap: float | None = audited("risk of the runner-up minus the best one")
    next_cost: float | None = audited("price of the next stage in units of risk (eq:stage-cost)")
    wealth: tuple[float, ...] | None = audited("each peer's largest log-wealth so far; of sign tests one -log p")
    threshold: float | None = audited("log-threshold that the wealth must reach")
    against: tuple[float, ...] | None = audited("each peer's log-capital of bets that it is worse, over rounds")
    since: tuple[float, ...] | None = audited("the round, from 0, in which each peer's capital began")
    trial: tuple[float, ...] | None = audited("error on one's own pool alone, and with the model mixed in", "memory")
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


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A finished decision.

    `weights` maps peers to weights, the rest stays with oneself; None means the caller's mixing coefficient.
    `anchors` is the final stage, `evaluations` the anchor-peer evaluations paid for, `inspected` the peers whose
    full model had to be moved to look at it, `reads` the control messages by what was read. `state` is what the rule
    wants to be handed next time; None means that it has nothing new to remember.
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

    def __eq__(self, other: object) -> bool:
        """Field by field; arrays in `state` count as equal when all their entries are."""
        if not isinstance(other, Outcome):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> str:
        """One line of JSON that `from_json` turns back into an equal outcome."""
        doc = {
            "peers": [encode(p) for p in self.peers],
            "selected": bool(self.selected),
            "reason": self.reason,
            "weights": None if self.weights is None else [[encode(p), float(w)] for p, w in self.weights.items()],
            "direction": self.direction,
            "anchors": int(self.anchors),
            "evaluations": int(self.evaluations),
            "inspected": [encode(p) for p in self.inspected],
            "reads": {what: int(count) for what, count in self.reads.items()},
            "trace": [_line(stage) for stage in self.trace],
            "state": encode(self.state),
        }
        return json.dumps(doc, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """The inverse of `to_json`."""
        doc = json.loads(text)
        known = {f.name for f in fields(cls)}
        if not isinstance(doc, dict) or doc.keys() != known:
            odd = sorted(doc.keys() ^ known) if isinstance(doc, dict) else type(doc).__name__
            raise ValueError(f"not an outcome: expected exactly the fields {sorted(known)}, these differ: {odd}")
        doc["peers"] = tuple(decode(p) for p in doc["peers"])
        doc["inspected"] = tuple(decode(p) for p in doc["inspected"])
        doc["reason"] = Reason(doc["reason"])
        if doc["weights"] is not None:
            doc["weights"] = {decode(p): w for p, w in doc["weights"]}
        doc["trace"] = tuple(_stage(s) for s in doc["trace"])
        doc["state"] = decode(doc["state"])
        return cls(**doc)


@dataclass(frozen=True)
class Traffic:
    """The bytes, by kind, and the models of one client in one round."""

    probe_inputs: int = 0
    probe_answers: int = 0
    models: int = 0
    control: int = 0
    merged: int = 0
    transferred: int = 0

    @property
    def total(self) -> int:
        """All bytes."""
        return self.probe_inputs + self.probe_answers + self.models + self.control


def _line(stage: Stage) -> dict[str, Any]:
    values = {f.name: getattr(stage, f.name) for f in fields(stage)}
    return {k: encode(list(v) if isinstance(v, tuple) else v) for k, v in values.items() if v is not None}


def _stage(line: dict[str, Any]) -> Stage:
    values: dict[str, Any] = {k: tuple(decode(v)) if isinstance(v, list) else decode(v) for k, v in line.items()}
    if values["fired"] != CONTINUE:
        values["fired"] = Reason(values["fired"])
    return Stage(**values)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        alike = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype
        return alike and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def encode(value: Any) -> Any:
    """Peers and state as JSON: scalars as they are, tuples, arrays and numbers that JSON lacks tagged."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, tuple):
        return {"tuple": [encode(v) for v in value]}
    if isinstance(value, np.ndarray):
        return {"array": encode(value.ravel().tolist()), "shape": list(value.shape), "dtype": value.dtype.str}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, Mapping):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    raise UsageError(
        f"cannot write {value!r} ({type(value).__name__}) to JSON: a rule remembers arrays and JSON values, and peers "
        "are named by strings, numbers or tuples"
    )


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if isinstance(value, dict):
        if "float" in value:
            return float(value["float"])
        if "tuple" in value:
            return tuple(decode(v) for v in value["tuple"])
        if "array" in value:
            return np.array(decode(value["array"]), dtype=value["dtype"]).reshape(value["shape"])
        return {decode(k): decode(v) for k, v in value["dict"]}
    return value
