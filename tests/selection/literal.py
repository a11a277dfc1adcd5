"""The rules of the paper, transcribed loop by loop: slow, obvious, sharing no code with the package.

Risks and advantages are exact fractions, so nothing here depends on the order of a sum. What is random is drawn by the
recipe that `sagefl.streams` documents, written out once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from zlib import crc32

import numpy as np


class KnifeEdgeError(Exception):
    """Two sides of a comparison closer than floating point can tell; exact and float may disagree."""


@dataclass
class Decided:
    """What a literal rule ends with."""

    peer: int | None
    selected: bool
    reason: str
    anchors: int
    fired: list[str]


@dataclass
class Setting:
    """The inputs of Algorithm 1, and what the paper leaves open as options."""

    losses: Sequence[Sequence[float]]  # N_k^t x anchors
    pool: int
    seed: int
    schedule: Sequence[int] = (16, 32, 64, 128)
    delta: float = 0.1
    lam: float = 2e-3
    M: float = 1.0
    tight: bool = False
    cumulative: bool = False
    feasible: bool = False
    lowest_index: bool = False

    @property
    def d(self) -> int:
        return len(self.losses)

    def feasible_stages(self) -> list[int]:
        stages = []
        for m in self.schedule:
            if m <= self.pool:
                stages.append(m)
        return stages

    def risk(self, j: int, m: int) -> Fraction:
        seen = []
        for i in range(m):
            seen.append(self.losses[j][i])
        return Fraction(math.fsum(seen)) / m  # fsum is exact wherever the sum is a float, and here it always is

    def risks(self, m: int) -> list[Fraction]:
        return [self.risk(j, m) for j in range(self.d)]

    def radius(self, m: int) -> float:
        L = len(self.feasible_stages()) if self.feasible else len(self.schedule)
        return self.M * math.sqrt(math.log(2 * self.d * L / self.delta) / (2 * m))

    def uniform(self, purpose: str, items: Sequence[int]) -> int:
        if len(items) == 1:
            return items[0]
        generator = np.random.default_rng([1, self.seed, crc32(purpose.encode())])
        return items[math.floor(generator.random() * len(items))]

    def gossip(self) -> int:
        return self.uniform("gossip", list(range(self.d)))

    def empirical_best(self, m: int) -> int:
        risks = self.risks(m)
        best = []
        for j in range(self.d):
            if risks[j] == min(risks):
                best.append(j)
        return best[0] if self.lowest_index else self.uniform("ties", best)


def above(a: Fraction | float, b: Fraction | float) -> bool:
    """a > b, refusing to answer where rounding could."""
    if a != b and abs(a - b) < 1e-12:
        raise KnifeEdgeError
    return a > b


def sage_os(s: Setting) -> Decided:
    if s.d == 0:
        return Decided(None, False, "none", 0, [])
    stages = s.feasible_stages()
    if not stages:
        return Decided(s.gossip(), False, "no-anchors", 0, [])
    fired = []
    L = len(stages)
    for ell in range(1, L + 1):
        m = stages[ell - 1]
        risks = s.risks(m)
        r = s.radius(m)
        mean = sum(risks) / s.d
        A = mean - min(risks)
        width = 2 * r * (1 - 1 / s.d) if s.tight else 2 * r
        if above(A, width):
            return Decided(s.empirical_best(m), True, "certified", m, [*fired, "certified"])
        elif ell == L:
            return Decided(s.gossip(), False, "exhausted", m, [*fired, "exhausted"])
        else:
            m_next = stages[ell]
            C = s.lam * s.d * (m_next if s.cumulative else m_next - m)
            most = max(A + width, 0)
            if not above(most, C):
                return Decided(s.gossip(), False, "cost", m, [*fired, "cost"])
        fired.append("continue")
    raise AssertionError


def vanilla(s: Setting, *, falls_back: bool = True) -> Decided:
    if s.d == 0:
        return Decided(None, False, "none", 0, [])
    stages = s.feasible_stages()
    if not stages:
        return Decided(s.gossip(), False, "no-anchors", 0, [])
    fired = []
    for m in stages:
        risks = sorted(s.risks(m))
        if s.d > 1 and above(risks[1] - risks[0], 2 * s.radius(m)):
            return Decided(s.empirical_best(m), True, "certified", m, [*fired, "certified"])
        fired.append("continue")
    if falls_back:
        return Decided(s.gossip(), False, "exhausted", m, [*fired[:-1], "exhausted"])
    return Decided(s.empirical_best(m), True, "committed", m, [*fired[:-1], "committed"])


def sage_nf(s: Setting) -> Decided:
    return vanilla(s, falls_back=False)


def anchor_query(s: Setting) -> Decided:
    if s.d == 0:
        return Decided(None, False, "none", 0, [])
    stages = s.feasible_stages()
    if not stages:
        return Decided(s.gossip(), False, "no-anchors", 0, [])
    return Decided(s.empirical_best(stages[-1]), True, "committed", stages[-1], ["committed"])


def random_gossip(s: Setting) -> Decided:
    if s.d == 0:
        return Decided(None, False, "none", 0, [])
    return Decided(s.gossip(), False, "uniform", 0, [])
