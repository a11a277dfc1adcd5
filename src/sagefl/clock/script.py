"""What a client does after it has trained: looks at the evidence one after another, then the exchange itself.

A look is made of calls that go out together; the next one begins when all of them are answered. How large they are
comes from the same sizes as the account of bytes, so the bytes of a script are those of the account.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..selection import ME, Inspect, Outcome, Probe, Request

if TYPE_CHECKING:
    from ..exchange.accounting import Sizes
    from ..selection.outcome import Traffic

SCALAR = 4


@dataclass(frozen=True)
class Call:
    """A message to a peer, what the peer does about it, and its answer."""

    peer: int
    there: float  # bytes
    back: float  # bytes
    work: float = 0.0  # samples that go through the peer's model
    fresh: bool = True  # asks for what the peer trains in this round, and so waits until it has


@dataclass(frozen=True)
class TimedLook:
    """Calls that go out together, and what the client computes itself once all are answered."""

    calls: tuple[Call, ...]
    home: float = 0.0  # samples


@dataclass(frozen=True)
class Script:
    """One client's decision and exchange."""

    looks: tuple[TimedLook, ...] = ()
    exchange: TimedLook | None = None

    @property
    def steps(self) -> tuple[TimedLook, ...]:
        """All looks, the exchange last."""
        return self.looks if self.exchange is None else (*self.looks, self.exchange)

    @property
    def bytes(self) -> float:
        """Bytes of all its calls."""
        return sum(call.there + call.back for look in self.steps for call in look.calls)

    def plain(self) -> list[Any]:
        """As nested lists, for a checkpoint."""
        looks = [[[[c.peer, c.there, c.back, c.work, c.fresh] for c in look.calls], look.home] for look in self.steps]
        return [looks, self.exchange is not None]

    @classmethod
    def of(cls, plain: list[Any]) -> Script:
        """The inverse of `plain`."""
        looks = [TimedLook(tuple(Call(*call) for call in calls), home) for calls, home in plain[0]]
        return cls(tuple(looks[:-1]), looks[-1]) if plain[1] else cls(tuple(looks))


def evidence(
    request: Request, sizes: Sizes, inspected: Collection[Any] = (), samples: int = 0, old: Collection[Any] = ()
) -> TimedLook:
    """The look that a request takes. `inspected`: models that are here already; `samples`: of the client, for those.

    `old` are peers that answer from an older model than that of this round, and so at once.
    """
    if isinstance(request, Probe):
        asked = [request.stop - request.start] * len(request.peers)
        if request.mask is not None:
            asked = request.mask.sum(axis=1).tolist()
        answer = sizes.answer(request.scoring)
        calls = [
            Call(_number(peer), n * sizes.anchor_input, n * answer, n, peer not in old)
            for peer, n in zip(request.peers, asked, strict=True)
            if n
        ]
        return TimedLook(tuple(calls))
    others = [peer for peer in request.peers if peer != ME]
    if isinstance(request, Inspect):
        moved = [Call(_number(p), 0, sizes.full_model, 0.0, p not in old) for p in others if p not in inspected]
        return TimedLook(tuple(moved), float(samples * len(request.entries)))
    size = sizes.reads.get(request.what, SCALAR)
    return TimedLook(tuple(Call(_number(p), 0, size, 0.0, p not in old) for p in others))


def transfer(outcome: Outcome, traffic: Traffic, sizes: Sizes, old: Collection[Any] = ()) -> TimedLook | None:
    """The exchange that a decision ends with: models that are pulled or pushed and were not moved before."""
    moved = [peer for peer in outcome.peers if peer not in set(outcome.inspected)]
    if not moved:
        return None
    each = max(traffic.models - len(outcome.inspected) * sizes.full_model, 0) / len(moved)
    pushes = outcome.direction == "push"
    calls = [
        Call(_number(p), each if pushes else 0, 0 if pushes else each, 0.0, not pushes and p not in old) for p in moved
    ]
    return TimedLook(tuple(calls))


def _number(peer: Any) -> int:
    return int(peer)
