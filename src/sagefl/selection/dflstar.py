"""DFLStar's choice of peers: compare last layers, take the most informative.

The rule alone; the paper, our deviations and the distillation term are in `sagefl.methods.dflstar`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .outcome import Exchange, Reason, State
from .ranking import best, cosines, whole
from .requests import ME, Read
from .selector import Deciding, Draws, Hood, Selector, option
from .staged import one_of

__all__ = ["DFLStarRule"]


@dataclass(frozen=True)
class DFLStarRule(Selector):
    """The k neighbours whose last layer is least (or most) similar to one's own."""

    summary: ClassVar[str] = "the k neighbours whose last layer differs most (or least) from one's own"

    k: int = option(2, "peers merged a round")
    prefer: Literal["dissimilar", "similar"] = option("dissimilar", "which last layers are informative")

    def __post_init__(self) -> None:
        whole("k", self.k)
        one_of("prefer", self.prefer, ("dissimilar", "similar"))

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the last layers, rank by cosine similarity."""
        if not hood.peers:
            return Exchange.none()
        mine, *theirs = yield Read((ME, *hood.peers), "last-layer")
        similar = cosines(mine, theirs)
        scores = similar if self.prefer == "similar" else -similar
        return Exchange.merge(best(hood.peers, scores, self.k, rng), Reason.COMMITTED)
