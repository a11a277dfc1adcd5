"""References that know the truth: what choosing could reach at best.

A rule sees its neighbours, its anchors and its own memory; who is in whose group it cannot know. A method here is told
by the simulator (`Method.needs_truth`), beside everything that rules are given, so no other rule can get at it. In a
node or a replay there is nobody to tell it.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Self

from ..errors import UsageError
from ..selection.selector import Hood, Selector
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


class Reference(Method):
    """A method whose rule knows the truth."""

    needs_truth: ClassVar[bool] = True
    selector: Knowing

    def tell(self, helps: Helps) -> None:
        """Pass the truth on to the rule."""
        self.selector = self.selector.told(helps)
