"""What engines carry out: one class per piece of work on a client's row.

A task names the client whose row it works on, says whose rows it reads besides and roughly how long it takes, and does
its work on a workbench. Every engine runs these same tasks, in one process or many; that is why their results agree
bit for bit. A step that a method brings along is a task in the method's own file. Inputs go to peers, labels do not:
only the tasks that a client runs for itself read labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..selection.scoring import Scoring
from .models import ModelError
from .sketch import count_sketch
from .training import Local, run_epoch
from .workbench import Floats, Indices, Workbench, finite, normal_gram

MODEL_PARTS = ("head", "last-layer", "sketch")  # what a client may publish of its model
Result = TypeVar("Result", covariant=True)


class Row(NamedTuple):
    """Somebody's row of a tensor of the population (`snapshots`, `extras.NAME`); snapshots are of some round."""

    tensor: str
    client: int
    round: int = 0


@dataclass(frozen=True, eq=False)
class Task(ABC, Generic[Result]):
    """One piece of work. It writes to its own client's rows only."""

    client: int

    @abstractmethod
    def run(self, bench: Workbench) -> Result:
        """Carry out the task."""

    def rows(self) -> Iterable[Row]:
        """Rows of other clients that it reads: they are brought along where rows lie on several machines."""
        return ()

    @property
    def weight(self) -> float:
        """How long it takes compared with others of its kind."""
        return 1.0

    def __str__(self) -> str:
        when = f" in round {self.round + 1}" if hasattr(self, "round") else ""
        return f"{type(self).__name__} of client {self.client}{when}"


class Tasks(Protocol):
    """Whoever carries out work on rows: an engine."""

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """Carry out every task; results come in the order of the tasks."""


def carry_out(tasks: Iterable[Task[Result]], bench: Workbench) -> list[Result]:
    """Do tasks one after another; an error notes which one it was."""
    results = []
    for task in tasks:
        try:
            results.append(task.run(bench))
        except Exception as error:
            error.add_note(f"This happened in {task}.")
            raise
    return results


# What a client does for itself --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Train(Task[tuple[float, int]]):
    """One round of local training in place; publishes the row. Gives (mean loss, samples seen)."""

    round: int
    samples: int = 1  # of the client, for balancing

    @property
    def weight(self) -> float:
        """By how much there is to train on."""
        return float(self.samples)

    def run(self, bench: Workbench) -> tuple[float, int]:
        """All epochs of the round."""
        p, o = bench.population, bench.options
        kept = [tensor[self.client] for tensor in (p.params, p.first, p.second, p.steps, *p.extras.values())]
        row, first, second, step, *others = worked_on = [bench.here(tensor) for tensor in kept]
        moments, extras = (first, second, step), dict(zip(p.extras, others, strict=True))
        if o.reset_optimizer:
            for moment in moments:
                moment.zero_()
        bench.layout.bind(bench.model, row, bench.gradient)
        local = Local(
            self.client, self.round, bench.layout, row, bench.gradient, extras, rounds=o.rounds, epochs=o.epochs
        )
        bench.model.train()
        total, seen = 0.0, 0
        with bench.own_draws(self.round, self.client):
            for epoch in range(o.epochs):
                local.epoch, order = epoch, bench.batches(self.client, self.round, epoch)
                steps = moments[2].clone()  # each phase moves other columns, which are as old as this epoch's start
                for local.phase in range(bench.hooks.phases):
                    moments[2].copy_(steps)
                    loss = run_epoch(bench.model, local, moments, *bench.samples(order), o, bench.hooks)
                    total += loss / bench.hooks.phases
                seen += len(order)
        bench.layout.keep_state(bench.model, row)
        bench.refuse_changed_constants(bench.model)
        for tensor, done in zip((*kept, p.snapshots[p.slot(self.round), self.client]), (*worked_on, row), strict=True):
            if done is not tensor:
                tensor.copy_(done)
        return total / seen, seen


