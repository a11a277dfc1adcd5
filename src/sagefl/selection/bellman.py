"""The Bellman reference for two neighbours: what stopping optimally is worth, exactly.

With d = 2 an anchor shows one of three joint patterns: only peer 2 wrong (a win for peer 1), only peer 1 wrong (a
loss), or concordant. Under a Dirichlet prior on their probabilities the counts (wins, losses, n) are sufficient, and
backward induction over 128 anchors is cheap. Values are gains over immediate gossip in risk units: choosing peer 1
gains (theta_win - theta_loss)/2 in expectation, gossip gains 0, an anchor costs 2 lambda.

Two optima: *unconstrained* (any peer may be taken at any time; under an exchangeable prior it never strictly prefers
gossip) and *certified* (a peer may be taken only once its betting certificate has fired; as the certificate looks at
the running maximum of the wealth, "has fired" is part of the state).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from .betting import BETS, mean_of_exp
from .requests import Array

__all__ = ["Prior", "certified_optimum", "sample_losses", "unconstrained_optimum"]


@dataclass(frozen=True)
class Prior:
    """Dirichlet pseudo-counts of a win, a loss and a concordant anchor (for peer 1)."""

    win: float = 1.0
    loss: float = 1.0
    concordant: float = 2.0

    def __post_init__(self) -> None:
        if min(self.win, self.loss, self.concordant) <= 0:
            raise ValueError(f"pseudo-counts must be positive, got {self}")

    @property
    def total(self) -> float:
        """Sum of the pseudo-counts."""
        return self.win + self.loss + self.concordant


def unconstrained_optimum(prior: Prior, probe_cost: float, anchors: int = 128) -> float:
    """Largest expected gain over gossip when any peer may be taken at any time."""
    value = np.abs(_gain(prior, anchors))
    for n in range(anchors - 1, -1, -1):
        onward = _expected(prior, n, value) - 2 * probe_cost
        value = np.maximum(np.abs(_gain(prior, n)), np.maximum(onward, 0.0))
        value = np.where(_valid(n), value, 0.0)
    return float(value[0, 0])


def certified_optimum(prior: Prior, probe_cost: float, delta: float = 0.1, anchors: int = 128) -> float:
    """Largest expected gain when a peer may be taken only after its betting certificate has fired.

    ``value[f1, f2]`` holds the states in which peer 1 (2) has been certified so far.
    """
    value = _stopping(prior, anchors)
    for n in range(anchors - 1, -1, -1):
        stop, fired = _stopping(prior, n), _fired(n + 1, delta)
        for f1 in (0, 1):
            for f2 in (0, 1):
                # Where the next count pattern fires a certificate, the flag is set on arrival.
                arriving = value[f1, f2]
                for g1 in (0, 1):
                    for g2 in (0, 1):
                        there = (fired[0] == bool(g1)) & (fired[1] == bool(g2))
                        arriving = np.where(there, value[max(f1, g1), max(f2, g2)], arriving)
                onward = _expected(prior, n, arriving) - 2 * probe_cost
                stop[f1, f2] = np.where(_valid(n), np.maximum(stop[f1, f2], onward), 0.0)
        value = stop
    return float(value[0, 0][0, 0])


def sample_losses(prior: Prior, decisions: int, rng: np.random.Generator, anchors: int = 128) -> tuple[Array, Array]:
    """Worlds drawn from the prior: loss matrices (decisions x 2 x anchors) and each one's gain of peer 1 over gossip.

    Concordant anchors are right or wrong for both with equal probability; no rule here can tell the difference.
    """
    theta = rng.dirichlet((prior.win, prior.loss, prior.concordant), size=decisions)
    draw = rng.random((decisions, anchors))
    win, loss = draw < theta[:, :1], (draw >= theta[:, :1]) & (draw < theta[:, :2].sum(axis=1, keepdims=True))
    both = ~win & ~loss & (rng.random((decisions, anchors)) < 0.5)
    losses: Array = np.stack([loss | both, win | both], axis=1).astype(np.float64)
    gains: Array = (theta[:, 0] - theta[:, 1]) / 2
    return losses, gains


def _counts(n: int) -> tuple[Array, Array]:
    wins, losses = np.meshgrid(np.arange(n + 1.0), np.arange(n + 1.0), indexing="ij")
    return wins, losses


def _valid(n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    wins, losses = _counts(n)
    return np.asarray(wins + losses <= n)


def _gain(prior: Prior, n: int) -> Array:
    """Posterior mean gain of peer 1 over gossip by (wins, losses)."""
    wins, losses = _counts(n)
    gain: Array = (wins + prior.win - losses - prior.loss) / (n + prior.total) / 2
    return np.where(_valid(n), gain, 0.0)


def _expected(prior: Prior, n: int, value: Array) -> Array:
    """E[value at n + 1] by (wins, losses) at n; `value` is (n + 2) x (n + 2)."""
    wins, losses = _counts(n)
    total = n + prior.total
    p_win, p_loss = (wins + prior.win) / total, (losses + prior.loss) / total
    expected: Array = p_win * value[1:, :-1] + p_loss * value[:-1, 1:] + (1 - p_win - p_loss) * value[:-1, :-1]
    return np.where(_valid(n), expected, 0.0)


def _stopping(prior: Prior, n: int) -> Array:
    """Value of stopping now, by (certified 1, certified 2): gossip, or a certified peer."""
    gain = _gain(prior, n)
    zero = np.zeros_like(gain)
    one, two = np.maximum(gain, 0), np.maximum(-gain, 0)
    return np.stack([np.stack([zero, two]), np.stack([one, np.maximum(one, two)])])


def _fired(n: int, delta: float) -> Array:
    """Which peer's wealth stands at or above its threshold, by (wins, losses) at n."""
    wins, losses = _counts(n)
    up, down = np.log1p(BETS)[:, None, None], np.log1p(-BETS)[:, None, None]
    first = mean_of_exp(wins * up + losses * down) >= log(1 / delta)
    second = mean_of_exp(losses * up + wins * down) >= log(1 / delta)
    return np.stack([first, second])
