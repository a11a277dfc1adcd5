"""What SAGE-OS can and cannot decide at each stage, known before any evidence is bought.

Radii, prices and thresholds depend only on the degree and the options, so a user can see in advance at which stage a
certificate is possible at all and from which advantage on the rule gives up.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from . import theory
from .sage_os import SageOS
from .selector import Hood
from .staged import pairwise_stages


@dataclass(frozen=True)
class PlannedStage:
    """One stage: what it takes to certify, to continue, to give up."""

    anchors: int
    radius: float
    width: float  # certify iff the advantage exceeds this
    can_certify: bool  # whether any losses can
    next_cost: float | None  # None at the last stage
    gossip_upto: float | None  # give up iff the advantage is at most this; None: cannot give up here
    continues: bool  # whether some possible advantage leads on to the next stage


@dataclass(frozen=True)
class Plan:
    """The whole schedule for one degree."""

    rule: SageOS
    degree: int
    stages: tuple[PlannedStage, ...]
    largest_advantage: float  # M (d - 1)/d: no losses can give more
    dominance: float  # lambda d m_1 of eq:dominance

    def remarks(self) -> list[str]:
        """What the numbers mean, in sentences."""
        return [*(self._stage_remark(s) for s in self.stages), self._dominance_remark()]

    def _stage_remark(self, s: PlannedStage) -> str:
        if not s.can_certify:
            certify = (
                f"Stage {s.anchors} cannot certify: {s.width:.4f} is needed and the largest possible advantage "
                f"at degree {self.degree} is {self.largest_advantage:.4f}"
            )
        else:
            certify = f"Stage {s.anchors} certifies above {s.width:.4f}"
        if s.next_cost is None:
            return f"{certify}; below that it gossips, because no stage is left."
        if s.gossip_upto is None:
            return f"{certify}; it cannot give up either, because {s.next_cost:.3f} is less than {s.width:.4f}."
        tail = "" if s.continues else " and never continues"
        return f"{certify}; it gives up at {s.gossip_upto:.4f} or less{tail}."

    def _dominance_remark(self) -> str:
        return (
            f"Probing cannot pay at all unless the best peer beats the neighbourhood mean by more than "
            f"{self.dominance:.3f} (eq:dominance)."
        )


def plan_stages(rule: SageOS, degree: int) -> Plan:
    """The plan of `rule` for a neighbourhood of `degree` peers and a pool that allows every stage."""
    if degree < 1:
        raise UsageError(f"degree is the number of active neighbours, at least 1; got {degree}")
    hood = Hood(tuple(range(degree)), rule.schedule[-1])
    stages = tuple(_planned(rule, hood, m, m_next) for m, m_next in pairwise_stages(rule.schedule))
    largest = rule.loss_bound * (degree - 1) / degree
    return Plan(rule, degree, stages, largest, theory.dominance_threshold(rule.probe_cost, degree, rule.schedule[0]))


def _planned(rule: SageOS, hood: Hood, m: int, m_next: int | None) -> PlannedStage:
    degree = len(hood.peers)
    r = rule.stage_radius(m, hood)
    width = theory.certificate_width(r, degree, tight=rule.radius == "tight")
    cost = None if m_next is None else rule.stage_cost(m, m_next, hood)
    gossip_upto = None if cost is None or cost < width else cost - width
    certifies = theory.can_certify(width, degree, rule.loss_bound)
    most = min(width, rule.loss_bound * (degree - 1) / degree)  # the largest advantage that does not certify
    continues = cost is not None and (gossip_upto is None or gossip_upto < most)
    return PlannedStage(m, r, width, certifies, cost, gossip_upto, continues)
