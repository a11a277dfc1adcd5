"""Vanilla SAGE: commit when the best peer is certified against its runner-up, otherwise use every anchor and gossip.

The ablation of the SAGE paper without cost-aware stopping: certificate eq:stop, abstention at the last stage. With a
single neighbour there is no runner-up, so nothing is ever certified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import CONTINUE, Exchange, Reason, Stage, State
from .selector import Deciding, Draws, Hood
from .staged import SAGE_PAPER, CertifiedSelector, Look, pairwise_stages


@dataclass(frozen=True)
class VanillaSage(CertifiedSelector):
    """Best against runner-up, abstaining to gossip when unresolved."""

    id: ClassVar[str] = "sage-vanilla"
    summary: ClassVar[str] = "certify the best against its runner-up; gossip when all anchors leave it open"
    citation: ClassVar[str] = SAGE_PAPER
    fidelity: ClassVar[str] = "as published"
    evidence: ClassVar[str] = "answers to anchor inputs"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Probe stage by stage until eq:stop holds or the anchors end."""
        if (exchange := self.without_probing(hood, rng)) is not None:
            return exchange
        trace: list[Stage] = []
        look: Look | None = None
        for m, m_next in pairwise_stages(hood.stages(self.schedule)):
            losses = yield self.probe(hood, look, m)
            look = Look.at(m, losses, look)
            r = self.stage_radius(m, hood)
            if look.gap is not None and look.gap > 2 * r:
                trace.append(look.stage(Reason.CERTIFIED, "gap", r, 2 * r))
                return Exchange.select(self.leader(look, hood, rng), Reason.CERTIFIED, trace)
            if m_next is None:
                return self.unresolved(look, r, trace, hood, rng)
            trace.append(look.stage(CONTINUE, "gap", r, 2 * r))
        raise AssertionError("the last stage always ends the decision")

    def unresolved(self, look: Look, r: float, trace: list[Stage], hood: Hood, rng: Draws) -> Exchange:
        """All anchors used and nothing certified: abstain."""
        trace.append(look.stage(Reason.EXHAUSTED, "gap", r, 2 * r))
        return Exchange.gossip(rng.gossip(hood), Reason.EXHAUSTED, trace)
