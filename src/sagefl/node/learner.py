"""This node's own model: training, publishing, scoring, mixing. A population matrix with one row that is trained.

Further rows hold what neighbours sent, one per neighbour, only while a decision needs it; so the very tasks that the
simulator runs (`sagefl.learning.workbench`) run here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hmac import digest
from itertools import count
from math import prod
from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..data import IID, Dataset, Federation
from ..exchange import Mix, Sizes
from ..learning.corpus import Corpus
from ..learning.devices import find_device
from ..learning.layout import Layout
from ..learning.measuring import measure
from ..learning.models import build_model
from ..learning.population import Population
from ..learning.stacked import StackedBench
from ..learning.tasks import Answer, InspectModels, ReadPart, Result, Score, Task, Train, carry_out
from ..learning.training import TrainingOptions
from ..learning.trial import try_out
from ..learning.workbench import Workbench, latent_shape
from ..methods import Method
from ..runs.columns import Errors, Evaluation, evaluation
from ..selection.private import RandomisedResponse
from ..selection.scoring import Outputs, Scoring
from ..streams import stream
from .config import NodeConfig
from .snapshots import Snapshot

ME = 0  # this node's row
SAFETY = 1000  # samples on which a merge is tested, at most
Indices = npt.NDArray[np.int64]


class Learner:
    """Data, model and rows of one node."""

    def __init__(self, config: NodeConfig, method: Method, dataset: Dataset | None = None) -> None:
        self.config, self.exchange = config, method.exchange
        self.dataset = config.data.load() if dataset is None else config.data.meant(dataset)
        dealt = IID() if config.clients == 1 else config.data.partitioner(self.dataset)  # one client: all data are its
        self.federation = Federation.build(
            self.dataset,
            dealt,
            config.clients,
            config.seed,
            config.data.anchor,
            config.data.eval,
            config.acceptance.share,
        )
        self.roles = self.federation.roles[config.part]
        self._coin = token_bytes(32)  # neither written nor sent; so a round begun anew has another order
        self.model: nn.Module = build_model(
            config.model.name, self.dataset.input_shape, self.dataset.classes, config.seed, config.model.options
        )
        data, precision = self.dataset, config.training.precision
        self.trial = try_out(self.model, data.train_x, data.train_y, data.classes, precision)
        exchanged = config.model.buffers == "exchanged"
        self.layout = Layout.of(self.model, config.model.shared, self.trial.state, exchange_state=exchanged)
        self.rows: dict[int, int] = {}  # neighbour -> its row of the snapshots
        self.population = Population.allocate(self.layout, 1)
        self.population.reset(self.layout.flatten(self.model))
        self.bench = Workbench(
            self.model, self.layout, self.population, self._corpus(), self._options(), method.training, self._seed()
        )
        self.latent_shape = latent_shape(self.model, self.dataset.train_x[:1])
        self.device = find_device(config.device)
        self.stacked = None if self.device.type == "cpu" else StackedBench(self.bench, self.device)

    @property
    def outputs(self) -> Outputs:
        """What the model says about one input."""
        return Outputs(
            self.dataset.classes, prod(self.latent_shape or (0,)), self.dataset.clipped_at, self.dataset.loss
        )

    def seat(self, numbers: Iterable[int]) -> None:
        """Make room for what these neighbours will send; only snapshots have rows for them, checkpoints have not."""
        for number in sorted(set(numbers) - self.rows.keys()):
            taken = set(self.rows.values())
            self.rows[number] = next(row for row in count(1) if row not in taken)
        held, places = self.population.snapshots, 1 + max(self.rows.values(), default=0)
        if places > held.shape[1]:
            wider = held.new_zeros(len(held), places, held.shape[2])
            wider[:, : held.shape[1]] = held
            self.population.snapshots = self.population.voices = wider

    def unseat(self, number: int) -> None:
        """Nothing comes from this neighbour any more: its row is free for another."""
        self.rows.pop(number, None)

    # A round ------------------------------------------------------------------------------------------------------

    def anchors(self, round: int) -> Indices:
        """This round's anchors in their order: drawn by its own coin, unless it is to repeat the simulator's."""
        c = self.config
        if c.secret_order and c.data.anchor_order == "shuffle":
            drawn = [digest(self._coin, f"{round} {anchor}".encode(), "sha256") for anchor in self.roles.anchor]
            return self.roles.anchor[sorted(range(len(drawn)), key=drawn.__getitem__)]
        return self.federation.anchors(c.part, round, c.seed, c.data.anchor_order)

    def train(self, round: int) -> tuple[float, int]:
        """One round of local training; returns (mean loss, samples seen)."""
        return self._do(Train(ME, round))

    def snapshot(self, round: int, loss: float, samples: int) -> Snapshot:
        """The present row as something to publish."""
        return Snapshot.of(self.model, self.layout, self.population.params[ME], round, loss, samples, self.device)

    def mix(self, round: int, mix: Mix) -> None:
        """omega <- the method's mix of omega with the blocks put in place by `hold`."""
        pulls = tuple((self.rows[number], age, weight) for number, age, weight in mix.pulls)
        self.exchange.block(ME, round, Mix(mix.own, pulls)).run(self.bench)

    def kept(self) -> Tensor:
        """A copy of this node's row, to be put back if a merge turns out badly."""
        return self.population.params[ME].clone()

    def put_back(self, row: Tensor) -> None:
        """Undo a merge."""
        self.population.params[ME].copy_(row)

    def finite(self) -> bool:
        """Whether every parameter is a number."""
        return all(bool(view.isfinite().all()) for view in self.layout.views(self.population.params[ME]).values())

    def safety_errors(self) -> tuple[int, int]:
        """(errors, samples) of the present row on the samples that nobody else ever sees."""
        samples = self.roles.safety[:SAFETY]
        if not len(samples):
            return 0, 0
        self.layout.bind(self.model, self.population.params[ME])
        out = self.bench.infer(self.bench.corpus.train_x, samples)
        right = self.bench.corpus.targets.right(out, self.bench.corpus.train_y[torch.from_numpy(samples)])
        return len(samples) - right, len(samples)

    # What neighbours sent -----------------------------------------------------------------------------------------

    def hold(self, number: int, row: Tensor, *, full: bool) -> None:
        """Put a neighbour's block (under this node's own head) or its full model into the neighbour's row."""
        place = self.population.snapshots[0, self.rows[number]]
        if full:
            place.copy_(row)
        else:
            place.copy_(self.population.snapshots[0, ME])
            place[self.layout.shared] = row[self.layout.shared]

    def answers(self, number: int, round: int, indices: Indices, form: Scoring) -> npt.NDArray[Any]:
        """Answers about anchors from the block held for a neighbour."""
        return self._do(Answer(self.rows[number], round, 0, indices, form))

    def score(self, round: int, answers: npt.NDArray[Any], indices: Indices, form: Scoring) -> npt.NDArray[Any]:
        """Losses of one neighbour's answers, through this node's own head where the form asks for it."""
        if not form.at_home:
            return form.losses(answers, self.dataset.train_y[indices])
        shaped = answers.reshape(len(answers), *(self.latent_shape or ()))
        losses: npt.NDArray[Any] = Score(ME, round, shaped[None], indices, form).run(self.bench)[0]
        return losses

    def inspect(
        self,
        round: int,
        models: Sequence[int | None],
        groups: Sequence[Sequence[int]] | None,
        split: str,
        metric: str,
        weights: Sequence[float] | None = None,
        *,
        whole: bool = False,
    ) -> npt.NDArray[np.float64]:
        """Full models held here, evaluated on this node's own samples; None is its own."""
        indices = self.roles.train if split == "train" else self.roles.anchor
        rows = [None if number is None else (self.rows[number], 0) for number in models]
        return self._do(InspectModels(ME, round, rows, groups, indices, metric, weights, whole))

    def own_risk(self, round: int) -> float | None:
        """How often this node's own model errs on its pool; None if it has none."""
        return float(self.inspect(round, [None], None, "anchor", "error")[0]) if len(self.roles.anchor) else None

    def read(self, round: int, what: str) -> npt.NDArray[np.float32]:
        """This node's own head or last layer, as published."""
        return ReadPart(ME, round, what).run(self.bench)

    # Measuring ----------------------------------------------------------------------------------------------------

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """Carry out tasks on this node's rows, one after another or on its device."""
        return carry_out(tasks, self.bench) if self.stacked is None else self.stacked.run(tasks)

    def _do(self, task: Task[Result]) -> Result:
        return self.map([task])[0]

    def evaluate(self, *, last: bool) -> Evaluation | Errors:
        """This node's predictor on the shared test set and on its own held-out samples."""
        targets = self.bench.corpus.targets
        tests = self.federation.own_tests()
        own = self.roles.eval if tests is None else tests[self.config.part]
        tests_on = {ME: self._test_subset(last)}
        return evaluation(measure(self, targets, tests_on, {ME: own}, tested=tests is not None))

    def sizes(self, mechanism: RandomisedResponse | None) -> Sizes:
        """Bytes of what moves."""
        return Sizes.of(self.layout, self.outputs, self.dataset.train_x[:1].nbytes, mechanism)

    # Pieces -------------------------------------------------------------------------------------------------------

    def _test_subset(self, last: bool) -> Indices:
        return self.config.evaluation.test_subset(len(self.dataset.test_y), self.config.seed, last=last)

    def _corpus(self) -> Corpus:
        d = self.dataset
        arrays = (d.train_x, d.train_y, d.test_x, d.test_y)
        return Corpus.of(arrays, d.classes, [self.roles.train], clip=d.clipped_at, own=d.loss)

    def _options(self) -> TrainingOptions:
        c = self.config
        return TrainingOptions(**c.training.model_dump(), rounds=c.rounds, join_last=self.trial.lone)

    def _seed(self) -> int:
        """Every node its own streams of batches and dropout: here all of them are row 0."""
        return int(stream(self.config.seed, "node", self.config.number).integers(2**62))
