"""CFNS-lite: merge the neighbours whose data look most alike, judged by several noisy factors.

Guo et al. The method of "comprehensive factors for neighbor selection (CFNS)" for decentralised federated learning.
ACM 2024, pages 21-28 of its proceedings. Read: the abstract, in the repository of its authors' university (BJUT);
neither text nor code is public.

Established, from the abstract alone (hence "-lite"). A client selects neighbours with similar
data distributions by considering several factors, helped by the graph; local differential privacy protects what
clients communicate.

Ours. Everything else. Factors: similarity of last layers, closeness of training losses, degree; weights 1, .1 and .1;
a neighbour's score is averaged over rounds (memory .8), which also averages the noise; the best k = 2 are merged. What
is read is perturbed by the analytic Gaussian mechanism at epsilon = 10, delta = 1e-5 per release (last layers scaled
to unit length, losses clipped at 5), degrees are public. Epsilon is per release and adds up: two releases per
neighbour and round. In the simulation the receiver adds the noise to what it reads; a real peer must do so before it
answers, so nodes run this with `private=false` only. The models that are merged are *not* perturbed, so this protects
the selection only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import erfc, exp, sqrt
from typing import ClassVar

import numpy as np

from .options import option
from .outcome import Exchange, Reason, Stage, State
from .ranking import best
from .requests import ME, Array, Read
from .selector import Deciding, Draws, Hood, Selector

LARGEST_LOSS = 5.0  # losses are clipped here before they are perturbed


@cache
def gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """The smallest noise that makes a release (epsilon, delta)-private: the analytic Gaussian mechanism.

    Balle and Wang 2018, theorem 8; unlike the classical formula it holds for every epsilon.
    """

    def leak(sigma: float) -> float:
        a, b = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
        return 0.5 * (erfc((b - a) / sqrt(2)) - exp(epsilon) * erfc((a + b) / sqrt(2)))

    low, high = 0.0, sensitivity
    while leak(high) > delta:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if leak(middle) > delta else (low, middle)
    return high


@dataclass(frozen=True)
class CfnsLite(Selector):
    """The k neighbours most like oneself, by factors that are noisy and averaged over rounds.

    * similarity: the inner product of my last layer with the neighbour's noisy one, both of unit length. My own side is
      exact, so the error is one Gaussian of standard deviation sigma, whatever the number of weights;
    * closeness: minus the distance between my training loss and the neighbour's noisy one;
    * graph: the neighbour's share of the largest degree around.
    """

    id: ClassVar[str] = "cfns-lite"
    summary: ClassVar[str] = "Merge the neighbours most alike by privately released factors; read from the abstract."
    evidence: ClassVar[str] = "neighbours' last layers and training losses with Gaussian noise, degrees"
    communication: ClassVar[str] = "k / k"
    fidelity: ClassVar[str] = "inspired by: only the abstract is public"

    k: int = option(2, "neighbours merged each round", ge=1)
    similarity: float = option(1.0, "weight of the similarity of last layers")
    closeness: float = option(0.1, "weight of the closeness of training losses")
    graph: float = option(0.1, "weight of the degree")
    private: bool = option(True, "perturb what is read; false: exact factors")
    epsilon: float = option(10.0, "privacy of one perturbed release", gt=0, le=100)
    delta: float = option(1e-5, "failure probability of the privacy of one release", gt=0, lt=1)
    memory: float = option(0.8, "weight of the past in the running average of a neighbour's score", ge=0, lt=1)

    @property
    def beyond(self) -> str:
        """Peers would hand over what is to be private."""
        told = "perturbs what peers hand over once it has arrived (it would work with its option private=false)"
        return told if self.private else ""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the factors, average their sum with the past, merge the best k."""
        if not hood.peers:
            return Exchange.none()
        layers = yield Read((*hood.peers, ME), "last-layer")
        losses = yield Read((*hood.peers, ME), "loss")
        degrees = np.ravel((yield Read(hood.peers, "degree")))
        fresh = (
            self.similarity * self._similarities(layers, rng)
            + self.closeness * self._closeness(np.ravel(losses), rng)
            + self.graph * degrees / max(float(degrees.max()), 1.0)
        )
        past = state.get("scores", {})
        scores = {
            p: self.memory * past[p] + (1 - self.memory) * s if p in past else s
            for p, s in zip(hood.peers, fresh.tolist(), strict=True)
        }
        look = Stage(0, Reason.COMMITTED, scores=tuple(scores.values()))
        chosen = best(hood.peers, list(scores.values()), self.k, rng)
        return Exchange.merge(chosen, Reason.COMMITTED, trace=(look,), state={"scores": past | scores})

    def _sigma(self, sensitivity: float) -> float:
        return gaussian_sigma(sensitivity, self.epsilon, self.delta) if self.private else 0.0

    def _similarities(self, layers: list[Array], rng: Draws) -> Array:
        """<mine, theirs + noise> of last layers scaled to unit length; two such layers differ by 2 at most."""
        *theirs, mine = [layer / max(float(np.linalg.norm(layer)), 1e-12) for layer in map(np.ravel, layers)]
        sigma = self._sigma(2.0)
        noise = rng("ldp-layers").normal(0.0, 1.0, (len(theirs), len(mine)))
        similarities: Array = (np.array(theirs) + sigma * noise) @ mine
        return similarities

    def _closeness(self, losses: Array, rng: Draws) -> Array:
        """Minus the distance of perturbed losses from mine, in units of the largest loss."""
        clipped = np.minimum(losses, LARGEST_LOSS) / LARGEST_LOSS
        sigma = self._sigma(1.0)
        noise = rng("ldp-losses").normal(0.0, 1.0, len(losses) - 1)
        distances: Array = np.abs(clipped[:-1] + sigma * noise - clipped[-1])
        return -distances
