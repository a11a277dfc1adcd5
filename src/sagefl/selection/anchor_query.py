"""AQ-128: spend the largest feasible anchor budget and take the empirically best peer.

The fixed-budget control of the SAGE paper. The budget is the largest feasible *stage* of the schedule, not the whole
pool; a pool below the first stage falls back to gossip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .selector import Deciding, Draws, Hood
from .staged import SAGE_PAPER, Look, StagedSelector


@dataclass(frozen=True)
class AnchorQuery(StagedSelector):
    """One look at the largest feasible stage, then commit."""

    id: ClassVar[str] = "aq-128"
    summary: ClassVar[str] = "spend the largest feasible anchor budget, commit to the empirical best"
    citation: ClassVar[str] = SAGE_PAPER
    fidelity: ClassVar[str] = "as published"
    evidence: ClassVar[str] = "answers to anchor inputs"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Probe once, commit."""
        if (exchange := self.without_probing(hood, rng)) is not None:
            return exchange
        m = hood.stages(self.schedule)[-1]
        look = Look.at(m, (yield self.probe(hood, None, m)))
        return Exchange.select(self.leader(look, hood, rng), Reason.COMMITTED, [look.stage(Reason.COMMITTED)])
