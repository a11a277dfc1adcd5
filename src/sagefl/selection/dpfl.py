"""DPFL: average with a collaboration set that is grown greedily on full models and rebuilt from time to time.

S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. arXiv:2406.06520.
Read: the abstract, and the authors' code (salmakh1/DPFL: `optimized_rgl_p`, its trainer and default config).

Established. Collaborators are chosen as a *set* by the validation loss of the averaged model, models weighed by their
numbers of samples. The released trainer is a randomised double greedy: candidates come in random order; from X = {i}
and Y = all, candidate z has the gains a of adding it to X and b of taking it out of Y (negative ones count 0) and is
added with probability a / (a + b), 1 if both are 0, else taken out; it ends when |X| = B_c = 10, oneself included. The
set is rebuilt periodically; in between clients average with their set.

Ours. Candidates are the neighbours in the graph, and all of their models are moved at a rebuild (the paper cuts the
pool down in a preprocessing phase; the code also lets later rebuilds draw on the first set alone; we do neither).
"Validation" is the anchor pool; what is averaged is the shared block under the client's own head. The set is built in
the first round and every P = 10 rounds. `growth=greedy` adds the best candidate while the loss does not rise (also in
the released code), `average=uniform` counts all models the same. Members that are not reachable are left out of the
average until they are back.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .options import option
from .outcome import CONTINUE, Exchange, Reason, Stage, State
from .ranking import best
from .requests import ME, Inspect, Peer, Read, Request
from .selector import Deciding, Draws, Hood, Selector

Growing = Generator[Request, Any, tuple[Peer, ...]]


@dataclass(frozen=True)
class Dpfl(Selector):
    """Collaboration sets grown on full models, rebuilt from time to time."""

    id: ClassVar[str] = "dpfl"
    summary: ClassVar[str] = "Average a collaboration set, built by a randomised greedy search."
    fidelity: ClassVar[str] = "adapted: candidates are neighbours, heads stay local"
    citation: ClassVar[str] = (
        "S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. "
        "arXiv:2406.06520"
    )
    evidence: ClassVar[str] = "full models of all neighbours at rebuilds"
    communication: ClassVar[str] = "|S|-1 / d at rebuilds, |S|-1 / |S|-1 between"

    period: int = option(10, "rounds between rebuilds of the set", symbol="P", ge=1)
    budget: int = option(10, "largest set, oneself included", symbol="B_c", ge=1)
    growth: Literal["randomised", "greedy"] = option("randomised", "how the set is searched")
    average: Literal["samples", "uniform"] = option("samples", "how models are weighed: by samples, or alike")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Rebuild the set where it is due, then average what is reachable of it."""
        if not hood.peers:
            return Exchange.none()
        trace: list[Stage] = []
        sizes = dict.fromkeys((*hood.peers, ME), 1.0)
        if self.average == "samples":
            counts = np.ravel((yield Read((*hood.peers, ME), "samples")))
            sizes = dict(zip((*hood.peers, ME), np.maximum(counts, 1.0).tolist(), strict=True))
        if hood.anchors and ("members" not in state or hood.round % self.period == 0):
            search = self._randomised if self.growth == "randomised" else self._greedy
            members = yield from search(_Rewards(hood, sizes), rng, trace)
            state = {"members": members}
        members = state.get("members", ())
        reachable = [p for p in hood.peers if p in members]
        total = sizes[ME] + sum(sizes[p] for p in reachable)
        weights = {p: sizes[p] / total for p in reachable}
        return Exchange.merge(reachable, Reason.COMMITTED, weights, trace=trace, state=state)

    def _randomised(self, rewards: _Rewards, rng: Draws, trace: list[Stage]) -> Growing:
        """Grow X from {myself} and shrink Y from everybody, in random order, until they meet or X is full."""
        hood = rewards.hood
        order = [hood.peers[i] for i in rng("order").permutation(len(hood.peers))]
        x: tuple[Peer, ...] = ()
        y = hood.peers
        loss_x, loss_y = yield from rewards.losses(x, y)
        for candidate in order:
            if len(x) + 1 >= self.budget:
                break
            without = tuple(p for p in y if p != candidate)
            added, removed = yield from rewards.losses((*x, candidate), without)
            a, b = max(loss_x - added, 0.0), max(loss_y - removed, 0.0)
            adds = rng("add").random() < (a / (a + b) if a + b else 1.0)
            trace.append(Stage(hood.anchors, CONTINUE, advantage=loss_x - added))
            if adds:
                x, loss_x = (*x, candidate), added
            else:
                y, loss_y = without, removed
        return x

    def _greedy(self, rewards: _Rewards, rng: Draws, trace: list[Stage]) -> Growing:
        """Grow S from {myself} by the neighbour with the largest validation gain while that is not negative."""
        hood = rewards.hood
        chosen: tuple[Peer, ...] = ()
        (loss,) = yield from rewards.losses(())
        while len(chosen) + 1 < self.budget and len(chosen) < len(hood.peers):
            rest = tuple(p for p in hood.peers if p not in chosen)
            losses = yield from rewards.losses(*((*chosen, p) for p in rest))
            gains = loss - np.array(losses)
            grows = gains.max() >= 0
            trace.append(Stage(hood.anchors, CONTINUE if grows else Reason.COMMITTED, advantage=float(gains.max())))
            if not grows:
                break
            chosen = (*chosen, *best(rest, gains, 1, rng))
            loss = min(losses)
        return chosen


@dataclass(frozen=True)
class _Rewards:
    """Validation losses of averages of sets, each with oneself in it."""

    hood: Hood
    sizes: Mapping[Peer, float]

    def losses(self, *sets: tuple[Peer, ...]) -> Generator[Request, Any, list[float]]:
        """One number per set."""
        everyone = (*self.hood.peers, ME)
        weights = tuple(self.sizes[p] for p in everyone)
        alike = None if len(set(weights)) == 1 else weights
        answers = yield Inspect(everyone, groups=tuple((ME, *members) for members in sets), weights=alike)
        return [float(loss) for loss in answers]
