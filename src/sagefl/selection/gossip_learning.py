"""Gossip learning: merge with one random neighbour, each model weighing as much as it has learnt from.

The rule alone; the papers and our deviations are in `sagefl.methods.gossip_learning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .requests import ME, Read
from .selector import Deciding, Draws, Hood, Selector

__all__ = ["GossipLearningRule"]


@dataclass(frozen=True)
class GossipLearningRule(Selector):
    """One uniform draw, merged by age; `state` holds the age of one's own model, in samples."""

    summary: ClassVar[str] = "one uniformly drawn neighbour, merged in proportion to the models' ages"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Ages are those after this round's training: the age kept since the last merge plus the samples seen since."""
        (seen,) = yield Read((ME,), "samples")
        mine = float(state.get("age", 0.0) + seen)
        if not hood.peers:
            return Exchange.none(state={"age": mine})
        peer = rng.gossip(hood)
        (age,) = yield Read((peer,), "age")
        (theirs,) = yield Read((peer,), "samples")
        other = float(age + theirs)
        weight = other / (mine + other) if mine + other else 0.5
        merged = {"age": max(mine, other)}
        return Exchange.merge([peer], Reason.UNIFORM, {peer: weight}, selected=False, state=merged)
