"""SAGE-E-trim: trimmed gossip. Drop the peers certified worse than a random draw, draw among the rest.

Committing to the best peer erodes diversity over long runs whatever the evidence; the dual use of the same e-process
keeps the draw random. The wealth is run on -Y: at most d-1 peers can be better than the mean, so the same threshold
(d-1)/delta bounds the probability of ever dropping one of them by delta. Its promise concerns the mean risk of the
survivors, which is then at most R_RG.

The predictive stop asks whether dropping the next candidate is expected to pay: dropping peer j from s survivors
lowers their mean risk by about (R_j - R_RG)/(s - 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .betting import Wealth, paired_differences, threshold, worth_stopping
from .outcome import Exchange, Reason, Stage, State
from .predictive import future_looks, more_evidence_pays
from .requests import Array
from .sage_e import BettingSelector
from .selector import Deciding, Draws, Hood

__all__ = ["SageETrim"]


@dataclass(frozen=True)
class SageETrim(BettingSelector):
    """A uniform draw among the peers not certified to be worse than gossip."""

    id: ClassVar[str] = "sage-e-trim"
    summary: ClassVar[str] = "drop peers certified worse than a random draw, draw among the rest"
    citation: ClassVar[str] = "This project (beyond the SAGE paper)."
    evidence: ClassVar[str] = "answers to anchor inputs"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Look, drop, weigh, look again; then draw among the survivors."""
        if (exchange := self.unprobed(hood, rng)) is not None:
            return exchange
        degree = len(hood.peers)
        needed = threshold(degree, self.delta)
        wealth, harm, sums = Wealth(degree), np.zeros((degree, 0)), np.zeros(degree)
        trace: list[Stage] = []
        for start, stop, ahead in self.steps(hood):
            losses = yield from self.ask(hood, start, stop)
            worse = -paired_differences(losses)
            wealth.bet(worse)
            harm, sums = np.concatenate([harm, worse], axis=1), sums + losses.sum(axis=1)
            kept = self.survivors(wealth, needed)
            fired = self.fired(hood, wealth, harm, kept, needed, stop, ahead, rng)
            trace.append(self.stage(wealth, sums / stop, needed, degree, stop, ahead, fired))
            if fired != "continue":
                return self.draw(hood, kept, fired, trace, rng)
        raise AssertionError("the last look always ends the decision")

    def survivors(self, wealth: Wealth, needed: float) -> list[int]:
        """Peers never certified worse; should all be (only possible in error), the least suspicious one stays."""
        kept = [int(j) for j in np.flatnonzero(wealth.highest < needed)]
        return kept or [int(wealth.now.argmin())]

    def fired(
        self,
        hood: Hood,
        wealth: Wealth,
        harm: Array,
        kept: list[int],
        needed: float,
        anchors: int,
        ahead: int | None,
        rng: Draws,
    ) -> str:
        """Which test ends the look."""
        if len(kept) == 1:
            return "certified"
        if ahead is None:
            return "exhausted"
        degree, price = len(hood.peers), self.probe_cost * len(hood.peers)
        if self.stop == "voi":
            # Perfect information gains no more here than it does for a rule that takes the best peer.
            pays = not worth_stopping(-harm, self.delta, price * (ahead - anchors))
        elif self.stop == "predictive":
            suspect = max(kept, key=lambda j: float(wealth.now[j]))
            scale = (degree - 1) / degree / (len(kept) - 1)
            looks = future_looks(anchors, self.step, self.schedule(hood)[-1])
            pays = more_evidence_pays(
                harm[suspect], wealth.stakes[:, suspect], needed, scale, price, looks, rng("predict")
            )
        else:
            pays = True
        return "continue" if pays else "cost"

    def draw(self, hood: Hood, kept: list[int], fired: str, trace: list[Stage], rng: Draws) -> Exchange:
        """A uniform draw among the survivors; certified if anybody was dropped."""
        peer = rng.pick([hood.peers[j] for j in kept], "gossip")
        if len(kept) < len(hood.peers):
            return Exchange.select(peer, Reason.CERTIFIED, trace)
        return Exchange.gossip(peer, Reason.COST if fired == "cost" else Reason.EXHAUSTED, trace)

    def stage(
        self, wealth: Wealth, risks: Array, needed: float, degree: int, anchors: int, ahead: int | None, fired: str
    ) -> Stage:
        """One line of the trace: the wealth of the claim that a peer is worse than gossip."""
        return Stage(
            anchors=anchors,
            fired=fired,
            test="wealth",
            risks=tuple(risks.tolist()),
            advantage=float(risks.mean() - risks.min()),
            next_cost=None if ahead is None else self.probe_cost * degree * (ahead - anchors),
            wealth=tuple(wealth.now.tolist()),
            threshold=needed,
        )
