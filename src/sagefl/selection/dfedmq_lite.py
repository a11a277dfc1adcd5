"""DFedMQ, read from its abstract: each round, take the k neighbours of the best training quality.

What quality is, the abstract does not say. Three readings: the level of the training loss a neighbour reports, its
progress since the last round it reported one, or how well its model answers on the receiver's own anchors. The first
two are properties of the neighbour alone; only the last can tell who is compatible with *me*.
The rule alone; the paper and what "lite" leaves out are in `sagefl.methods.dfedmq_lite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .outcome import Exchange, Reason, Stage, State
from .ranking import best, whole
from .requests import Array, Probe, Read
from .selector import Deciding, Draws, Hood, Selector, option
from .staged import one_of

__all__ = ["DFedMQLiteRule"]


@dataclass(frozen=True)
class DFedMQLiteRule(Selector):
    """The k neighbours of the best training quality."""

    summary: ClassVar[str] = "merge the k neighbours of the best training quality"

    k: int = option(2, "neighbours merged each round")
    quality: Literal["loss", "progress", "anchors"] = option(
        "loss",
        "of a neighbour: low training loss (loss), its fall since last time (progress), or right answers on the "
        "receiver's anchors (anchors)",
    )
    anchors: int = option(64, "anchor inputs asked of each neighbour (quality = anchors)")

    def __post_init__(self) -> None:
        one_of("quality", self.quality, ("loss", "progress", "anchors"))
        whole("k", self.k)
        whole("anchors", self.anchors)

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Rate the neighbours, merge the best k."""
        if not hood.peers:
            return Exchange.none()
        asked, kept = 0, None
        if self.quality == "anchors":
            asked = min(self.anchors, hood.anchors)
            scores = np.zeros(len(hood.peers))
            if asked:
                scores = 1.0 - np.mean((yield Probe(hood.peers, 0, asked)), axis=1)
        else:
            losses = np.ravel((yield Read(hood.peers, "loss")))
            scores = self._rated(hood, losses, state)
            kept = {"losses": state.get("losses", {}) | dict(zip(hood.peers, losses.tolist(), strict=True))}
        look = Stage(asked, "committed", scores=tuple(map(float, scores)))
        return Exchange.merge(best(hood.peers, scores, self.k, rng), Reason.COMMITTED, trace=(look,), state=kept)

    def _rated(self, hood: Hood, losses: Array, state: State) -> Array:
        """Quality from reported losses; progress is relative, and 0 for who has not reported before."""
        if self.quality == "loss":
            return -losses
        before: dict[Any, float] = state.get("losses", {})
        last = np.array([before.get(p, loss) for p, loss in zip(hood.peers, losses, strict=True)])
        fall: Array = np.divide(last - losses, last, out=np.zeros(len(losses)), where=last > 0)
        return fall
