"""SAGE-OS: commit when a peer is certified to beat gossip, stop when more evidence cannot pay.

Algorithm 1 of "SAGE: Optimal-Stopping Peer Selection for Decentralised Federated Learning" (Xiao, Wang,
Anagnostopoulos), with eq:gossip-cert as certificate and eq:gossip-switch as stopping rule.

Where the paper is silent or inconsistent: equal risks are broken at random; L counts the nominal stages even where
the pool truncates them; `cost="cumulative"` (preset `sage-os-table`) is the price that reproduces the paper's
evidence table, which the printed incremental price does not; `radius="tight"` is a valid, sharper width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from . import theory
from .options import option
from .outcome import CONTINUE, Exchange, Reason, Stage, State
from .selector import Deciding, Draws, Hood
from .staged import SAGE_PAPER, CertifiedSelector, Look, pairwise_stages


@dataclass(frozen=True)
class SageOS(CertifiedSelector):
    """Optimal-stopping peer selection (Algorithm 1)."""

    id: ClassVar[str] = "sage-os"
    summary: ClassVar[str] = "certify against gossip; stop when more evidence cannot repay its cost"
    citation: ClassVar[str] = SAGE_PAPER
    fidelity: ClassVar[str] = "as published: Algorithm 1 and the price in the text"
    evidence: ClassVar[str] = "answers to anchor inputs"

    probe_cost: float = option(
        theory.PROBE_COST, "price of one anchor-peer evaluation in risk units", symbol="lambda", ge=0
    )
    radius: Literal["printed", "tight"] = option("printed", "certificate width: 2r (printed), or 2r(1 - 1/d) (tight)")
    cost: Literal["incremental", "cumulative"] = option(
        "incremental",
        "price of the next stage: its new anchors (incremental), or all anchors up to it (cumulative)",
    )

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Algorithm 1, line by line."""
        if (exchange := self.without_probing(hood, rng)) is not None:
            return exchange
        trace: list[Stage] = []
        look: Look | None = None
        for m, m_next in pairwise_stages(hood.stages(self.schedule)):
            losses = yield self.probe(hood, look, m)
            look = Look.at(m, losses, look)
            r = self.stage_radius(m, hood)
            width = theory.certificate_width(r, len(hood.peers), tight=self.radius == "tight")
            cost = None if m_next is None else self.stage_cost(m, m_next, hood)
            if look.advantage > width:
                trace.append(look.stage(Reason.CERTIFIED, "advantage", r, width, cost))
                return Exchange.select(self.leader(look, hood, rng), Reason.CERTIFIED, trace)
            if cost is None:
                trace.append(look.stage(Reason.EXHAUSTED, "advantage", r, width))
                return Exchange.gossip(rng.gossip(hood), Reason.EXHAUSTED, trace)
            if cost >= theory.information_bound(look.advantage, width):
                trace.append(look.stage(Reason.COST, "advantage", r, width, cost))
                return Exchange.gossip(rng.gossip(hood), Reason.COST, trace)
            trace.append(look.stage(CONTINUE, "advantage", r, width, cost))
        raise AssertionError("the last stage always ends the decision")

    def stage_cost(self, anchors: int, next_anchors: int, hood: Hood) -> float:
        """Price of the next stage in risk units (eq:stage-cost)."""
        cumulative = self.cost == "cumulative"
        return theory.stage_cost(self.probe_cost, len(hood.peers), anchors, next_anchors, cumulative=cumulative)


@dataclass(frozen=True)
class SageOSTable(SageOS):
    """SAGE-OS with the cumulative price that the paper's evidence table follows."""

    id: ClassVar[str] = "sage-os-table"
    summary: ClassVar[str] = "SAGE-OS at the cumulative price that the paper's evidence table follows"
    fidelity: ClassVar[str] = "ours: the price that the paper's table implies and its text does not"

    cost: Literal["incremental", "cumulative"] = SageOS.preset("cost", "cumulative")