@dataclass(frozen=True, eq=False)
class MixBlocks(Task[None]):
    """omega <- own * omega + sum of weight * published omega (eq:mix); pulls are (client, age, weight)."""

    round: int
    own: float
    pulls: Sequence[tuple[int, int, float]]
    whole: bool = False  # all parameters instead of omega

    def rows(self) -> Iterable[Row]:
        """The blocks that are pulled."""
        return [Row("snapshots", peer, self.round - age) for peer, age, _ in self.pulls]

    def run(self, bench: Workbench) -> None:
        """Overwrite the client's own row."""
        p, columns = bench.population, bench.layout.whole if self.whole else bench.layout.shared
        mine = p.params[self.client, columns]
        mine.mul_(self.own)
        for peer, age, weight in self.pulls:
            mine.add_(p.snapshots[p.slot(self.round, age), peer, columns], alpha=weight)


@dataclass(frozen=True, eq=False)
class Score(Task[npt.NDArray[Any]]):
    """Losses of peers' latents (peers, n, ...) through this client's own head."""

    round: int
    latents: Floats
    indices: Indices
    scoring: Scoring

    def run(self, bench: Workbench) -> npt.NDArray[Any]:
        """A row of losses per peer."""
        bench.speak_as(self.client, self.round)
        head = bench.part("head")

        def headed(latents: Floats) -> Tensor:
            return head(bench.here(torch.from_numpy(latents))).cpu()

        bench.model.eval()
        truth = bench.corpus.train_y[torch.from_numpy(self.indices)].numpy()
        with torch.inference_mode():
            return np.stack([self.scoring.losses(z, truth, headed) for z in self.latents])


@dataclass(frozen=True, eq=False)
class InspectModels(Task[npt.NDArray[np.float64]]):
    """Full models moved here and evaluated on own samples; `models` are (client, age), None is oneself.

    A group is evaluated as the average of its members' shared blocks under this client's own head, or of their `whole`
    models.
    """

    round: int
    models: Sequence[tuple[int, int] | None]
    groups: Sequence[Sequence[int]] | None
    indices: Indices
    metric: str
    weights: Sequence[float] | None = None  # of the models, in the averages of groups
    whole: bool = False

    @property
    def weight(self) -> float:
        """By how many samples go through a model."""
        return float(len(self.indices) * len(self.groups or self.models))

    def rows(self) -> Iterable[Row]:
        """The models that are moved."""
        return [Row("snapshots", model[0], self.round - model[1]) for model in self.models if model is not None]

    def run(self, bench: Workbench) -> npt.NDArray[np.float64]:
        """One number (or one row of losses) per model or group."""
        if self.metric == "distance":
            p, shared = bench.population, bench.layout.shared
            mine = p.voices[p.slot(self.round), self.client]
            rows = self.candidates(bench, averaged=False)
            return finite([float((row[shared] - mine[shared]).norm()) for row in rows])
        return finite([self._judge(bench, row) for row in self.candidates(bench)])

    def _judge(self, bench: Workbench, row: Tensor) -> float | npt.NDArray[np.float64]:
        bench.bind(row)
        judged: float | npt.NDArray[np.float64]
        judged = bench.judge(bench.infer(bench.corpus.train_x, self.indices), self.indices, self.metric)
        return judged

    def candidates(self, bench: Workbench, *, averaged: bool = True) -> list[Tensor]:
        """The rows to be judged: those of `models`, or one per group."""
        p = bench.population
        mine = p.voices[p.slot(self.round), self.client]
        rows = [mine if m is None else p.snapshots[p.slot(self.round, m[1]), m[0]] for m in self.models]
        if self.groups is None or not averaged:
            return rows
        shares = [None if self.weights is None else [self.weights[i] for i in group] for group in self.groups]
        pairs = zip(self.groups, shares, strict=True)
        return [bench.average(mine, [rows[i] for i in g], w, whole=self.whole) for g, w in pairs]


