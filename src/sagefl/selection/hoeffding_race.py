"""A Hoeffding race: probe everybody, drop whoever is certainly not the best, go on with the rest.

The rule alone; the papers, the certificate and our deviations are in `sagefl.methods.hoeffding_race`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from .outcome import Exchange, Reason, Stage, State
from .ranking import best
from .requests import Peer, Probe
from .selector import Deciding, Draws, Hood, option
from .staged import CertifiedSelector, one_of, pairwise_stages

__all__ = ["HoeffdingRaceRule"]


@dataclass(frozen=True)
class HoeffdingRaceRule(CertifiedSelector):
    """Successive elimination on the nested anchor schedule; the winner is certified to be the best neighbour."""

    summary: ClassVar[str] = "drop peers that are certainly not the best, probe only the rest"

    finish: Literal["gossip", "commit"] = option(
        "gossip", "with several left at the end: draw one of them (gossip), or take the lowest risk (commit)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("finish", self.finish, ("gossip", "commit"))

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Race until one is left or the anchors are used up."""
        if len(hood.peers) == 1:
            return Exchange.select(hood.peers[0], Reason.ONLY)
        if (exchange := self.unprobed(hood, rng)) is not None:
            return exchange
        racing, looked = hood.peers, 0
        sums = dict.fromkeys(hood.peers, 0.0)
        risks: dict[Peer, float] = {}
        trace: list[Stage] = []
        for m, m_next in pairwise_stages(hood.stages(self.schedule)):
            losses = yield Probe(racing, looked, m, self.kind, self.loss)
            for peer, new in zip(racing, losses.sum(axis=1).tolist(), strict=True):
                sums[peer] += new
                risks[peer] = sums[peer] / m
            looked, r = m, self.stage_radius(m, hood)
            ranked = sorted(risks[p] for p in racing)
            racing = tuple(p for p in racing if risks[p] - ranked[0] <= 2 * r)
            fired = "certified" if len(racing) == 1 else "continue" if m_next is not None else self._end
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
    def _end(self) -> str:
        return "committed" if self.finish == "commit" else "exhausted"
