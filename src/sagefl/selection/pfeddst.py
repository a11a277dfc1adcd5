"""PFedDST's choice of peers: a score of loss, head similarity and recency.

The rule alone; the paper, our deviations and the alternating training are in `sagefl.methods.pfeddst`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from .outcome import Exchange, Reason, State
from .ranking import best, cosines, whole
from .requests import ME, Array, Probe, Read
from .selector import Deciding, Draws, Hood, Selector, option

__all__ = ["PFedDSTRule"]


@dataclass(frozen=True)
class PFedDSTRule(Selector):
    """Top k by S = s_p (a s_l - s_d + c)."""

    summary: ClassVar[str] = "top k by a score of loss, head similarity and recency"

    k: int = option(2, "peers merged a round")
    a: float = option(1.0, "weight of the loss score s_l")
    c: float = option(1.0, "constant that keeps the score positive")
    rate: float = option(0.5, "how fast a chosen peer becomes eligible again: s_p = 1 - exp(-rate * rounds since)")
    loss_sign: Literal[1, -1] = option(1, "1: prefer peers with much to gain from (as printed) | -1: those that fit")
    anchors: int = option(128, "anchors a peer's loss is measured on, at most")

    def __post_init__(self) -> None:
        whole("k", self.k)
        whole("anchors", self.anchors)
        if self.loss_sign not in (1, -1):
            raise ValueError(f"loss_sign must be 1 or -1, got {self.loss_sign!r}")
        if not self.rate > 0:
            raise ValueError(f"rate must be positive, got {self.rate}")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the heads, probe the losses, take the top k; `state` holds the round each peer was last chosen in."""
        if not hood.peers:
            return Exchange.none(state=state)
        mine, *theirs = yield Read((ME, *hood.peers), "head")
        losses: Array = np.zeros(len(hood.peers))
        if asked := min(self.anchors, hood.anchors):
            answers = yield Probe(hood.peers, 0, asked, "probs", "ce")
            losses = answers.mean(axis=1)
        last = state.get("last", {})
        since = np.array([hood.round - last[p] if p in last else np.inf for p in hood.peers])
        chosen = best(hood.peers, self.scores(losses, 1.0 - cosines(mine, theirs), since), self.k, rng)
        return Exchange.merge(chosen, Reason.COMMITTED, state={"last": last | dict.fromkeys(chosen, hood.round)})

    def scores(self, losses: Array, distances: Array, since: Array) -> Array:
        """S for every neighbour; `since` counts rounds since it was chosen, infinite if it never was."""
        recency = 1.0 - np.exp(-self.rate * since)
        scores: Array = recency * (self.a * self.loss_sign * _min_max(losses) - distances + self.c)
        return scores


def _min_max(values: Array) -> Array:
    """Values scaled into [0, 1] over the neighbourhood; all 0 where they are equal."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)
