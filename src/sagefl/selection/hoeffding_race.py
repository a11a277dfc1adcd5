"""Hoeffding race: successive elimination of neighbours on a growing number of anchors.

O. Maron, A. W. Moore. Hoeffding Races: Accelerating Model Selection Search for Classification and Function
Approximation. NIPS 1993. E. Even-Dar, S. Mannor, Y. Mansour. Action Elimination and Stopping Conditions for the
Multi-Armed Bandit and Reinforcement Learning Problems. JMLR 7, 2006. Read: abstract and introduction of the first; of
the second a reader's public summary (aresearch.wordpress.com), which names successive elimination and its bounds.

Established. Every candidate's mean loss has a Hoeffding interval; a candidate whose interval lies wholly above that of
the best one drops out, and evaluations are spent on the others only. Since d shrinks, so does the price of a stage.

Ours. Candidates are the active neighbours, evaluations are probes on the nested anchor schedule. Radius: with d
neighbours at the start, L stages and losses in [0, M], r(m) = M sqrt(log(2 d L / delta) / (2 m)), the SAGE paper's
eq:radius: a union bound over all d that started, not over those still racing, and over L looks, in place of
Even-Dar's sum over all sample sizes. A peer drops out when its risk exceeds the lowest by more than 2r. Certificate:
with probability at least 1 - delta all d L intervals hold; then the best neighbour never drops out, every one that
does is truly worse, and a sole survivor is the best. That is Vanilla SAGE's certificate at a lower price, and it says
nothing about gossip. With several left when the anchors are used up, `finish="gossip"` draws one of the survivors
(RG's own draw if nobody dropped out) and `finish="commit"` takes the lowest risk; neither carries the certificate.
A single neighbour is taken unasked. Anchors are reused over rounds, so like every guarantee per round it is
approximate after the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from .options import option
from .outcome import CONTINUE, Exchange, Fired, Reason, Stage, State
from .ranking import best
from .requests import Peer, Probe
from .selector import Deciding, Draws, Hood
from .staged import CertifiedSelector, pairwise_stages


@dataclass(frozen=True)
class HoeffdingRace(CertifiedSelector):
    """Successive elimination on the nested anchor schedule; the winner is certified to be the best neighbour."""

    id: ClassVar[str] = "hoeffding-race"
    summary: ClassVar[str] = "Drop peers that are certainly not the best, probe only the rest."
    evidence: ClassVar[str] = "answers to anchor inputs, from the neighbours still racing"
    fidelity: ClassVar[str] = "adapted: models are peers, a race ends in an exchange"

    finish: Literal["gossip", "commit"] = option(
        "gossip", "with several left at the end: draw one of them (gossip), or take the lowest risk (commit)"
    )

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Race until one is left or the anchors are used up."""
        if len(hood.peers) == 1:
            return Exchange.select(hood.peers[0], Reason.ONLY)
        if (exchange := self.without_probing(hood, rng)) is not None:
            return exchange
        racing, looked = hood.peers, 0
        sums = dict.fromkeys(hood.peers, 0.0)
        risks: dict[Peer, float] = {}
        trace: list[Stage] = []
        for m, m_next in pairwise_stages(hood.stages(self.schedule)):
            losses = yield Probe(racing, looked, m, self.scoring)
            for peer, new in zip(racing, losses.sum(axis=1).tolist(), strict=True):
                sums[peer] += new
                risks[peer] = sums[peer] / m
            looked, r = m, self.stage_radius(m, hood)
            ranked = sorted(risks[p] for p in racing)
            racing = tuple(p for p in racing if risks[p] - ranked[0] <= 2 * r)
            fired: Fired = Reason.CERTIFIED if len(racing) == 1 else CONTINUE if m_next is not None else self._end
            look = tuple(risks[p] for p in hood.peers)  # of dropped peers, as they were when they dropped out
            trace.append(Stage(m, fired, "gap", look, r, 2 * r, gap=ranked[1] - ranked[0]))
            if len(racing) == 1:
                return Exchange.select(racing[0], Reason.CERTIFIED, trace)
        if self.finish == "commit":
            return Exchange.select(self._winner(racing, risks, rng), Reason.COMMITTED, trace)
        return Exchange.gossip(rng.pick(racing, "gossip"), Reason.EXHAUSTED, trace)

    def _winner(self, racing: tuple[Peer, ...], risks: Mapping[Peer, float], rng: Draws) -> Peer:
        if self.ties == "lowest-index":
            return min(racing, key=risks.__getitem__)
        return best(racing, [-risks[p] for p in racing], 1, rng)[0]

    @property
    def _end(self) -> Reason:
        return Reason.COMMITTED if self.finish == "commit" else Reason.EXHAUSTED
