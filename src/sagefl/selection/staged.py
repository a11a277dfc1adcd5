"""What the staged rules of the paper share: the nested anchor schedule, the radius and the look at one stage.

SAGE-OS, Vanilla SAGE, SAGE-NF and AQ-128 all score every active neighbour on the first m anchors of a nested
schedule; they differ in when they stop and what they do then. That difference is each rule's own file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import fsum
from sys import float_info
from typing import Any, Literal, TypeVar

from . import theory
from .options import option
from .outcome import Exchange, Fired, Reason, Stage
from .requests import Array, Peer, Probe
from .selector import Draws, Hood, ProbingSelector

SAGE_PAPER = (
    "K. Xiao, Q. Wang, C. Anagnostopoulos. SAGE: Optimal-Stopping Peer Selection for Decentralised Federated Learning."
)
Ties = Literal["random", "lowest-index"]


@dataclass(slots=True)
class Look:
    """The evidence after `anchors` anchors, as every staged rule reads it."""

    anchors: int
    sums: list[float]  # summed losses per peer
    risks: tuple[float, ...]
    advantage: float  # A: mean risk minus the lowest (eq:gossip-advantage)
    gap: float | None  # runner-up minus best; None with a single neighbour

    @classmethod
    def at(cls, anchors: int, losses: Array, before: Look | None = None) -> Look:
        """The look at the first `anchors` anchors: what was seen `before`, and the losses on those that are new."""
        sums = losses.sum(axis=1).tolist()
        if before is not None:
            sums = [old + new for old, new in zip(before.sums, sums, strict=True)]
        risks = [total / anchors for total in sums]
        ranked = sorted(risks)
        # fsum: the mean must not depend on the order in which peers are listed. max: nor may rounding take it below
        # the lowest risk.
        advantage = max(fsum(risks) / len(risks) - ranked[0], 0.0)
        return cls(anchors, sums, tuple(risks), advantage, ranked[1] - ranked[0] if len(ranked) > 1 else None)

    def stage(
        self,
        fired: Fired,
        test: str | None = None,
        radius: float | None = None,
        width: float | None = None,
        next_cost: float | None = None,
    ) -> Stage:
        """This look as a line of the trace."""
        return Stage(self.anchors, fired, test, self.risks, radius, width, self.advantage, self.gap, next_cost)


@dataclass(frozen=True)
class StagedSelector(ProbingSelector):
    """Options and steps of a rule that looks at a nested anchor schedule."""

    schedule: tuple[int, ...] = option(theory.SCHEDULE, "nested anchor schedule m_1 < ... < m_L", ge=1)
    ties: Ties = option("random", "how equal risks are broken")

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(a >= b for a, b in pairwise(self.schedule)):
            raise ValueError(f"schedule must be strictly increasing, got {self.schedule}")

    @property
    def reach(self) -> int:
        """The last stage."""
        return self.schedule[-1]

    def probe(self, hood: Hood, before: Look | None, upto: int) -> Probe:
        """Ask everybody about the anchors before `upto` that are new."""
        return Probe(hood.peers, before.anchors if before else 0, upto, self.scoring)

    def leader(self, look: Look, hood: Hood, rng: Draws) -> Peer:
        """The empirically best peer; equal risks are drawn uniformly, or clients would herd onto low indices."""
        lowest = min(look.sums)
        tied = [i for i, total in enumerate(look.sums) if total == lowest]
        first: Peer = hood.peers[tied[0] if self.ties == "lowest-index" else rng.pick(tied, "ties")]
        return first

    def without_probing(self, hood: Hood, rng: Draws) -> Exchange | None:
        """The exchange where there is nothing to look at: no neighbour, or a pool below the first stage."""
        if not hood.peers:
            return Exchange.none()
        if hood.anchors < self.schedule[0]:
            return Exchange.gossip(rng.gossip(hood), Reason.NO_ANCHORS)
        return None


@dataclass(frozen=True)
class CertifiedSelector(StagedSelector):
    """A staged rule with a confidence radius (eq:radius)."""

    delta: float = option(theory.DELTA, "failure probability of one client-round decision", gt=0, lt=1)
    stages: Literal["nominal", "feasible"] = option(
        "nominal",
        "L in the radius: the whole schedule's stages (nominal), or those the pool allows (feasible)",
    )

    def restarted(self) -> CertifiedSelector:
        """The same rule at half of delta."""
        return halved(self)

    def stage_count(self, hood: Hood) -> int:
        """L: how many stages the union bound covers."""
        return len(self.schedule if self.stages == "nominal" else hood.stages(self.schedule))

    def stage_radius(self, anchors: int, hood: Hood) -> float:
        """r of eq:radius at this stage."""
        return theory.radius(anchors, len(hood.peers), self.stage_count(hood), self.delta, self.loss_bound)


Certifying = TypeVar("Certifying", bound=Any)


def halved(rule: Certifying) -> Certifying:
    """A certifying rule for a decision that starts over, at half of its delta: all starts together stay below 2 delta.

    At delta each, r restarts would add up to (1 + r) delta, and the first run cannot know how many will follow.
    """
    return replace(rule, delta=max(rule.delta / 2, float_info.min))


def pairwise_stages(stages: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Each stage with the next one, None after the last."""
    return zip(stages, [*stages[1:], None], strict=True)