class Ensemble(NamedTuple):
    """Published models that a client predicts with, as (client, age, weight); the rest is its own model's."""

    round: int
    members: Sequence[tuple[int, int, float]]

    def rows(self) -> Iterable[Row]:
        """The members' models."""
        return [Row("snapshots", peer, self.round - age) for peer, age, _ in self.members]

    def infer(self, bench: Workbench, client: int, images: Tensor, indices: Indices) -> Tensor:
        """What the mixture predicts: logarithms of its probabilities, or values."""
        p = bench.population
        parts = [(p.params[client], 1.0 - sum(weight for _, _, weight in self.members))]
        parts += [(p.snapshots[p.slot(self.round, age), peer], weight) for peer, age, weight in self.members]
        outs = []
        for row, weight in parts:
            bench.bind(row)
            outs.append((bench.infer(images, indices), weight))
        return bench.corpus.targets.together(outs)


@dataclass(frozen=True, eq=False)
class Evaluate(Task[tuple[float, float]]):
    """How good the present row, or a mixture with others, is on own samples: (number right, mean clipped loss)."""

    indices: Indices
    ensemble: Ensemble | None = None
    tested: bool = False  # the samples are of the test split

    def rows(self) -> Iterable[Row]:
        """Those of the mixture."""
        return self.ensemble.rows() if self.ensemble else ()

    def run(self, bench: Workbench) -> tuple[float, float]:
        """Inference with targets; of values the first number is the sum of absolute errors."""
        x = bench.corpus.test_x if self.tested else bench.corpus.train_x
        return bench.evaluate(_predict(bench, self, x, self.indices), self.indices, tested=self.tested)


@dataclass(frozen=True, eq=False)
class Tally(Task[npt.NDArray[Any]]):
    """The present row on the shared test set: counts of classes, or sums of errors."""

    subset: Indices
    ensemble: Ensemble | None = None

    def rows(self) -> Iterable[Row]:
        """Those of the mixture."""
        return self.ensemble.rows() if self.ensemble else ()

    def run(self, bench: Workbench) -> npt.NDArray[Any]:
        """Inference with targets."""
        return bench.tally(_predict(bench, self, bench.corpus.test_x, self.subset), self.subset)


def _predict(bench: Workbench, task: Evaluate | Tally, images: Tensor, indices: Indices) -> Tensor:
    """Outputs of the present row, or of the mixture."""
    if task.ensemble is not None:
        return task.ensemble.infer(bench, task.client, images, indices)
    bench.bind(bench.population.params[task.client])
    return bench.infer(images, indices)


@dataclass(frozen=True, eq=False)
class Gram(Task[Floats]):
    """The centred, normalised Gram matrix of this client's representation of some test images (for linear CKA)."""

    def run(self, bench: Workbench) -> Floats:
        """The matrix, flattened."""
        bench.bind(bench.population.params[self.client])
        return normal_gram(bench.infer(bench.corpus.test_x, bench.pulse, "latent"))


# What a client does for others --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answer(Task[npt.NDArray[np.generic]]):
    """A peer's answers to anchor inputs from the row it published `age` rounds ago."""

    round: int
    age: int
    indices: Indices
    scoring: Scoring

    @property
    def weight(self) -> float:
        """By the number of inputs."""
        return float(len(self.indices))

    def run(self, bench: Workbench) -> npt.NDArray[np.generic]:
        """The answers, in the form that was asked for."""
        bench.speak_as(self.client, self.round, self.age)
        out = bench.infer(bench.corpus.train_x, self.indices, self.scoring.part)
        with torch.inference_mode():
            return self.scoring.answer(out)


@dataclass(frozen=True, eq=False)
class ReadPart(Task[Floats]):
    """Something small a client publishes about its model: its head, the head's last layer, a sketch of the rest."""

    round: int
    what: str
    age: int = 0

    def run(self, bench: Workbench) -> Floats:
        """The parameters, flat."""
        if self.what not in MODEL_PARTS:
            raise ValueError(f"a client publishes no {self.what!r} of its model; it does: {', '.join(MODEL_PARTS)}")
        slot = bench.population.slot(self.round, self.age)
        if self.what == "sketch":
            return count_sketch(bench.population.snapshots[slot, self.client, bench.layout.shared])
        row = bench.population.voices[slot, self.client]
        part = bench.layout.local_part(row, last_layer=self.what == "last-layer")
        if part is None:
            raise ModelError(
                f"this model has no {self.what} to publish: all of its parameters are shared; declare fewer"
            )
        values: Floats = part.numpy()
        return values
