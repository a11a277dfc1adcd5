"""The predictive stop (rule B): is more evidence expected to pay?

A heuristic: it can only give up early, so it cannot break a certificate's validity. From the differences of the peer in
question it draws plausible futures (a Bayesian bootstrap on the atoms y and -y; Rubin 1981), continues the wealth along
them and weighs the advantage that would be certified against the price of the anchors it takes. 0-1 losses give few
distinct differences, so equal ones are collapsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .betting import BETS, shifted
from .requests import Array

KAPPA = 2.0  # prior weight spread over the atoms and their mirror images
SAMPLES = 64
FUTURES = 5
FAR_BEYOND = 600.0  # a log-wealth whose exponential is still a number


@dataclass(frozen=True)
class Bet:
    """What is bet on about one peer."""

    differences: Array  # y_1..y_n
    stakes: Array  # log of each stake's product so far
    threshold: float  # log-wealth that certifies the claim
    gain: float  # what certifying it gains, per unit of E y
    shift: float = 0.0  # g' of a margin


@lru_cache(maxsize=4096)
def future_looks(ahead: tuple[int, ...]) -> tuple[int, ...]:
    """At most `FUTURES` of the looks ahead, geometrically spaced, the next and the last among them."""
    if len(ahead) <= 1:
        return ahead
    targets = np.geomspace(ahead[0], ahead[-1], FUTURES)
    at = np.searchsorted(ahead, targets - 1e-9).clip(max=len(ahead) - 1)
    return tuple(ahead[i] for i in sorted(set(at.tolist())))


def more_evidence_pays(claim: Bet, price: float, looks: Sequence[int], rng: np.random.Generator) -> bool:
    """Whether some future look has a positive expected value.

    V(n') = mean over futures of (gain E y 1{certified at n'}) - price (n' - n), `price` being that of one anchor. The
    furthest affordable look is tried first: where it pays to go on, it mostly pays there.
    """
    atoms, masses = _atoms(claim.differences)
    theta = rng.standard_gamma(masses, size=(SAMPLES, len(atoms)))
    theta /= theta.sum(axis=1, keepdims=True)
    gains = claim.gain * (theta @ atoms) / SAMPLES
    most = float(gains[gains > 0].sum())  # no look can gain more
    steps = np.log1p(BETS[:, None] * shifted(atoms, claim.shift))  # stakes x atoms
    missing = claim.stakes[:, None] - claim.threshold
    for look in reversed(looks):
        ahead = look - len(claim.differences)
        if most <= price * ahead:
            continue
        counts = rng.multinomial(ahead, theta)
        shares = np.exp(np.minimum(missing + steps @ counts.T, FAR_BEYOND))  # of the wealth needed
        certified = shares.sum(axis=0) >= len(BETS)
        if float(gains @ certified) > price * ahead:
            return True
    return False


def _atoms(differences: Array) -> tuple[Array, Array]:
    """Distinct values among y and -y with their Dirichlet masses: 1 + kappa/2n for each y_i, kappa/2n for each -y_i."""
    prior = KAPPA / (2 * len(differences))
    # Equal differences computed from different anchors may differ in the last bit.
    values = np.round(np.concatenate([differences, -differences]), 12)
    order = values.argsort()
    ranked, masses = values[order], np.repeat([1 + prior, prior], len(differences))[order]
    first = np.concatenate([[0], 1 + np.flatnonzero(ranked[1:] > ranked[:-1])])
    return ranked[first], np.add.reduceat(masses, first)
