"""Betting certificates: e-processes on paired differences. Valid at every look, for any stopping rule.

All neighbours answer the *same* anchors, so each anchor i gives a paired difference per peer,

    Y_i(j) = mean over l != j of X_il - X_ij        in [-1, 1],  E Y(j) = d/(d-1) (R_RG - R_j),

and betting on its sign with stakes g in `BETS` gives a wealth

    W_n(j) = mean over g of prod_{i <= n} (1 + g Y_i(j)).

If peer j is no better than a random draw, every factor has conditional mean at most 1, so W(j) is a non-negative
supermartingale from 1 and by Ville's inequality ever reaches d/delta with probability at most delta/d. If peers tie,
nobody is better, so the union is over all d and costs delta. No schedule, no number of looks enters.
(Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024, for the technique.)

Assumed: anchors that are independent draws, of each other and of the models that answer. Copies of an anchor (frames,
augmentations, visits of one patient) break it, and so does a pool that has shaped the models in earlier rounds: then
delta is not what it says. `sagefl.selection.pool` needs neither, and claims something about the pool alone.
"""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt

from .requests import Array

BETS = np.array([0.25, 0.5, 0.75, 0.95])
_LOG_BETS = log(len(BETS))


def paired_differences(losses: Array) -> Array:
    """Y of every peer on every anchor from losses in [0, 1] (peers x anchors, at least two peers)."""
    # Added peer by peer: NumPy's own sum adds a single column in another order, and the last bit would differ.
    total = np.add.accumulate(losses, axis=0)[-1]
    differences: Array = (total - losses) / (len(losses) - 1) - losses
    return differences


def threshold(degree: int, delta: float) -> float:
    """Log-wealth that certifies: log(d/delta). Not d-1: where peers tie, a certificate for any of them is false."""
    return log(degree / delta)


def margin_shift(margin: float, degree: int) -> float:
    """g' = gamma d/(d-1): E Y(j) of a peer that beats a random draw by exactly the margin gamma."""
    return margin * degree / (degree - 1)


def shifted(differences: Array, shift: float) -> Array:
    """(Y - g')/(1 + g'): bets on an advantage above the margin; still in [-1, 1]."""
    return differences if shift == 0 else (differences - shift) / (1 + shift)


class Wealth:
    """The running wealth of every peer, in logs; batches of any size give the same numbers."""

    __slots__ = ("highest", "now", "stakes")

    def __init__(self, degree: int) -> None:
        self.stakes: Array = np.zeros((len(BETS), degree))  # log of each stake's product
        self.now: Array = np.zeros(degree)  # log W_n of every peer
        self.highest: Array = np.zeros(degree)  # the largest log-wealth so far, per peer

    def bet(self, differences: Array, peers: slice = slice(None)) -> None:
        """Take in the differences of new anchors (peers x new anchors) one after another, of all peers or some."""
        steps = np.log1p(BETS[:, None, None] * differences)
        # Sums taken strictly from left to right, so that the size of batches cannot change a bit of the result.
        paths = np.add.accumulate(np.concatenate([self.stakes[:, peers, None], steps], axis=2), axis=2)[:, :, 1:]
        wealth = mean_of_exp(paths)
        self.stakes[:, peers], self.now[peers] = paths[:, :, -1], wealth[:, -1]
        self.highest[peers] = np.maximum(self.highest[peers], wealth.max(axis=1))


def worth_stopping(differences: Array, degree: int, delta: float, gain: float) -> bool:
    """Whether none of these peers can beat a random draw by more than `gain`, at confidence delta (rule B0).

    `differences` has a row per peer that may still be taken, out of `degree` in all. U_j <= u iff the wealth against
    "E Y(j) >= u" has reached d/delta, so one evaluation at the u that `gain` corresponds to answers the question
    without computing any U_j.
    """
    u = margin_shift(gain, degree)
    return u >= 1 or bool((_wealth_against(differences, u) >= log(degree / delta)).all())


def upper_bounds(differences: Array, delta: float) -> Array:
    """U_j: the largest E Y(j) that the evidence does not refute at level delta/d, by bisection."""
    degree = len(differences)
    low, high = np.full(degree, -1.0), np.full(degree, 1.0)
    for _ in range(50):
        middle = (low + high) / 2
        refuted = _wealth_against(differences, middle[:, None]) >= log(degree / delta)
        low, high = np.where(refuted, low, middle), np.where(refuted, middle, high)
    bounds: Array = (low + high) / 2
    return bounds


def _wealth_against(differences: Array, u: float | Array) -> Array:
    """Log-wealth of bets against E Y >= u < 1: factors 1 - g (Y - u)/(1 - u), which stay positive and grow with u."""
    moved = (differences - u) / (1 - u)
    return mean_of_exp(np.log1p(-BETS[:, None, None] * moved).sum(axis=2))


def mean_of_exp(logs: npt.NDArray[np.float64]) -> Array:
    """log mean exp over the stakes (first axis)."""
    top = logs.max(axis=0)
    result: Array = top + np.log(np.exp(logs - top).sum(axis=0)) - _LOG_BETS
    return result
