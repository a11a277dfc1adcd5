"""Boundary nulls and a fast wealth, for false-certification rates over tens of thousands of decisions.

In every null all risks are equal. That is the hardest case there is: nobody is better than a random draw, so a
certificate for any of the d peers is false, and as hard to tell from a true one as can be. The same for the dual.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from scipy.stats import beta

BETS = (0.25, 0.5, 0.75, 0.95)
CHUNK = 512
Draw = Callable[[int, int, int, np.random.Generator], np.ndarray]


def independent(error: float) -> Draw:
    return lambda n, d, m, rng: (rng.random((n, d, m)) < error).astype(float)


def correlated(error: float, rho: float = 0.8) -> Draw:
    quantile = NormalDist().inv_cdf(error)

    def draw(n: int, d: int, m: int, rng: np.random.Generator) -> np.ndarray:
        latent = np.sqrt(rho) * rng.standard_normal((n, 1, m)) + np.sqrt(1 - rho) * rng.standard_normal((n, d, m))
        return (latent < quantile).astype(float)

    return draw


def one_right(n: int, d: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """On every anchor exactly one peer, drawn uniformly, is right."""
    return (np.arange(d)[:, None] != rng.integers(d, size=(n, 1, m))).astype(float)


def one_wrong(n: int, d: int, m: int, rng: np.random.Generator) -> np.ndarray:
    return 1 - one_right(n, d, m, rng)


PATTERNS: dict[str, Draw] = {
    "independent .5": independent(0.5),
    "independent .1": independent(0.1),
    "correlated .3": correlated(0.3),
    "one right": one_right,
    "one wrong": one_wrong,
}


def differences(losses: np.ndarray) -> np.ndarray:
    """Y of every peer (decisions x peers x anchors)."""
    d = losses.shape[1]
    return (losses.sum(axis=1, keepdims=True) - losses) / (d - 1) - losses


def highest_wealth(y: np.ndarray) -> np.ndarray:
    """max over t of W_t, not in logs: 1.95^128 is far from overflowing."""
    wealth = sum(np.multiply.accumulate(1 + g * y, axis=-1) for g in BETS) / len(BETS)
    return np.asarray(wealth.max(axis=-1))


def count_false(draw: Draw, degree: int, decisions: int, needed: float, sign: int = 1, seed: int = 0) -> int:
    """Decisions in which somebody's wealth ever reaches `needed`, looking after each of 128 anchors."""
    rng, count = np.random.default_rng([seed, degree]), 0
    for start in range(0, decisions, CHUNK):
        losses = draw(min(CHUNK, decisions - start), degree, 128, rng)
        count += int((highest_wealth(sign * differences(losses)) >= needed).any(axis=1).sum())
    return count


def upper_limit(count: int, total: int, level: float) -> float:
    """One-sided Clopper-Pearson limit."""
    return 1.0 if count == total else float(beta.ppf(level, count + 1, total - count))


def lower_limit(count: int, total: int, level: float) -> float:
    return 0.0 if count == 0 else float(beta.ppf(1 - level, count, total - count + 1))
