"""A synthetic world of probe losses, calibrated to the paper: what rules are measured on without training anything.

K = 50 clients, 10 classes, Dirichlet(alpha) over clients per class, on the paper's graphs; 10 % anchor pools, cut to
the paper's schedule so that every rule has the same anchors. Peer j is right on class c with probability
`a_max pi/(pi + eta)`, where pi is j's share of class c; given the class, the errors of all peers on one anchor share
a Gaussian latent difficulty with correlation rho. As true risks are known, a rule's *cost* is exact: risk of what it
takes minus R_RG, plus lambda per evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ..data import Dirichlet
from ..selection.theory import SCHEDULE
from ..streams import stream
from ..topology import build
from .results import ALPHAS

GRAPHS = ("er", "ba")
SAMPLES_PER_CLASS = (6000, 5000)  # Fashion-MNIST, CIFAR-10
SKILLS = ((0.95, 0.05), (0.70, 0.15))  # (a_max, eta): an easy and a hard task
CLASSES, RHO, CLIENTS = 10, 0.5, 50


@dataclass(frozen=True)
class SyntheticCell:
    """One world of one kind."""

    alpha: float
    graph: str
    per_class: int
    a_max: float
    eta: float
    world: int

    @property
    def seed(self) -> int:
        """Fresh for every cell, the same in every run."""
        key = f"{self.alpha} {self.graph} {self.per_class} {self.a_max} {self.world}"
        return int(stream(0, key).integers(2**31))


@dataclass(frozen=True)
class SyntheticHood:
    """One receiver: its peers' true risks on its own class mix, and how their losses are drawn."""

    mix: npt.NDArray[np.float64]  # the receiver's class distribution
    error: npt.NDArray[np.float64]  # peers x classes: probability of an error
    pool: int  # anchors: 16, 32, 64 or 128

    @property
    def risks(self) -> npt.NDArray[np.float64]:
        """True risk of every peer."""
        risks: npt.NDArray[np.float64] = self.error @ self.mix
        return risks

    def draw(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """A (peers x anchors) matrix of 0-1 losses."""
        classes = rng.choice(CLASSES, self.pool, p=self.mix)
        shared, own = rng.standard_normal(self.pool), rng.standard_normal((len(self.error), self.pool))
        latent = np.sqrt(RHO) * shared + np.sqrt(1 - RHO) * own
        return np.asarray(latent < _quantile(self.error[:, classes]), dtype=np.float64)


def cells(worlds: int = 2) -> Iterator[SyntheticCell]:
    """Every combination of task, heterogeneity, graph and skill, each in some fresh worlds."""
    for alpha, graph, per_class, (a_max, eta) in product(ALPHAS, GRAPHS, SAMPLES_PER_CLASS, SKILLS):
        for world in range(worlds):
            yield SyntheticCell(alpha, graph, per_class, a_max, eta, world)


def neighbourhoods(cell: SyntheticCell) -> list[SyntheticHood]:
    """The receivers of one world whose pool allows a first stage of 16 anchors."""
    labels = np.repeat(np.arange(CLASSES), cell.per_class)
    parts = Dirichlet(cell.alpha).assign(labels, CLIENTS, stream(cell.seed, "partition"))
    counts = np.stack([np.bincount(labels[part], minlength=CLASSES) for part in parts])
    shares = counts / counts.sum(axis=1, keepdims=True)
    error = 1 - cell.a_max * shares / (shares + cell.eta)
    graph = build(cell.graph, CLIENTS, cell.seed % 100_000)
    return [
        SyntheticHood(shares[k], error[graph.neighbours(k)], stages[-1])
        for k in range(CLIENTS)
        if (stages := [m for m in SCHEDULE if m <= int(counts[k].sum()) // 10])
    ]


def _quantile(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Normal quantiles; the few distinct probabilities are looked up."""
    values, where = np.unique(p, return_inverse=True)
    normal = NormalDist()
    table = np.array([normal.inv_cdf(min(max(v, 1e-12), 1 - 1e-12)) for v in values])
    found: npt.NDArray[np.float64] = table[where].reshape(p.shape)
    return found
