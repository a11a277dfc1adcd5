"""An exchange alone, on vectors instead of models: how fast nodes agree, and how well they learn convex problems.

The exchange is the method's own: the layer that runs use, and the rule that decides whom it merges with which weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sagefl.data.loading import load
from sagefl.exchange import ExchangeLayer
from sagefl.learning.layout import Layout
from sagefl.learning.population import Population
from sagefl.learning.tasks import Task, carry_out
from sagefl.learning.workbench import Workbench
from sagefl.methods import Method, method
from sagefl.selection import Outcome, Read

Peers = Sequence[Sequence[int]]


def ring(nodes: int) -> Peers:
    """Everybody's two neighbours; a single node has none."""
    return [sorted({(k - 1) % nodes, (k + 1) % nodes} - {k}) for k in range(nodes)]


def slowest(nodes: int) -> float:
    """The second largest eigenvalue of the ring with weights of a third: what is left of a distance after a round."""
    return (1 + 2 * float(np.cos(2 * np.pi / nodes))) / 3


class _Vector(nn.Module):
    shared = ("*",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size))


@dataclass
class Vectors:
    """A vector per node, all zero at first, and who carries out a method's exchange on them."""

    spec: Method
    peers: Peers
    size: int
    round: int = 0
    layer: ExchangeLayer = field(init=False)
    population: Population = field(init=False)
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layer, self.layout = self.spec.exchange, Layout.of(_Vector(self.size))
        extras = self.layer.extras(self.layout.width, self.layout.shared_stop)
        self.population = Population.allocate(self.layout, len(self.peers), extras=extras)
        self.population.reset(torch.zeros(self.layout.width))
        self.layer.begin(self, len(self.peers))

    def map(self, tasks: Sequence[Task[Any]]) -> list[Any]:
        """As an engine does; tasks of exchanges look at rows only."""
        return carry_out(tasks, cast(Workbench, self))

    @property
    def x(self) -> Tensor:
        """The vectors, a row each; to be changed in place."""
        return self.population.params[:, : self.size]

    def exchange(self) -> None:
        """Publish, decide, mix."""
        self.population.snapshots[self.population.slot(self.round)].copy_(self.population.params)
        self.layer.publish(self, len(self.peers), self.round)
        outcomes = {k: self._decide(k) for k in range(len(self.peers))}
        self.layer.mix(self, self.round, self.layer.resolve(outcomes, {}, 0.5))
        self.round += 1

    def apart(self) -> float:
        """The summed squared distance of all from their average."""
        return float((self.x - self.x.mean(0)).square().sum())

    def _decide(self, node: int) -> Outcome:
        decision = self.spec.selector.begin(self.peers[node], 0, (1, self.round, node), round=self.round, me=node)
        while (asked := decision.request) is not None:
            assert isinstance(asked, Read)
            assert asked.what == "degree"
            decision.answer([float(len(self.peers[p])) for p in asked.peers])
        return decision.outcome


def gossip(spec: str, nodes: int, rounds: int, size: int = 2000) -> np.ndarray:
    """Normal vectors on a ring, as in the tuning of CHOCO's step: how far apart before, and after every round."""
    made = vectors(spec, nodes, size)
    made.x.copy_(torch.randn(made.x.shape, generator=torch.Generator().manual_seed(1)))
    found = [made.apart()]
    for _ in range(rounds):
        made.exchange()
        found.append(made.apart())
    return np.array(found)


def vectors(spec: str, nodes: int, size: int) -> Vectors:
    """Of a method `id:name=value` on a ring."""
    id, *options = spec.split(":")
    given = {name: float(value) for name, value in (option.split("=") for option in options)}
    return Vectors(method(id, **given), ring(nodes), size)


def noisy_quadratic(spec: str, nodes: int, step: float = 0.05, size: int = 2000, rounds: int = 400) -> float:
    """SGD on |x|^2 / 2 with unit noise in every gradient: the mean squared error of the average, in the second half."""
    made, rng, found = vectors(spec, nodes, size), torch.Generator().manual_seed(2), []
    for t in range(rounds):
        made.x.sub_(step * (made.x + torch.randn(made.x.shape, generator=rng)))
        made.exchange()
        if t >= rounds // 2:
            found.append(float(made.x.mean(0).square().mean()))
    return float(np.mean(found))


def logistic(spec: str, nodes: int, steps: int, rate: Callable[[int], float], seed: int = 1) -> float:
    """Logistic regression on MNIST, digits below five against the others, a sample a step: the loss of the average."""
    data = load("mnist")
    a = torch.from_numpy(data.train_x.reshape(len(data.train_x), -1).astype(np.float32) / 255)
    a = torch.cat([a, torch.ones(len(a), 1)], 1)
    y = torch.from_numpy(np.where(data.train_y < 5, -1.0, 1.0).astype(np.float32))
    rng = np.random.default_rng(seed)
    mine = np.array_split(rng.permutation(len(a)), nodes)
    made = vectors(spec, nodes, a.shape[1])
    for t in range(steps):
        drawn = torch.from_numpy(np.array([rng.choice(part) for part in mine]))
        rows, signs = a[drawn], y[drawn]
        pull = signs * torch.sigmoid(-signs * (rows * made.x).sum(1))
        made.x.add_(rate(t) * (pull[:, None] * rows - made.x / len(a)))
        made.exchange()
    return float(nn.functional.softplus(-y * (a @ made.x.mean(0))).mean())
