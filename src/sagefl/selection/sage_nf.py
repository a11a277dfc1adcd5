"""SAGE-NF: Vanilla SAGE without the fallback; unresolved evidence is acted on all the same.

The ablation of the SAGE paper that removes abstention: same sequential test as Vanilla SAGE, but if no peer is
certified by the last feasible stage the empirically best one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, Stage
from .sage_vanilla import VanillaSage
from .selector import Draws, Hood
from .staged import SAGE_PAPER, Look


@dataclass(frozen=True)
class SageNF(VanillaSage):
    """Sequential test, never abstains."""

    id: ClassVar[str] = "sage-nf"
    summary: ClassVar[str] = "as sage-vanilla, but commits to the empirical best when unresolved"
    citation: ClassVar[str] = SAGE_PAPER
    fidelity: ClassVar[str] = "as published"
    evidence: ClassVar[str] = "answers to anchor inputs"

    def unresolved(self, look: Look, r: float, trace: list[Stage], hood: Hood, rng: Draws) -> Exchange:
        """All anchors used and nothing certified: take the empirical best."""
        trace.append(look.stage(Reason.COMMITTED, "gap", r, 2 * r))
        return Exchange.select(self.leader(look, hood, rng), Reason.COMMITTED, trace)
