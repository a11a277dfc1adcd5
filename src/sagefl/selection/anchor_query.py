"""AQ-128: spend the largest feasible anchor budget and take the empirically best peer.

The fixed-budget control of the SAGE paper. The budget is the largest feasible *stage* of the schedule, not the whole
pool; a pool below the first stage falls back to gossip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .selector import Deciding, Draws, Hood
from .staged import StagedSelector

__all__ = ["AnchorQuery"]


@dataclass(frozen=True)
class AnchorQuery(StagedSelector):
    """One look at the largest feasible stage, then commit."""

    id: ClassVar[str] = "aq-128"
    summary: ClassVar[str] = "spend the largest feasible anchor budget, commit to the empirical best"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Probe once, commit."""
        if (exchange := self.unprobed(hood, rng)) is not None:
            return exchange
        look = yield from self.look(hood, None, hood.stages(self.schedule)[-1])
        return Exchange.select(self.leader(look, hood, rng), Reason.COMMITTED, [look.stage("committed")])
