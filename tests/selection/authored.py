"""Selectors as third parties would write them, to test the contract: masks, inspections, readings, state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sagefl import Draws, Exchange, Hood, Inspect, Probe, Read, Reason, Scoring, Selector
from sagefl.selection.outcome import State
from sagefl.selection.requests import Request


@dataclass(frozen=True)
class Scripted(Selector):
    """Asks what it is told to ask and keeps every answer in its state for the test to read."""

    script: Callable[[Hood], list[Request]] = lambda hood: []
    loss_bound: float = 1.0

    @property
    def bound(self) -> float:
        return self.loss_bound

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        return tuple(Scoring.registered.values())

    @property
    def reach(self) -> int:
        return 1000

    def decide(self, hood: Hood, state: State, rng: Draws) -> Generator[Request, Any, Exchange]:
        heard = []
        for request in self.script(hood):
            answer = yield request
            heard.append(answer)
        return Exchange.gossip(rng.gossip(hood), Reason.COMMITTED, state={"heard": heard})


@dataclass(frozen=True)
class ThriftyLeader(Selector):
    """Everybody answers 8 anchors; then only the leader and one other, drawn per anchor, answer 8 more (a mask)."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Generator[Request, Any, Exchange]:
        losses = yield Probe(hood.peers, 0, 8)
        leader = int(losses.sum(axis=1).argmin())
        mask = np.zeros((len(hood.peers), 8), dtype=bool)
        mask[leader] = True
        for column in range(8):
            mask[rng.pick([j for j in range(len(hood.peers)) if j != leader], "others"), column] = True
        more = yield Probe(hood.peers, 8, 16, mask=mask)
        rounds = state.get("rounds", 0) + 1
        return Exchange.select(
            hood.peers[leader], Reason.COMMITTED, state={"rounds": rounds, "mask": mask, "more": more}
        )


@dataclass(frozen=True)
class Shopper(Selector):
    """Reads heads, moves two models and one pair of models here, then merges the better half with weights."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Generator[Request, Any, Exchange]:
        heads = yield Read(("@me", *hood.peers), "head")
        alike = sorted(range(len(hood.peers)), key=lambda i: float(np.abs(heads[i + 1] - heads[0]).sum()))
        near = tuple(hood.peers[i] for i in alike[:2])
        values = yield Inspect(("@me", *near), "train", "ce")
        pairs = tuple(("@me", p) for p in near)
        mixed = yield Inspect(near, "train", "ce", groups=pairs)
        better = [p for p, value in zip(near, mixed, strict=True) if value < values[0]]
        return Exchange.merge(better, Reason.COMMITTED, dict.fromkeys(better, 0.25), state={"values": values})
