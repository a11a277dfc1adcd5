"""The predictive stop (rule B): is more evidence expected to pay?

A heuristic: it can only give up early, so it cannot break a certificate's validity. From the leader's differences so
far it draws plausible futures (a Bayesian bootstrap on the atoms y and -y), continues the wealth along them and weighs
the advantage that would be certified against the price of the anchors it takes. 0-1 losses give few distinct
differences, so equal ones are collapsed.
"""

from __future__ import annotations

import numpy as np

from .betting import BETS, mean_of_exp
from .requests import Array

__all__ = ["future_looks", "more_evidence_pays"]

KAPPA = 2.0  # prior weight spread over the atoms and their mirror images
SAMPLES = 64
FUTURES = 5


def future_looks(anchors: int, step: int, last: int) -> list[int]:
    """At most `FUTURES` geometrically spaced looks ahead, the last one at the end."""
    if anchors + step >= last:
        return [last] if last > anchors else []
    spaced = np.geomspace(anchors + step, last, FUTURES)
    on_grid = np.minimum(anchors + step * np.ceil((spaced - anchors) / step - 1e-9), last)
    return sorted({int(n) for n in on_grid})


def more_evidence_pays(
    differences: Array,
    stakes: Array,
    threshold: float,
    gain_scale: float,
    price: float,
    looks: list[int],
    rng: np.random.Generator,
) -> bool:
    """Whether some future look has a positive expected value.

    `differences` are the leader's y_1..y_n and `stakes` its log stake products; certifying at log-wealth `threshold`
    gains ``gain_scale * E y``; each further anchor costs `price`:
    V(n') = mean(gain 1{certified at n'}) - price (n' - n).
    """
    atoms, masses = _atoms(differences)
    weights = rng.standard_gamma(masses, size=(SAMPLES, len(atoms)))
    weights /= weights.sum(axis=1, keepdims=True)
    gains = gain_scale * (weights @ atoms)
    most = float(np.maximum(gains, 0).mean())
    steps = np.log1p(BETS[:, None] * atoms)  # stakes x atoms
    for look in looks:
        ahead = look - len(differences)
        if most - price * ahead <= 0:
            return False  # later looks only cost more
        counts = rng.multinomial(ahead, weights)
        wealth = mean_of_exp(stakes[:, None] + steps @ counts.T)
        if float(np.where(wealth >= threshold, gains, 0.0).mean()) - price * ahead > 0:
            return True
    return False


def _atoms(differences: Array) -> tuple[Array, Array]:
    """Distinct values among y and -y with their Dirichlet masses: 1 + kappa/2n for each y_i, kappa/2n for each -y_i."""
    prior = KAPPA / (2 * len(differences))
    values = np.concatenate([differences, -differences])
    each = np.concatenate([np.full(len(differences), 1 + prior), np.full(len(differences), prior)])
    # Equal differences computed from different anchors may differ in the last bit.
    atoms, where = np.unique(np.round(values, 12), return_inverse=True)
    return atoms, np.bincount(where, weights=each, minlength=len(atoms)).astype(np.float64)
