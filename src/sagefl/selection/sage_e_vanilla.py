"""SAGE-E-vanilla: best against the rest by exact sign tests.

For the empirically best peer j and every other l let b = #(l wrong, j right), c = #(j wrong, l right); certify iff for
every l `P(Bin(b + c, 1/2) <= c) <= delta/(d L)`. The same question as Vanilla SAGE (is this the best peer?), but
paired and exact instead of two Hoeffding intervals; unresolved decisions gossip. The sign test is about 0-1 losses.

Valid because a wrong certificate must reject a peer l that is as good as the chosen j or better: at most d wrong
choices of j (all of them, if peers tie), L looks, each rejected with probability at most delta/(d L), if the anchors
are independent of each other and of the models. A single neighbour is taken without a probe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb, log
from typing import ClassVar

import numpy as np

from ..errors import UsageError
from .outcome import CONTINUE, Exchange, Fired, Reason, Stage, State
from .requests import Array, Mask
from .selector import Deciding, Draws, Hood
from .staged import CertifiedSelector, Look, pairwise_stages

GRADED = "the sign test is about losses that are 0 or M = {bound:g}: use sage-e instead"
TINY = 5e-324  # the smallest positive float: p-values below it still have a logarithm


@lru_cache(maxsize=16384)
def sign_test(wins: int, losses: int) -> float:
    """P(Bin(wins + losses, 1/2) <= losses), exactly: a quotient of whole numbers, rounded once."""
    n = wins + losses
    tail: float = sum(comb(n, i) for i in range(losses + 1)) / (1 << n)
    return tail


@dataclass(frozen=True)
class SageEVanilla(CertifiedSelector):
    """Exact paired tests of the best peer against each other one."""

    id: ClassVar[str] = "sage-e-vanilla"
    summary: ClassVar[str] = "certify the best peer against every other by exact sign tests"
    citation: ClassVar[str] = "This project (beyond the SAGE paper)."
    fidelity: ClassVar[str] = "ours: there is no paper to be true to"
    evidence: ClassVar[str] = "answers to anchor inputs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss != "error":
            raise ValueError('the sign test is about 0-1 losses: use loss="error"')

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Stage by stage until every sign test rejects or the anchors end."""
        if (exchange := self.without_probing(hood, rng)) is not None:
            return exchange
        trace: list[Stage] = []
        look: Look | None = None
        wrong: Mask = np.zeros((len(hood.peers), 0), dtype=bool)
        for m, m_next in pairwise_stages(hood.stages(self.schedule)):
            losses = yield self.probe(hood, look, m)
            look, wrong = Look.at(m, losses, look), np.concatenate([wrong, self.errors(losses)], axis=1)
            best = self.leader(look, hood, rng)
            p_value, level = worst_p_value(wrong, hood.peers.index(best)), self.level(hood)
            certified = p_value <= level
            fired: Fired = Reason.CERTIFIED if certified else CONTINUE if m_next is not None else Reason.EXHAUSTED
            # As log-wealth, a p-value p counts -log p: larger is stronger, the threshold is -log of the level.
            strength = 0.0 - log(max(p_value, TINY))
            trace.append(replace(look.stage(fired, "sign"), wealth=(strength,), threshold=-log(level)))
            if certified:
                return Exchange.select(best, Reason.CERTIFIED, trace)
        return Exchange.gossip(rng.gossip(hood), Reason.EXHAUSTED, trace)

    def without_probing(self, hood: Hood, rng: Draws) -> Exchange | None:
        """As for every staged rule; and a single neighbour is taken unasked."""
        if len(hood.peers) == 1:
            return Exchange.gossip(hood.peers[0], Reason.ONLY)
        return super().without_probing(hood, rng)

    def level(self, hood: Hood) -> float:
        """What every p-value must not exceed: delta/(d L)."""
        return self.delta / (len(hood.peers) * self.stage_count(hood))

    def suited(self, *, latents: bool, graded: bool = False) -> SageEVanilla:
        """The rule itself; errors of values are neither 0 nor M."""
        if graded:
            raise UsageError(GRADED.format(bound=self.loss_bound))
        return self

    def errors(self, losses: Array) -> Mask:
        """Which answers were wrong; losses that are neither 0 nor M (or M in float32) have no sign test."""
        wrong: Mask = (losses == self.loss_bound) | (losses == float(np.float32(self.loss_bound)))
        if not (wrong | (losses == 0)).all():
            raise UsageError(GRADED.format(bound=self.loss_bound))
        return wrong


def worst_p_value(wrong: Mask, best: int) -> float:
    """The largest p-value of the best peer against any other."""
    others = np.delete(wrong, best, axis=0)
    wins, losses = (others & ~wrong[best]).sum(axis=1), (wrong[best] & ~others).sum(axis=1)
    return max(sign_test(int(b), int(c)) for b, c in zip(wins, losses, strict=True))
