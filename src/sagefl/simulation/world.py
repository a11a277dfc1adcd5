"""The world of a run: data, partition, graph, network and initial weights. All methods of a comparison share it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from ..data import Dataset, Federation, load
from ..exchange import Sizes
from ..learning.layout import Layout
from ..learning.models import build_model
from ..learning.workbench import Corpus, latent_shape
from ..runs.config import NetworkConfig, RunConfig
from ..selection.private import RandomisedResponse
from ..selection.scoring import Outputs
from ..topology import Always, Availability, Bernoulli, Graph, Links, Misbehaviour, Trace, View, neighbourhoods

__all__ = ["World"]


@dataclass(frozen=True)
class World:
    """Everything that is the same for every method."""

    config: RunConfig
    federation: Federation
    graph: Graph
    availability: Availability
    links: Links
    misbehaviour: Misbehaviour
    model: nn.Module  # a template; clients live in the population matrix
    layout: Layout
    initial: Tensor  # the row everybody starts from

    @classmethod
    def build(cls, config: RunConfig, dataset: Dataset | None = None) -> World:
        """The world that a config describes; pass `dataset` if it is already loaded."""
        dataset = dataset or load(config.data.dataset)
        seed, clients = config.seed, config.clients
        federation = config.data.federation(dataset, clients, seed)
        model = build_model(config.model.name, dataset.input_shape, dataset.classes, seed, config.model.options)
        layout = Layout.of(model, config.model.shared)
        return cls(
            config=config,
            federation=federation,
            graph=config.topology.graph(clients, seed),
            availability=_availability(config.network, clients),
            links=Links(config.network.drop, config.network.delay, config.network.max_delay),
            misbehaviour=Misbehaviour(config.network.misbehaviour, config.network.misbehaving),
            model=model,
            layout=layout,
            initial=layout.flatten(model),
        )

    @property
    def dataset(self) -> Dataset:
        """The data."""
        return self.federation.dataset

    @property
    def clients(self) -> int:
        """K."""
        return self.config.clients

    @cached_property
    def digest(self) -> str:
        """A hash of everything here that the config only names: data and who holds it, graph, trace, first weights."""
        state = hashlib.sha256(f"{self.federation.digest} {self.layout.digest}".encode())
        arrays = [self.graph.indptr, self.graph.indices, self.initial.numpy()]
        if isinstance(self.availability, Trace):
            arrays.append(self.availability.rows)
        for array in arrays:
            state.update(np.ascontiguousarray(array).tobytes())
        return state.hexdigest()

    def view(self, round: int) -> View:
        """Every client's active neighbours in a round, and how stale their snapshots are."""
        active = self.availability.active(round, self.clients, self.config.seed)
        return neighbourhoods(self.graph, active, self.links, round, self.config.seed)

    def anchors(self, client: int, round: int) -> npt.NDArray[np.int64]:
        """The client's anchors in this round's order."""
        return self.federation.anchors(client, round, self.config.seed, self.config.data.anchor_order)

    @cached_property
    def culprits(self) -> npt.NDArray[np.bool_]:
        """Who misbehaves."""
        return self.misbehaviour.culprits(self.clients, self.config.seed)

    @cached_property
    def evaluation_sets(self) -> Sequence[npt.NDArray[np.int64]]:
        """Each client's held-out evaluation samples."""
        return [roles.eval for roles in self.federation.roles]

    def test_subset(self, last: bool) -> npt.NDArray[np.int64]:
        """The test images an evaluation uses."""
        return self.config.evaluation.test_subset(len(self.dataset.test_y), self.config.seed, last=last)

    def corpus(self, *, shared_memory: bool = False) -> Corpus:
        """The data as tensors; with `shared_memory` workers see the same pages."""
        d, shards = self.dataset, [roles.train for roles in self.federation.roles]
        return Corpus.of((d.train_x, d.train_y, d.test_x, d.test_y), d.classes, shards, shared_memory=shared_memory)

    @cached_property
    def sizes(self) -> Sizes:
        """Bytes of what moves in this world."""
        sample = self.dataset.train_x[:1]
        outputs = Outputs(self.dataset.classes, prod(latent_shape(self.model, sample) or (0,)))
        return Sizes.of(self.layout, outputs, sample.nbytes, self.mechanism)

    @cached_property
    def mechanism(self) -> RandomisedResponse | None:
        """How peers perturb their labels, if they do."""
        return self.config.privacy.response(self.dataset.classes)


def _availability(config: NetworkConfig, clients: int) -> Availability:
    if config.trace is not None:
        trace = Trace(config.trace)
        trace.active(0, clients, 0)  # refuses a trace for another number of clients before the run begins
        return trace
    return Always() if config.available == 1.0 else Bernoulli(config.available)
