"""Means over seeds with their uncertainty. The seed is the unit of replication: cells of a seed share partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import atan, exp, inf, lgamma, log, pi, sqrt
from statistics import fmean, stdev

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    standard_error: float | None  # None with a single seed
    seeds: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's t interval; the whole line with a single seed."""
        if self.standard_error is None:
            return -inf, inf
        half = t_quantile(0.5 + level / 2, self.seeds - 1) * self.standard_error
        return self.mean - half, self.mean + half


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value per seed."""
    if not values:
        raise ValueError("no values to take a mean of")
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else None
    return Estimate(fmean(values), error, len(values))


def share_interval(hits: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval for a share of independent draws, by bisection.

    >>> [round(end, 4) for end in share_interval(0, 100)]
    [0.0, 0.0362]
    """
    if not 0 <= hits <= total or total < 1:
        raise ValueError(f"expected some of at least one, got {hits} of {total}")
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _share_at(lambda p: 1 - _binomial_cdf(hits - 1, total, p) < tail)
    high = 1.0 if hits == total else _share_at(lambda p: _binomial_cdf(hits, total, p) > tail)
    return low, high


def mean_interval(mean: float, total: int, level: float = 0.95) -> tuple[float, float]:
    """Hoeffding's interval for the mean of so many values in [0, 1]; it holds for draws without replacement, too.

    >>> [round(end, 4) for end in mean_interval(0.5, 200)]
    [0.404, 0.596]
    """
    half = sqrt(log(2 / (1 - level)) / (2 * total))
    return max(0.0, mean - half), min(1.0, mean + half)


def _share_at(below: Callable[[float], bool]) -> float:
    """The share up to which `below` holds."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def _binomial_cdf(hits: int, total: int, p: float) -> float:
    """P(at most `hits` of `total`), for 0 < p < 1."""
    terms = (
        lgamma(total + 1) - lgamma(k + 1) - lgamma(total - k + 1) + k * log(p) + (total - k) * log(1 - p)
        for k in range(hits + 1)
    )
    return min(1.0, sum(map(exp, terms)))


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom, by bisection.

    >>> round(t_quantile(0.975, 2), 3)
    4.303
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"expected a probability in [.5, 1) and freedom >= 1, got {probability}, {freedom}")
    low, high = 0.0, 1.0
    while _t_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, freedom) < probability else (low, middle)
    return high


def t_tail(t: float, freedom: int) -> float:
    """The probability that Student's t with `freedom` degrees of freedom exceeds t >= 0.

    >>> round(t_tail(2.776, 4), 3)
    0.025
    """
    return max(0.0, 1.0 - _t_cdf(t, freedom))


def _t_cdf(t: float, freedom: int) -> float:
    """With t = sqrt(n) tan(angle) the density is cos(angle)^(n-1), which a Gauss rule integrates to rounding."""
    constant = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    nodes, weights = _gauss()
    top = atan(t / sqrt(freedom))
    return 0.5 + constant * top / 2 * float(weights @ np.cos((nodes + 1) * top / 2) ** (freedom - 1))


@cache
def _gauss() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(64)
