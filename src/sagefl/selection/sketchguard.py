"""SketchGuard: compare small sketches of models first, fetch and average the models of those within reach.

M. Rangwala, F. Azzedin, R. O. Sinnott, R. Buyya. SketchGuard: Scaling Byzantine-Robust Decentralized Federated Learning
via Sketch-Based Screening. 2025. arXiv:2510.07922. Read: the abstract, and the authors' code (Cloudslab/murmura,
`SketchguardAggregator`).

Established. All clients share one Count Sketch: a bucket and a sign per coordinate, a sketch is the signed sum of each
bucket, here 1,000 of them. A client reads its neighbours' sketches and accepts j if |s_i - s_j| <= gamma
exp(-kappa t / T) |s_i|, with gamma = 2 and kappa = 1; 1.5 times as much if on average less than .3 were accepted in its
last three rounds. If too few are accepted, the nearest is. It fetches the models of the accepted and keeps
alpha = 1/2 of its own and as much of their average.

Ours. Only the shared block is sketched, fetched and averaged. The sketch is of the model that is handed over, also of
a poisoner's: who sends a sketch of another model is found out when the model arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .options import option
from .outcome import Exchange, Reason, Stage, State
from .requests import ME, Read
from .selector import Deciding, Draws, Hood, Selector

REMEMBERED, FEW, WIDER = 3, 0.3, 1.5  # rounds looked back on, too small a share accepted, and what it leads to


@dataclass(frozen=True)
class SketchGuard(Selector):
    """Accept neighbours by the distance of sketches, average the accepted."""

    id: ClassVar[str] = "sketchguard"
    summary: ClassVar[str] = "Screen neighbours by sketches of their models, then fetch and average the accepted."
    evidence: ClassVar[str] = "all neighbours' sketches, 1,000 numbers each"
    communication: ClassVar[str] = "accepted / accepted"
    fidelity: ClassVar[str] = "adapted: heads stay local and are not sketched"

    gamma: float = option(2.0, "reach of the screen in units of one's own sketch", gt=0)
    kappa: float = option(1.0, "how fast the reach shrinks over the run", ge=0)
    alpha: float = option(0.5, "weight of one's own model", ge=0, le=1)
    least: int = option(1, "with fewer accepted, the nearest neighbour is accepted too", ge=0)

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the sketches, accept, average; `state` holds the shares accepted in the last rounds."""
        if not hood.peers:
            return Exchange.none(state=state)
        mine, *theirs = map(np.ravel, (yield Read((ME, *hood.peers), "sketch")))
        distances = np.array([np.linalg.norm(mine - sketch) for sketch in theirs])
        past = list(state.get("accepted", ()))
        reach = self.reach_of(hood, past) * float(np.linalg.norm(mine))
        within = distances <= reach
        kept = {"accepted": [*past, float(within.mean())][-REMEMBERED:]}
        if within.sum() < self.least:
            within[int(distances.argmin())] = True
        accepted = tuple(p for p, ok in zip(hood.peers, within, strict=True) if ok)
        look = Stage(0, Reason.COMMITTED, threshold=reach, scores=tuple(map(float, -distances)))
        weights = {p: (1 - self.alpha) / len(accepted) for p in accepted}
        return Exchange.merge(accepted, Reason.COMMITTED, weights, trace=(look,), state=kept)

    def reach_of(self, hood: Hood, past: list[float]) -> float:
        """The threshold in units of one's own sketch: shrinking, and wider after rounds that accepted few."""
        done = hood.round / max(1, hood.rounds or 1)
        few = len(past) >= REMEMBERED and float(np.mean(past[-REMEMBERED:])) < FEW
        return float(self.gamma * np.exp(-self.kappa * done) * (WIDER if few else 1.0))
