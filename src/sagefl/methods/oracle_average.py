"""Oracle average: the average with all neighbours of one's own group that do not misbehave.

An upper row of its own beside `oracle`: a rule that pulls one model a round cannot reach what many models give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..selection import Exchange, Reason, State
from ..selection.selector import Deciding, Draws, Hood
from .knowing import Knowing, Reference


@dataclass(frozen=True)
class _MergeWithin(Knowing):
    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """All kin, equally weighted with oneself."""
        yield from ()
        return Exchange.merge(self.kin(hood), Reason.COMMITTED, selected=False)


class OracleAverage(Reference):
    """The average with all neighbours of one's group, known from the truth (a reference, not a rule)."""

    id: ClassVar[str] = "oracle-average"
    rule = _MergeWithin
    evidence: ClassVar[str] = "the truth, which no rule has"
    fidelity: ClassVar[str] = "ours: a reference"
    communication: ClassVar[str] = "kin / kin"
