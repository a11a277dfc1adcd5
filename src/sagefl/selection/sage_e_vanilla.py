"""SAGE-E-vanilla: best against the rest by exact sign tests.

For the empirically best peer j and every other l let b = #(l wrong, j right), c = #(j wrong, l right); certify iff for
every l ``P(Bin(b + c, 1/2) <= c) <= delta/((d-1) L)``. The same question as Vanilla SAGE (is this the best peer?), but
paired and exact instead of two Hoeffding intervals; unresolved decisions gossip. The sign test is about 0-1 losses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb, log
from typing import ClassVar

import numpy as np

from .outcome import Exchange, Reason, Stage, State
from .requests import Array, Probe
from .selector import Deciding, Draws, Hood
from .staged import CertifiedSelector, Look, pairwise_stages

__all__ = ["SageEVanilla", "sign_test"]


@lru_cache(maxsize=16384)
def sign_test(wins: int, losses: int) -> float:
    """P(Bin(wins + losses, 1/2) <= losses), exactly."""
    n = wins + losses
    return sum(comb(n, i) for i in range(losses + 1)) / float(2**n)


@dataclass(frozen=True)
class SageEVanilla(CertifiedSelector):
    """Exact paired tests of the best peer against each other one."""

    id: ClassVar[str] = "sage-e-vanilla"
    summary: ClassVar[str] = "certify the best peer against every other by exact sign tests"
    citation: ClassVar[str] = "This project (beyond the SAGE paper)."
    evidence: ClassVar[str] = "answers to anchor inputs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss != "error":
            raise ValueError('the sign test is about 0-1 losses: use loss="error"')

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Stage by stage until every sign test rejects or the anchors end."""
        if (exchange := self.unprobed(hood, rng)) is not None:
            return exchange
        if len(hood.peers) == 1:
            return Exchange.gossip(hood.peers[0], Reason.ONLY)
        stages = hood.stages(self.schedule)
        level = self.delta / ((len(hood.peers) - 1) * (len(self.schedule) if self.looks == "nominal" else len(stages)))
        trace: list[Stage] = []
        seen: Array = np.zeros((len(hood.peers), 0))
        for m, m_next in pairwise_stages(stages):
            new = yield Probe(hood.peers, seen.shape[1], m, self.kind, self.loss)
            seen = np.concatenate([seen, new > 0], axis=1)
            look = Look.at(m, seen)
            best = self.leader(look, hood, rng)
            worst = self.worst_p_value(seen, hood.peers.index(best))
            fired = "certified" if worst <= level else "exhausted" if m_next is None else "continue"
            # As log-wealth, a p-value p counts -log p: larger is stronger, the threshold is -log of the level.
            trace.append(replace(look.stage(fired, "sign"), wealth=(-log(worst),), threshold=-log(level)))
            if fired == "certified":
                return Exchange.select(best, Reason.CERTIFIED, trace)
        return Exchange.gossip(rng.gossip(hood), Reason.EXHAUSTED, trace)

    def worst_p_value(self, wrong: Array, best: int) -> float:
        """The largest p-value of the best peer against any other."""
        right, values = 1 - wrong[best], []
        for other in range(len(wrong)):
            if other != best:
                wins = int((wrong[other] * right).sum())
                values.append(sign_test(wins, int((wrong[best] * (1 - wrong[other])).sum())))
        return max(values)
