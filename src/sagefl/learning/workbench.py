"""What a worker has at hand: a module that is bound to whichever row is at work, the data, and the arithmetic on both.

What is done with it are the tasks (`sagefl.learning.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..streams import stream
from .corpus import Corpus, model_input, placed
from .devices import CPU
from .layout import Layout
from .models import ModelError, plain
from .population import Population
from .training import LocalTraining, TrainingOptions

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
CHUNK = 512  # inference batch; part of what makes results repeatable, so not a setting
PULSE = 256  # images on which representations are compared


class Workbench:
    """One worker's tools: a module that is bound to whichever row is at work, and the data."""

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        population: Population,
        corpus: Corpus,
        options: TrainingOptions,
        hooks: LocalTraining,
        seed: int,
        device: torch.device = CPU,
    ) -> None:
        self.model = model if device.type == "cpu" else plain(model, device)
        self.layout, self.population, self.corpus, self.device = layout, population, corpus, device
        self.options, self.hooks, self.seed = options, hooks, seed
        self.gradient = torch.zeros(layout.width, device=device)
        kept = {slot.name for slot in layout.slots if slot.buffer}
        self._constants = {name: b.cpu().clone() for name, b in model.named_buffers() if name not in kept}

    def here(self, rows: Tensor) -> Tensor:
        """Rows, which lie in host memory, on the device; on the CPU they are the rows themselves."""
        return rows.to(self.device)

    def bind(self, row: Tensor, gradient: Tensor | None = None) -> None:
        """Make the model live in a row."""
        self.layout.bind(self.model, self.here(row), gradient)

    def speak_as(self, client: int, round: int, age: int = 0) -> None:
        """Let the model speak as `client` did when it last published (`age` rounds ago)."""
        self.bind(self.population.voices[self.population.slot(round, age), client])

    @contextmanager
    def own_draws(self, round: int, client: int) -> Iterator[None]:
        """Dropout and the like draw from torch's generator: give every client-round its own, and put it back."""
        generator = torch.default_generator  # torch.manual_seed would also note a traceback for CUDA, every time
        before = generator.get_state()
        number = int(stream(self.seed, "torch", round, client).integers(2**63))
        generator.manual_seed(number)
        if self.device.type != "cpu":
            torch.manual_seed(number)  # the device's generator, too
        try:
            yield
        finally:
            generator.set_state(before)

    def batches(self, client: int, round: int, epoch: int) -> Indices:
        """The training samples of an epoch in the order of its batches."""
        shard = self.corpus.shards[client]
        order = stream(self.seed, "batches", round, client, epoch).permutation(len(shard))
        if self.options.max_batches is not None:
            order = order[: self.options.max_batches * self.options.batch_size]
        return shard[order]

    def samples(self, indices: Indices) -> tuple[Any, Tensor]:
        """Training inputs and targets."""
        picked = torch.from_numpy(indices)
        x = placed(self.corpus.form.inputs(self.corpus.train_x.index_select(0, picked)), self.device)
        return x, self.here(self.corpus.train_y.index_select(0, picked))

    def infer(self, images: Tensor, indices: Indices, part: str = "forward") -> Tensor:
        """The bound model's logits, or what another of its functions gives (`latent`), in fixed chunks, on the host."""
        self.model.eval()
        with torch.inference_mode():
            outs = []
            for start in range(0, len(indices), CHUNK):
                picked = images.index_select(0, torch.from_numpy(indices[start : start + CHUNK]))
                x = placed(self.corpus.form.inputs(picked), self.device)
                outs.append(self.model(x) if part == "forward" else self.part(part)(x))
            return torch.cat(outs).cpu()

    def part(self, name: str) -> Callable[[Tensor], Tensor]:
        """The model's `latent` or `head`."""
        part: Callable[[Tensor], Tensor] | None = getattr(self.model, name, None)
        if part is None:
            raise ModelError(
                f"representation probes need a model with latent(x) and head(z); {type(self.model).__name__} has no "
                f"{name}: add it, or ask for labels (kind = labels)"
            )
        return part

    def average(
        self, mine: Tensor, rows: Sequence[Tensor], weights: Sequence[float] | None = None, *, whole: bool = False
    ) -> Tensor:
        """The mean of some shared blocks, or their mean by weights, under one's own head; of `whole` models with it."""
        average, columns = mine.clone(), self.layout.whole if whole else self.layout.shared
        blocks = torch.stack([row[columns] for row in rows])
        if weights is None:
            average[columns] = blocks.mean(0)
        else:
            parts = torch.tensor(weights, dtype=blocks.dtype)
            average[columns] = ((parts / parts.sum())[:, None] * blocks).sum(0)
        return average

    def judge(self, out: Tensor, indices: Indices, metric: str) -> Any:
        """One full model on own samples: its risk, its mean training loss, or all its losses."""
        return self.corpus.targets.judge(out, self.corpus.train_y[torch.from_numpy(indices)], metric)

    def evaluate(self, out: Tensor, indices: Indices, *, tested: bool = False) -> tuple[float, float]:
        """What outputs on a client's own samples are worth: (number right or sum of errors, mean clipped loss)."""
        y = self.corpus.test_y if tested else self.corpus.train_y
        return self.corpus.targets.own(out, y[torch.from_numpy(indices)])

    def tally(self, out: Tensor, subset: Indices) -> npt.NDArray[Any]:
        """Sums over test samples: how often classes are right, true and predicted, or sums of errors."""
        return self.corpus.targets.tally(out, self.corpus.test_y[torch.from_numpy(subset)])

    @property
    def pulse(self) -> Indices:
        """The test images on which representations are compared."""
        return np.arange(min(PULSE, len(self.corpus.test_x)))

    def refuse_changed_constants(self, model: nn.Module) -> None:
        """Buffers that the first batch left alone are constants, stored once: refuse a model that has changed one."""
        for name, constant in self._constants.items():
            if not torch.equal(model.get_buffer(name).cpu(), constant):
                raise ModelError(
                    f"buffer {name!r} changed during training, but not in the first batch, and was taken for a "
                    "constant that all clients share: change it from the first batch on, or make it a parameter"
                )


def latent_shape(model: nn.Module, sample: npt.NDArray[np.generic]) -> tuple[int, ...] | None:
    """The shape of the model's latent of one input, None where it offers none; `sample` is a batch of one."""
    latent = getattr(model, "latent", None)
    if latent is None:
        return None
    with torch.inference_mode():
        return tuple(latent(model_input(sample)).shape[1:])


def normal_gram(latents: Tensor) -> Floats:
    """The centred Gram matrix of some representations, scaled to norm 1, flat."""
    z = latents.flatten(1)
    z = z - z.mean(0)
    gram = (z @ z.T).double()  # a norm of 65,000 numbers summed in float32 would be off by 1e-4
    normal: Floats = (gram / gram.norm().clamp(min=1e-12)).float().flatten().numpy()
    return normal


def finite(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """A model that has diverged measures badly, not NaN: rules must be able to compare it."""
    worst = float(np.finfo(np.float32).max)
    return np.nan_to_num(np.array(values, dtype=np.float64), nan=worst, posinf=worst)
