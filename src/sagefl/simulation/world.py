"""The world of a run: data, partition, graph, network and initial weights. All methods of a comparison share it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from ..clock import Network
from ..data import Dataset, Federation, Grouping
from ..exchange import Sizes
from ..learning.corpus import Corpus
from ..learning.layout import Layout
from ..learning.models import ModelError, build_model
from ..learning.targets import Targets, targets_of
from ..learning.trial import try_out
from ..learning.workbench import latent_shape
from ..records import narrow
from ..runs.config import RunConfig
from ..runs.sections import ConfigError, WorldConfig
from ..runs.truth import Truth
from ..selection.private import RandomisedResponse
from ..selection.scoring import LABEL_ERRORS, Outputs, Scoring
from ..topology import Always, Availability, Bernoulli, Churn, Graph, Links, Misbehaviour, Trace, View, neighbourhoods


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
    grouping: Grouping | None = None  # the truth about the clients' data; None: they are one group
    machines: Network | None = None  # how fast everybody is; None: there is no clock
    lone: bool = False  # whether a batch of one sample is too small for the model

    @classmethod
    def build(cls, config: RunConfig, dataset: Dataset | None = None) -> World:
        """The world that a config describes; pass `dataset` if it is already loaded."""
        dataset = config.data.load() if dataset is None else config.data.meant(dataset)
        seed, clients = config.seed, config.clients
        graph = config.topology.graph(clients, seed, config.names(dataset))
        federation, grouping = config.dealt(dataset, graph)
        model = build_model(config.model.name, dataset.input_shape, dataset.classes, seed, config.model.options)
        trial = try_out(model, dataset.train_x, dataset.train_y, dataset.classes, config.training.precision)
        if trial.lone:
            _check_batches(config, federation)
        exchanged = config.model.buffers == "exchanged"
        layout = Layout.of(model, config.model.shared, trial.state, exchange_state=exchanged)
        made = cls(
            config=config,
            federation=federation,
            graph=graph,
            availability=_availability(config),
            links=Links(config.network.drop, config.network.delay, config.network.max_delay),
            misbehaviour=Misbehaviour(
                config.network.misbehaviour, config.network.misbehaving, stale=config.network.stale
            ),
            model=model,
            layout=layout,
            initial=layout.flatten(model),
            grouping=grouping,
            machines=config.clock.made(clients, seed),
            lone=trial.lone,
        )
        _ = made.own_tests  # refuses an owner without any
        return made

    @property
    def dataset(self) -> Dataset:
        """The data set that clients share."""
        return self.federation.dataset

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the clients are called; None if they have numbers only."""
        return self.federation.names if self.config.data.partition == "owners" else None

    @property
    def clients(self) -> int:
        """K, the number of clients."""
        return self.config.clients

    @cached_property
    def digest(self) -> str:
        """A hash of everything here that the config only names: data and who holds it, graph, trace, first weights."""
        state = hashlib.sha256(f"{self.federation.digest} {self.layout.digest}".encode())
        arrays = [self.graph.indptr, self.graph.indices, self.initial.numpy()]
        presence = self.availability.others if isinstance(self.availability, Churn) else self.availability
        if isinstance(presence, Trace):
            arrays.append(presence.rows)
        if self.machines is not None:
            arrays += [getattr(self.machines, f.name) for f in fields(self.machines)]
        for array in arrays:
            state.update(np.ascontiguousarray(array).tobytes())
        return state.hexdigest()

    def view(self, round: int) -> View:
        """Every client's active neighbours in a round, and how stale their snapshots are."""
        active = self.availability.active(round, self.clients, self.config.seed)
        behind = self.culprits * self.misbehaviour.history
        return neighbourhoods(self.graph, active, self.links, round, self.config.seed, behind)

    @property
    def history(self) -> int:
        """How many older snapshots must be kept: for delayed links, for stale peers, for clients at their own pace."""
        own_pace = self.config.clock.schedule == "async"
        return self.links.history + self.misbehaviour.history + own_pace

    def anchors(self, client: int, round: int) -> npt.NDArray[np.int64]:
        """The client's anchors in this round's order."""
        return self.federation.anchors(client, round, self.config.seed, self.config.data.anchor_order)

    def workload(self, client: int) -> int:
        """Samples that a client trains on in a round."""
        t, own = self.config.training, len(self.federation.roles[client].train)
        return t.epochs * (own if t.max_batches is None else min(own, t.max_batches * t.batch_size))

    @cached_property
    def culprits(self) -> npt.NDArray[np.bool_]:
        """Who misbehaves."""
        return self.misbehaviour.culprits(self.clients, self.config.seed)

    @cached_property
    def evaluation_sets(self) -> Sequence[npt.NDArray[np.int64]]:
        """Each client's held-out evaluation samples."""
        return [roles.eval for roles in self.federation.roles]

    @cached_property
    def own_tests(self) -> Sequence[npt.NDArray[np.int64]] | None:
        """Each client's own test samples, as its group sees them; None where test samples are everybody's."""
        parts = self.federation.own_tests() if self.config.data.partition == "owners" else None
        if parts is None or self.grouping is None:
            return parts
        tested = self.dataset.test_owners
        assert tested is not None
        seen = (self.grouping.tests[group] for group in self.truth.groups)
        return [whole[np.isin(whole % len(tested), part)] for whole, part in zip(seen, parts, strict=True)]

    @cached_property
    def truth(self) -> Truth:
        """What only references, records and readers may know."""
        known = self.grouping
        return Truth(
            tuple((0,) * self.clients if known is None else known.groups.tolist()),
            frozenset(np.flatnonzero(self.culprits).tolist()),
            frozenset(() if known is None else np.flatnonzero(known.noisy).tolist()),
        )

    @property
    def special(self) -> bool:
        """Whether whom clients pull is recorded: there are groups, noisy labels or somebody who misbehaves."""
        return bool(self.truth.misbehaving) or self.config.world != WorldConfig()

    def test_sets(self, last: bool) -> list[npt.NDArray[np.int64]]:
        """The test images on which an evaluation tests each client: those of its group."""
        tests = [np.arange(len(self.dataset.test_y))] if self.grouping is None else self.grouping.tests
        choose, seed = self.config.evaluation.test_subset, self.config.seed
        of_group = [whole[choose(len(whole), seed, last=last)] for whole in tests]
        return [of_group[group] for group in self.truth.groups]

    def corpus(self, *, shared_memory: bool = False) -> Corpus:
        """The data as tensors; with `shared_memory` workers see the same pages."""
        d, shards = self.dataset, [roles.train for roles in self.federation.roles]
        arrays = (d.train_x, d.train_y, d.test_x, d.test_y)
        return Corpus.of(arrays, d.classes, shards, clip=d.clipped_at, own=d.loss, shared_memory=shared_memory)

    @property
    def targets(self) -> Targets:
        """How outputs are compared with targets."""
        return targets_of(self.dataset.classes, self.dataset.clipped_at, self.dataset.loss)

    def form(self, asked: Scoring) -> Scoring:
        """What a rule asks for as models answer it in this world, before anything perturbs the answers."""
        return self.sizes.outputs.form(asked)

    @property
    def prediction(self) -> Scoring:
        """How the peers' own predictions are judged whatever certificates are about: wrong labels, clipped errors."""
        return replace(self.sizes.outputs, own=None).form(LABEL_ERRORS)

    def try_loss(self, questions: Sequence[Scoring]) -> None:
        """Refuse a user's loss that cannot score what a rule asks for."""
        self.sizes.outputs.try_loss(questions, self.dataset.train_y)

    @cached_property
    def sizes(self) -> Sizes:
        """Bytes of what moves in this world."""
        sample = narrow(self.dataset.train_x[:1])
        latent = prod(latent_shape(self.model, sample) or (0,))
        outputs = Outputs(self.dataset.classes, latent, self.dataset.clipped_at, self.dataset.loss)
        return Sizes.of(self.layout, outputs, sample.nbytes, self.mechanism)

    @property
    def has_latents(self) -> bool:
        """Whether peers can be asked for latents: the model offers them, and answers need not be private."""
        return self.mechanism is None and hasattr(self.model, "latent")

    @cached_property
    def mechanism(self) -> RandomisedResponse | None:
        """How peers perturb their labels, if they do."""
        if self.config.privacy.epsilon is not None and self.dataset.task == "regression":
            raise ConfigError("privacy.epsilon perturbs labels, and these models predict values: leave it out")
        if self.config.privacy.epsilon is not None and self.dataset.loss is not None:
            raise ConfigError("privacy.epsilon perturbs labels that are right or wrong: leave out data.loss")
        return self.config.privacy.response(self.dataset.classes)


def _check_batches(config: RunConfig, federation: Federation) -> None:
    """Refuse batches of a single sample: the model cannot be trained on one."""
    names = federation.names if config.data.partition == "owners" else None
    if config.training.batch_size == 1:
        raise ModelError("a layer of the model (BatchNorm?) cannot be trained on one sample: raise training.batch_size")
    for client, roles in enumerate(federation.roles):
        if len(roles.train) == 1:
            called = client if names is None else names[client]
            raise ModelError(
                f"client {called} has a single training sample, and a layer of the model (BatchNorm?) needs more than "
                "one at a time: raise data.min_samples, or use GroupNorm or LayerNorm"
            )


def _availability(config: RunConfig) -> Availability:
    network = config.network
    found: Availability = Always() if network.available == 1.0 else Bernoulli(network.available)
    if network.trace is not None:
        found = Trace(network.trace)
        found.active(0, config.clients, 0)  # refuses a trace for another number of clients before the run begins
    return Churn(network.churn, config.rounds, found) if network.churn else found
