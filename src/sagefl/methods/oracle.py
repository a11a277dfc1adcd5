"""References that know the truth: what choosing could reach at best.

A rule sees its neighbours, its anchors and its own memory; who is in whose group it cannot know. A method here is told
by the simulator (`Method.needs_truth`), beside everything that rules are given, so no other rule can get at it. In a
node or a replay there is nobody to tell it.

`oracle` draws uniformly among the neighbours of its own group that do not misbehave: what choosing one peer can reach
if nothing has to be found out, and so the reference for `headroom`. Without such a neighbour it stays at home. Where
nobody is a stranger or a culprit it draws exactly as random gossip does. `oracle-average` averages with all of them, an
upper row of its own: a rule that pulls one model a round cannot reach what many models give.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

from ..errors import UsageError
from ..selection import Exchange, Reason, State
from ..selection.selector import Deciding, Draws, Hood, Selector
from .base import Helps, Method


class Knowing(Selector):
    """A rule that knows which of its neighbours help: they are of its group and no culprits."""

    def told(self, helps: Helps) -> Self:
        """The same rule, knowing it."""
        knowing = copy(self)
        object.__setattr__(knowing, "_helps", helps)  # no option: nobody can set it, and it is not shown
        return knowing

    def kin(self, hood: Hood) -> list[int]:
        """The active neighbours that help."""
        helps: Helps | None = getattr(self, "_helps", None)
        if helps is None:
            raise UsageError("this method knows the truth about peers, which only a simulated run can tell it")
        me = hood.me
        assert isinstance(me, int)
        return [peer for peer in hood.peers if isinstance(peer, int) and helps(me, peer)]


@dataclass(frozen=True)
class _DrawWithin(Knowing):
    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Gossip's draw, among kin."""
        yield from ()
        kin = self.kin(hood)
        return Exchange.gossip(rng.pick(kin, "gossip"), Reason.UNIFORM) if kin else Exchange.none()


@dataclass(frozen=True)
class _MergeWithin(Knowing):
    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """All kin, equally weighted with oneself."""
        yield from ()
        return Exchange.merge(self.kin(hood), Reason.COMMITTED, selected=False)


class Oracle(Method):
    """A draw within one's group, known from the truth; home without kin (a reference, not a rule)."""

    id: ClassVar[str] = "oracle"
    rule: ClassVar[type[Selector]] = _DrawWithin
    evidence: ClassVar[str] = "the truth, which no rule has"
    fidelity: ClassVar[str] = "ours: a reference"
    communication: ClassVar[str] = "1 / 1"
    needs_truth: ClassVar[bool] = True
    selector: Knowing

    def tell(self, helps: Helps) -> None:
        """Pass the truth on to the rule."""
        self.selector = self.selector.told(helps)


class OracleAverage(Oracle):
    """The average with all neighbours of one's group, known from the truth (a reference, not a rule)."""

    id: ClassVar[str] = "oracle-average"
    rule = _MergeWithin
    communication: ClassVar[str] = "kin / kin"
