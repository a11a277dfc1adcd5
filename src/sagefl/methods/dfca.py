"""DFCA: IFCA without a server. Everybody holds a model per cluster, trains the one that fits and averages by cluster.

J. Kirch, S. Becker, T. Koketsu Rodrigues, S. Harmeling. DFCA: Decentralized Federated Clustering Algorithm. 2025.
arXiv:2510.15300. After A. Ghosh, J. Chung, D. Yin, K. Ramchandran. An Efficient Framework for Clustered Federated
Learning. NeurIPS 2020. arXiv:2006.04088. Read: both abstracts; the code of the first author's thesis, which came before
the paper (jonaskir6/dfca: mnist and emnist notebooks with their printed results, those of mnist/notebooks/exp_1 over
five seeds); the code of IFCA (jichan3751/ifca: mnist/train_cluster_mnist.py). The paper's own code is not public.

Established. There are k cluster models, started apart; k = 4 in both codes' experiments with rotated MNIST. Every round
a client takes the one of the lowest loss on all of its training data, trains it, and what clients of a cluster have
trained is averaged, equally (IFCA's model averaging; a cluster that nobody trained stays as it is). In DFCA every
client keeps its own k copies, which start alike everywhere (the thesis' GI; in its LI every client draws its own), and
each model that arrives enters the copy of the sender's cluster by a sequential running average, in the order of
arrival (the paper's abstract): of the (n + 1)-th, copy <- (n copy + model) / (n + 1).

Ours. In the thesis' code partners are drawn anew every round among all clients, pairs exchange both ways one after
another, and a copy keeps .5 of itself if both are of one cluster and .4 if not; we follow the paper's running average
over the neighbours in the graph. One's own copy counts as the first of each average, and arrivals come in the order of
client numbers. Models move whole, heads included, from all neighbours; a sender says its cluster (4 bytes). Copies
start from the run's initial weights, in all but the first with the entries of every tensor in another order: apart, and
of the same distribution. Local training is the run's own (theirs: ten steps of full-batch gradient descent); the
optimiser's moments stay when a client changes cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..exchange import ExchangeLayer, Mix, Sizes, Traffic, account
from ..exchange.accounting import SCALAR
from ..learning.tasks import Row, Task, Tasks
from ..learning.workbench import Workbench
from ..selection import Outcome, option
from ..selection.scoring import Scoring
from .base import Method
from .median import AllNeighbours

COPIES = "cluster-models"


class Clustered(ExchangeLayer):
    """Copies of k cluster models at every client; `clusters` says which one each trains."""

    beyond: ClassVar[str] = "keeps and exchanges several models, one per cluster"

    def __init__(self, k: int) -> None:
        self.k = k
        self.clusters: dict[int, int] = {}

    def extras(self, width: int, shared: int) -> dict[str, int]:
        """All copies, one after another."""
        return {COPIES: self.k * width}

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Start the copies apart, and let everybody take one."""
        tasks.map([StartCopies(client, self.k) for client in range(clients)])
        self._take(tasks, clients)

    def publish(self, tasks: Tasks, clients: int, round: int) -> None:
        """What was trained becomes one's copy of that cluster."""
        tasks.map([KeepTrained(client, round, self.clusters[client]) for client in range(clients)])

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Arrivals enter the copies of their clusters; then everybody takes the copy that fits best."""
        tasks.map(
            [
                RunningAverages(k, round, self.k, [(peer, age, self.clusters[peer]) for peer, age, _ in mix.pulls])
                for k, mix in mixes.items()
            ]
        )
        self._take(tasks, len(self.clusters))

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """Whole models and the number of a cluster each."""
        plain, pulled = account(outcome, asked, sizes), len(outcome.peers)
        return replace(plain, models=pulled * sizes.full_model, control=plain.control + SCALAR * pulled)

    def state(self) -> dict[str, Any]:
        """Which cluster's model each client trains."""
        return {"clusters": self.clusters}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.clusters = dict(state["clusters"])

    def _take(self, tasks: Tasks, clients: int) -> None:
        self.clusters = dict(enumerate(tasks.map([TakeBest(client, self.k) for client in range(clients)])))


def copies(bench: Workbench, client: int, k: int) -> Tensor:
    """A client's copies, a row each."""
    return bench.population.extras[COPIES][client].view(k, -1)


@dataclass(frozen=True, eq=False)
class StartCopies(Task[None]):
    """The initial weights, and the same in another order."""

    k: int

    def run(self, bench: Workbench) -> None:
        """Start every copy from the client's own model."""
        for number, copy in enumerate(copies(bench, self.client, self.k)):
            copy.copy_(bench.population.params[self.client])
            order = torch.Generator().manual_seed(number)
            for slot in (slot for slot in bench.layout.slots if number and not slot.buffer):
                entries = copy[slot.start : slot.start + slot.size]
                entries.copy_(entries[torch.randperm(slot.size, generator=order)])


@dataclass(frozen=True, eq=False)
class TakeBest(Task[int]):
    """The copy of the lowest loss on one's training samples becomes the client's row; gives its number."""

    k: int

    def run(self, bench: Workbench) -> int:
        """The first of several."""
        samples, losses = bench.corpus.shards[self.client], []
        for copy in copies(bench, self.client, self.k):
            bench.bind(copy)
            loss = bench.judge(bench.infer(bench.corpus.train_x, samples), samples, "ce")
            losses.append(loss if loss == loss else float("inf"))  # a model that has diverged fits nobody
        best = losses.index(min(losses))
        bench.population.params[self.client].copy_(copies(bench, self.client, self.k)[best])
        return best


@dataclass(frozen=True, eq=False)
class KeepTrained(Task[None]):
    """One's copy of the cluster <- the row that was trained."""

    round: int
    cluster: int

    def run(self, bench: Workbench) -> None:
        """A whole row."""
        p, width = bench.population, bench.layout.width
        p.extras[COPIES][self.client, self.cluster * width : (self.cluster + 1) * width].copy_(p.params[self.client])


@dataclass(frozen=True, eq=False)
class RunningAverages(Task[None]):
    """Every arrival enters its cluster's copy; arrivals are (client, age, cluster)."""

    round: int
    k: int
    arrivals: Sequence[tuple[int, int, int]]

    def rows(self) -> Iterable[Row]:
        """The models that arrive."""
        return [Row("snapshots", peer, self.round - age) for peer, age, _ in self.arrivals]

    def run(self, bench: Workbench) -> None:
        """Update the copies in place."""
        p, mine = bench.population, copies(bench, self.client, self.k)
        counts = [1] * self.k
        for peer, age, cluster in self.arrivals:
            counts[cluster] += 1
            arrived = p.snapshots[p.slot(self.round, age), peer, bench.layout.trained]
            mine[cluster][bench.layout.trained].lerp_(arrived, 1.0 / counts[cluster])


class DFCA(Method):
    """A model per cluster at every client: train the one that fits, average by cluster."""

    id: ClassVar[str] = "dfca"
    rule = AllNeighbours
    evidence: ClassVar[str] = "none (neighbours' cluster numbers)"
    communication: ClassVar[str] = "d / d, whole models"
    fidelity: ClassVar[str] = (
        "adapted: neighbours of a fixed graph in synchronous rounds, after its abstract and an earlier thesis' code"
    )

    @dataclass(frozen=True)
    class Options(Method.Options):
        """How many clusters there are."""

        k: int = option(4, "number of cluster models", ge=1)

    options: Options

    def make_exchange(self) -> ExchangeLayer:
        """Copies of the cluster models."""
        return Clustered(self.options.k)
