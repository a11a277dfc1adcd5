"""k uniformly drawn neighbours, averaged: the choice of methods whose idea lies in the exchange."""

from __future__ import annotations

from dataclasses import dataclass

from .options import option
from .outcome import Exchange, Reason, State
from .ranking import sample
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class UniformNeighbours(Selector):
    """Draw k neighbours without replacement, again every round."""

    k: int = option(2, "neighbours drawn each round", ge=1)

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Draw k."""
        yield from ()
        return Exchange.merge(sample(hood.peers, self.k, rng), Reason.UNIFORM, selected=False)
