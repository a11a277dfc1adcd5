"""DPFL's rule: a collaboration set found greedily on full models every P rounds, averaged in between.

At a rebuild every neighbour's model is moved once. From S = {myself}, the neighbour is added that lowers the
validation loss of the averaged model most, as long as that does not raise it and |S| stays within the budget.
The rule alone; the paper and our deviations are in `sagefl.methods.dpfl`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

from .outcome import Exchange, Reason, Stage, State
from .ranking import best, whole
from .requests import ME, Inspect, Peer, Request
from .selector import Deciding, Draws, Hood, Selector, option

__all__ = ["DpflRule"]


@dataclass(frozen=True)
class DpflRule(Selector):
    """Greedy collaboration sets, rebuilt from time to time."""

    summary: ClassVar[str] = "average a collaboration set found greedily on full models, rebuilt every P rounds"

    period: int = option(10, "P: rounds between rebuilds of the set")
    budget: int = option(5, "B_c: largest set, oneself included")

    def __post_init__(self) -> None:
        whole("period", self.period)
        whole("budget", self.budget)

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Rebuild the set where it is due, then average what is reachable of it."""
        if not hood.peers:
            return Exchange.none()
        trace: list[Stage] = []
        if hood.anchors and ("members" not in state or hood.round % self.period == 0):
            members = yield from self._greedy(hood, rng, trace)
            state = {"members": members}
        members = state.get("members", ())
        reachable = [p for p in hood.peers if p in members]
        return Exchange.merge(reachable, Reason.COMMITTED, trace=trace, state=state)

    def _greedy(self, hood: Hood, rng: Draws, trace: list[Stage]) -> Generator[Request, Any, tuple[Peer, ...]]:
        """Grow S from {myself} by the neighbour with the largest validation gain while that is not negative."""
        chosen: tuple[Peer, ...] = ()
        everyone = (*hood.peers, ME)
        loss = (yield Inspect(everyone, groups=((ME,),)))[0]
        while len(chosen) + 1 < self.budget and len(chosen) < len(hood.peers):
            rest = tuple(p for p in hood.peers if p not in chosen)
            losses = yield Inspect(everyone, groups=tuple((ME, *chosen, p) for p in rest))
            gains = loss - losses
            fired = "continue" if gains.max() >= 0 else "committed"
            trace.append(Stage(hood.anchors, fired, advantage=float(gains.max())))
            if fired == "committed":
                break
            chosen = (*chosen, *best(rest, gains, 1, rng))
            loss = losses.min()
        return chosen
