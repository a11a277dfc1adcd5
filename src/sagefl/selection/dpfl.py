"""DPFL: average with a collaboration set that is grown greedily on full models and rebuilt from time to time.

S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. arXiv:2406.06520.

Established. Collaborators are chosen as a *set*: from S = {i}, the client is added whose inclusion improves the
averaged model most on i's validation data, while the reward does not fall and |S| <= B_c (non-monotone greedy). The
set is rebuilt periodically; in between clients average with their set.

Ours. Candidates are the neighbours in the graph, and all of their models are moved at a rebuild (the paper first cuts
the pool of candidates down in a preprocessing phase; we leave that out). "Validation" is the anchor pool, the reward
its cross-entropy, and what is averaged is the shared block under the client's own head. The set is built in the first
round and every P = 10 rounds, B_c = 5 counts oneself. Equal gains are broken at random. Members that are not reachable
are left out of the average until they are back.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

from .options import option
from .outcome import CONTINUE, Exchange, Reason, Stage, State
from .ranking import best
from .requests import ME, Inspect, Peer, Request
from .selector import Deciding, Draws, Hood, Selector

__all__ = ["Dpfl"]


@dataclass(frozen=True)
class Dpfl(Selector):
    """Greedy collaboration sets, rebuilt from time to time."""

    id: ClassVar[str] = "dpfl"
    summary: ClassVar[str] = "Average a greedily built collaboration set."
    citation: ClassVar[str] = (
        "S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. "
        "arXiv:2406.06520"
    )
    evidence: ClassVar[str] = "full models of all neighbours at rebuilds"
    communication: ClassVar[str] = "|S|-1 / d at rebuilds, |S|-1 / |S|-1 between"

    period: int = option(10, "rounds between rebuilds of the set", symbol="P", ge=1)
    budget: int = option(5, "largest set, oneself included", symbol="B_c", ge=1)

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
            grows = gains.max() >= 0
            trace.append(Stage(hood.anchors, CONTINUE if grows else Reason.COMMITTED, advantage=float(gains.max())))
            if not grows:
                break
            chosen = (*chosen, *best(rest, gains, 1, rng))
            loss = losses.min()
        return chosen
