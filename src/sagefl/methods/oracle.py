"""Oracle: a uniform draw among the neighbours of one's own group that do not misbehave.

What choosing one peer can reach if nothing has to be found out: the reference for `headroom`. Without such a neighbour
it stays at home. Where nobody is a stranger or a culprit it draws exactly as random gossip does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..selection import Exchange, Reason, State
from ..selection.selector import Deciding, Draws, Hood
from .knowing import Knowing, Reference


@dataclass(frozen=True)
class _DrawWithin(Knowing):
    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Gossip's draw, among kin."""
        yield from ()
        kin = self.kin(hood)
        return Exchange.gossip(rng.pick(kin, "gossip"), Reason.UNIFORM) if kin else Exchange.none()


class Oracle(Reference):
    """A draw within one's group, known from the truth; home without kin (a reference, not a rule)."""

    id: ClassVar[str] = "oracle"
    rule = _DrawWithin
    evidence: ClassVar[str] = "the truth, which no rule has"
    fidelity: ClassVar[str] = "ours: a reference"
    communication: ClassVar[str] = "1 / 1"
