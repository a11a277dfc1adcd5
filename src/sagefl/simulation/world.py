"""The world of a run: data, partition, graph, network and initial weights. All methods of a comparison share it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..data import Dataset, Federation, load
from ..exchange import Sizes
from ..learning.layout import Layout
from ..learning.models import build_model
from ..learning.workbench import Corpus
from ..runs.config import NetworkConfig, RunConfig
from ..selection.private import RandomisedResponse
from ..streams import stream
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
        """The world a config describes; `dataset` spares loading it again."""
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
        """The test images an evaluation uses: a fixed, evenly spread subset along the way, all at the end."""
        total, wanted = len(self.dataset.test_y), self.config.evaluation.subset
        if last or wanted == 0 or wanted >= total:
            return np.arange(total)
        return np.sort(stream(self.config.seed, "test-subset").choice(total, wanted, replace=False))

    def corpus(self, *, shared_memory: bool = False) -> Corpus:
        """The data as tensors; with `shared_memory` workers see the same pages."""

        def tensor(array: npt.NDArray[np.generic]) -> Tensor:
            made = torch.from_numpy(np.ascontiguousarray(array))
            if shared_memory:
                made.share_memory_()  # type: ignore[no-untyped-call]
            return made

        d = self.dataset
        shards = [roles.train for roles in self.federation.roles]
        return Corpus(tensor(d.train_x), tensor(d.train_y), tensor(d.test_x), tensor(d.test_y), d.classes, shards)

    @cached_property
    def sizes(self) -> Sizes:
        """Bytes of what moves in this world."""
        sample = self.dataset.train_x[:1]
        latent = getattr(self.model, "latent", None)
        with torch.inference_mode():
            x = torch.from_numpy(sample).float()
            width = int(latent(x).numel()) if latent is not None else 0
        local = [s for s in self.layout.slots if s.start >= self.layout.shared_stop and len(s.shape) > 1]
        sizes = Sizes.of(
            input_bytes=sample.nbytes,
            classes=self.dataset.classes,
            latent=width,
            shared_size=self.layout.shared_size,
            local_size=self.layout.local_size,
            last=local[-1].size if local else 0,
        )
        if self.mechanism is None:
            return sizes
        return replace(sizes, answers={**sizes.answers, "labels": self.mechanism.answer_bytes})

    @cached_property
    def mechanism(self) -> RandomisedResponse | None:
        """How peers perturb their labels, if they do."""
        return self.config.privacy.response(self.dataset.classes)


def _availability(config: NetworkConfig, clients: int) -> Availability:
    if config.trace is not None:
        trace = Trace(config.trace)
        trace.active(0, clients, 0)  # one for other clients is refused here, before a run has begun
        return trace
    return Always() if config.available == 1.0 else Bernoulli(config.available)
