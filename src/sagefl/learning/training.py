"""Local training of one client, in place on its row.

One epoch of mini-batches (optionally capped), Adam or SGD on the flat row. What a published method changes about
training (a frozen block, an extra loss term, a gradient mask) it does through `LocalTraining`'s named hooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from .corpus import split
from .layout import Layout
from .models import training_loss

Optimizer = Literal["adam", "sgd"]
Precision = Literal["float32", "bfloat16"]
Half = Literal["body", "head"]


@dataclass(frozen=True)
class TrainingOptions:
    """How a client trains in a round (the paper: Adam 1e-3, one epoch, batches of 64)."""

    learning_rate: float = 1e-3
    batch_size: int = 64
    epochs: int = 1
    max_batches: int | None = None  # cap per epoch; None: the whole epoch
    reset_optimizer: bool = False  # forget the moments (SGD: the momentum) each round
    mixing: float = 0.5  # weight of a single pulled peer, for methods that mix in a way of their own
    rounds: int = 1  # of the whole run, for what is annealed over it
    optimizer: Optimizer = "adam"
    momentum: float = 0.0  # of SGD
    weight_decay: float = 0.0  # added to the gradient, as torch's Adam and SGD do
    precision: Precision = "float32"  # of the forward pass; weights and their steps are float32
    join_last: bool = False  # a last batch of one sample goes with the one before it: a layer needs more than one

    def batches(self, samples: int) -> list[slice]:
        """The batches of an epoch of so many samples."""
        size = self.batch_size
        starts = list(range(0, samples, size))
        if self.join_last and len(starts) > 1 and samples - starts[-1] == 1:
            del starts[-1]
        return [slice(a, b) for a, b in zip(starts, [*starts[1:], samples], strict=True)]

    def lower(self, device: torch.device) -> AbstractContextManager[Any]:
        """The context of forward passes in training there; may be entered again and again."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16)


@dataclass
class Local:
    """One client's local training in one round, as hooks see it."""

    client: int
    round: int
    layout: Layout
    row: Tensor
    gradient: Tensor
    extras: dict[str, Tensor]  # this client's rows of the method's own arrays
    rounds: int = 1  # of the whole run
    epochs: int = 1  # of this round
    epoch: int = 0  # the one under way
    phase: int = 0  # the pass over the epoch's batches that is under way
    batches: int = 0  # how many this epoch has
    batch: int = 0  # the one under way


class LocalTraining:
    """How a client trains. The default is plain training; methods override single steps.

    Every worker has its own copy of this object, so it must remember nothing: memory goes to `local.extras`. Draws
    from torch's generator are keyed by (seed, round, client), so they are the same whoever does the work.
    """

    phases: ClassVar[int] = 1  # passes over an epoch's batches; Adam's step counts those of one phase

    def begin(self, local: Local, model: nn.Module) -> None:
        """Before the first batch of an epoch."""

    def loss(self, local: Local, model: nn.Module, x: Any, y: Tensor) -> Tensor:
        """The loss of one batch."""
        return training_loss(model, x, y)

    def columns(self, local: Local) -> slice:
        """Which columns of the row this batch's step moves; the others, moments included, stay as they are."""
        return slice(None)

    def gradient(self, local: Local) -> None:
        """After the backward pass, before the optimiser's step: edit `local.gradient` in place."""

    def stepped(self, local: Local) -> None:
        """After the optimiser's step: edit `local.row` in place."""

    def end(self, local: Local, model: nn.Module) -> None:
        """After the last batch of an epoch."""


class Alternating(LocalTraining):
    """A pass that moves one part, then a pass that moves the other; moments and their age stay with their part.

    Each phase is a pass of its own over the epoch's batches, in the same order, so that either part takes as many steps
    as under plain training; an epoch costs two passes. Halving the batches between the phases instead leaves both parts
    half trained: measured with random gossip on the embedded data, clients' own accuracy fell from .86 to .41.
    """

    phases = 2

    def __init__(self, first: Half = "body") -> None:
        self.first = first

    def columns(self, local: Local) -> slice:
        """The part whose turn it is."""
        body = (local.phase == 0) == (self.first == "body")
        return local.layout.shared if body else slice(local.layout.shared_stop, None)


def optimizer_step(
    options: TrainingOptions,
    rows: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    steps: Sequence[Tensor],
) -> None:
    """torch's own fused Adam or SGD on flat rows, each at its own step.

    Padding stays zero because its gradient is zero. SGD keeps its momentum where Adam keeps the first moment.
    """
    rate, decay = options.learning_rate, options.weight_decay
    if options.optimizer == "sgd":
        sgd(
            list(rows), list(gradients), list(first) if options.momentum else [None] * len(rows),
            foreach=False, fused=True, weight_decay=decay, momentum=options.momentum, lr=rate,
            dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip
        for step in steps:
            step.add_(1)
        return
    # torch.optim.adam.adam(fused=True) ends in these two calls; on small models its way there costs more than they do.
    torch._foreach_add_(list(steps), 1)
    torch._fused_adam_(
        list(rows), list(gradients), list(first), list(second), [], list(steps),
        amsgrad=False, beta1=0.9, beta2=0.999, lr=rate, weight_decay=decay, eps=1e-8, maximize=False,
    )  # fmt: skip


def run_epoch(
    model: nn.Module,
    local: Local,
    moments: tuple[Tensor, Tensor, Tensor],
    x: Any,
    y: Tensor,
    options: TrainingOptions,
    hooks: LocalTraining,
) -> float:
    """Train on (x, y) in the given order; returns the loss summed over samples. `moments`: first, second, step."""
    sizes = [part.stop - part.start for part in options.batches(len(y))]
    local.batches = len(sizes)
    edits, moves, follows = (_own(hooks, name) for name in ("gradient", "columns", "stepped"))
    lower, moved = options.lower(y.device), _moved(local, slice(None), moments)
    total = 0.0
    hooks.begin(local, model)
    for local.batch, (size, xb, yb) in enumerate(zip(sizes, split(x, sizes), torch.split(y, sizes), strict=True)):
        local.gradient.zero_()
        with lower:
            loss = hooks.loss(local, model, xb, yb)
        torch.autograd.backward(loss)
        if edits:
            hooks.gradient(local)
        if moves:
            moved = _moved(local, hooks.columns(local), moments)
        optimizer_step(options, *moved)
        if follows:
            with torch.no_grad():
                hooks.stepped(local)
        total += loss.item() * size
    hooks.end(local, model)
    return total


def _own(hooks: LocalTraining, step: str) -> bool:
    """Whether a step is the method's own; the default ones do nothing and are not called batch by batch."""
    return getattr(getattr(hooks, step), "__func__", None) is not getattr(LocalTraining, step)


def _moved(local: Local, part: slice, moments: tuple[Tensor, Tensor, Tensor]) -> tuple[Sequence[Tensor], ...]:
    """What an optimiser's step moves and reads: row, gradient, both moments and the count."""
    first, second, step = moments
    c, m = local.layout.columns(part)
    return [local.row[c]], [local.gradient[c]], [first[m]], [second[m]], [step]
