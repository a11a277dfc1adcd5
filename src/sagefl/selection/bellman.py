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
from math import inf

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .betting import BETS, mean_of_exp, threshold
from .options import check
from .requests import Array, Mask
from .theory import DELTA, SCHEDULE

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prior:
    """Dirichlet pseudo-counts of a win, a loss and a concordant anchor (for peer 1)."""

    win: float = 1.0
    loss: float = 1.0
    concordant: float = 2.0

    def __post_init__(self) -> None:
        if not all(0 < count < inf for count in (self.win, self.loss, self.concordant)):
            raise UsageError(
                f"pseudo-counts must be positive and finite, got {self.win}, {self.loss}, {self.concordant}"
            )

    @property
    def total(self) -> float:
        """Sum of the pseudo-counts."""
        return self.win + self.loss + self.concordant


@dataclass(frozen=True)
class Optima:
    """Both optimal policies and what they are worth, as gains over immediate gossip.

    `onward[n][f1, f2, wins, losses]` says whether to buy another anchor where peer 1 (2) may (f = 1) or may not yet
    be taken; an unconstrained policy may take both from the start.
    """

    prior: Prior
    delta: float
    certified: float
    unconstrained: float
    onward: tuple[Mask, ...]

    def follow(self, losses: Array, *, certified: bool) -> tuple[Counts, Counts]:
        """What the policy does on losses (decisions x 2 x anchors): the peer taken (-1: gossip) and anchors bought."""
        moves = np.sign(losses[:, 1] - losses[:, 0]).astype(np.int64)  # +1: only peer 2 wrong
        wins, losses_, bought = np.zeros((3, len(moves)), dtype=np.int64)
        free = np.full((2, len(moves)), 0 if certified else 1)
        going = np.ones(len(moves), dtype=bool)
        for n, onward in enumerate(self.onward):
            going &= onward[free[0], free[1], wins.clip(max=n), losses_.clip(max=n)]
            move = np.where(going, moves[:, n], 0)
            bought, wins, losses_ = bought + going, wins + (move == 1), losses_ + (move == -1)
            first, second = _fired(n + 1, self.delta)
            free = np.maximum(free, going * np.stack([first[wins, losses_], second[wins, losses_]]))
        lead = wins + self.prior.win - losses_ - self.prior.loss
        taken = np.where((lead > 0) & (free[0] == 1), 0, np.where((lead < 0) & (free[1] == 1), 1, -1))
        return taken, bought


def solve(prior: Prior, probe_cost: float, delta: float = DELTA, anchors: int = SCHEDULE[-1]) -> Optima:
    """Both optima by backward induction."""
    check("delta", delta, float, gt=0, lt=1)
    check("probe_cost (lambda)", probe_cost, float, ge=0)
    value, policy = _stopping(prior, anchors), []  # value[f1, f2]: peer 1 (2) may (f = 1) or may not yet be taken
    for n in range(anchors - 1, -1, -1):
        arriving = _with_flags(value, *_fired(n + 1, delta))
        onward = np.stack([[_expected(prior, n, v) for v in row] for row in arriving]) - 2 * probe_cost
        stop = _stopping(prior, n)
        policy.append(onward > stop)
        value = np.maximum(stop, onward)
    return Optima(prior, delta, float(value[0, 0, 0, 0]), float(value[1, 1, 0, 0]), tuple(reversed(policy)))


def sample_losses(
    prior: Prior, decisions: int, rng: np.random.Generator, anchors: int = SCHEDULE[-1]
) -> tuple[Array, Array]:
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


# Arrays are indexed by (wins, losses) up to n each; entries with wins + losses > n are unreachable and never read by
# a reachable one.


def _counts(n: int) -> tuple[Array, Array]:
    wins, losses = np.meshgrid(np.arange(n + 1.0), np.arange(n + 1.0), indexing="ij")
    return wins, losses


def _gain(prior: Prior, n: int) -> Array:
    """Posterior mean gain of peer 1 over gossip."""
    wins, losses = _counts(n)
    gain: Array = (wins + prior.win - losses - prior.loss) / (n + prior.total) / 2
    return gain


def _expected(prior: Prior, n: int, value: Array) -> Array:
    """E[value at n + 1] at n; `value` is (n + 2) x (n + 2)."""
    wins, losses = _counts(n)
    p_win, p_loss = (wins + prior.win) / (n + prior.total), (losses + prior.loss) / (n + prior.total)
    expected: Array = p_win * value[1:, :-1] + p_loss * value[:-1, 1:] + (1 - p_win - p_loss) * value[:-1, :-1]
    return expected


def _stopping(prior: Prior, n: int) -> Array:
    """Value of stopping now, by (certified 1, certified 2): gossip, or a certified peer."""
    gain = _gain(prior, n)
    one, two = np.maximum(gain, 0), np.maximum(-gain, 0)
    return np.stack([np.stack([np.zeros_like(gain), two]), np.stack([one, np.maximum(one, two)])])


def _fired(n: int, delta: float) -> tuple[Mask, Mask]:
    """Whether peer 1's (peer 2's) wealth stands at or above its threshold."""
    wins, losses = _counts(n)
    up, down = np.log1p(BETS)[:, None, None], np.log1p(-BETS)[:, None, None]
    first = mean_of_exp(wins * up + losses * down) >= threshold(2, delta)
    return first, first.T


def _with_flags(value: Array, first: Mask, second: Mask) -> Array:
    """The value on arrival: where a certificate stands, its flag is set whatever it was before."""
    value = np.where(first, value[[1, 1]], value)
    return np.where(second, value[:, [1, 1]], value)
