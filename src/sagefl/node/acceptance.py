"""The test after mixing: on samples that nobody else has ever seen, a merge must not do more harm than is tolerated.

It does not ask whether a peer is honest, or how it got itself chosen. A merge that fails is taken back, counted, and
whoever did the harm is left alone for some rounds.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, lgamma, log

from torch import Tensor

from ..exchange import Mix
from .config import NodeConfig
from .deciding import ConsultationResult
from .journal import Journal
from .learner import Learner
from .neighbourhood import Neighbourhood

LEVEL = 0.01  # chance of taking back a merge that is worse by exactly the tolerance
HARM = "harm"  # why a peer is left alone


class Acceptance:
    """Mixes, tests, and takes back."""

    def __init__(self, config: NodeConfig, learner: Learner, around: Neighbourhood, journal: Journal) -> None:
        self.names, self.tolerance = around.names, config.acceptance.tolerance
        self.learner, self.presence, self.journal = learner, around.presence, journal

    def merge(self, round: int, result: ConsultationResult) -> ConsultationResult:
        """Carry out what a decision ended with; the result says whether it was taken back."""
        mix = result.mix
        if mix is None:
            return result
        kept, before = self.learner.kept(), self.learner.safety_errors()
        self.learner.mix(round, mix)
        after, samples = self.learner.safety_errors()
        result = replace(result, tested=(before[0], after, samples))
        why = self._harm(before)
        if why is None:
            for peer in mix.peers:
                self.presence.did_well(peer, HARM)
            return result
        self.learner.put_back(kept)
        for peer in self._culprits(round, mix, kept, before):
            rounds = self.presence.leave_alone(peer, HARM, round)
            self.journal.event("rolled-back", peer=self.names[peer], round=round, why=why, left_alone=rounds)
        return replace(result, mix=None, rolled_back=True)

    def _harm(self, before: tuple[int, int]) -> str | None:
        """Why the present model must not be kept, or None."""
        if not self.learner.finite():
            return "the mixed model is not finite"
        errors, samples = self.learner.safety_errors()
        if samples and beyond(before[0], errors, samples, self.tolerance):
            return f"errors on {samples} unseen samples rose from {before[0]} to {errors}, tolerance {self.tolerance:g}"
        return None

    def _culprits(self, round: int, mix: Mix, kept: Tensor, before: tuple[int, int]) -> list[int]:
        """Whose blocks do the harm when mixed alone; if none of several does, all of them."""
        blamed = []
        for peer, age, weight in mix.pulls:
            self.learner.mix(round, Mix(1.0 - weight, ((peer, age, weight),)))
            if self._harm(before) is not None:
                blamed.append(peer)
            self.learner.put_back(kept)
        return blamed or list(mix.peers)


def beyond(before: int, after: int, samples: int, tolerance: float) -> bool:
    """Whether errors on `samples` rose from `before` to `after` by more than `tolerance` of them, beyond doubt.

    Beyond doubt: if each sample turned wrong with probability `tolerance`, so many would do so with probability at
    most `LEVEL` (binomial). Few samples thus give a peer the benefit of the doubt: 4 or more are needed at 0.3.
    """
    worse = after - before
    return worse > tolerance * samples and _upper(samples, worse, tolerance) <= LEVEL


def _upper(n: int, k: int, p: float) -> float:
    """P(Binomial(n, p) >= k) for 0 < p < 1."""
    whole, yes, no = lgamma(n + 1), log(p), log(1 - p)
    return sum(exp(whole - lgamma(i + 1) - lgamma(n - i + 1) + i * yes + (n - i) * no) for i in range(k, n + 1))
