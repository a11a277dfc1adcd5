"""How a module's parameters lie in one row of the population matrix.

Shared parameters first, the local rest after them; every parameter starts on a 64-byte boundary and so does every
row, because vectorised kernels may round differently at other alignments, and repeatability is bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .models import ModelError

ALIGN = 16  # floats: 64 bytes


@dataclass(frozen=True)
class Slot:
    """Where one parameter stands in a row."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Number of scalars."""
        size = 1
        for side in self.shape:
            size *= side
        return size


@dataclass(frozen=True)
class Layout:
    """The columns of the population matrix."""

    slots: tuple[Slot, ...]
    shared_stop: int  # columns [0, shared_stop) are the shared block omega
    width: int

    @classmethod
    def of(cls, model: nn.Module, shared: Sequence[str] | None = None) -> Layout:
        """The layout of `model`; `shared` are name prefixes and default to `model.shared`."""
        declared = getattr(model, "shared", ()) if shared is None else shared
        prefixes = (declared,) if isinstance(declared, str) else tuple(declared)
        names = [name for name, _ in model.named_parameters()]
        if not names:
            raise ModelError("the model has no parameters")
        if not prefixes:
            raise ModelError(
                f"no parameter is shared: declare the shared part, e.g. shared = ('encoder',); parameters: {names}"
            )
        for prefix in prefixes:
            if not any(_under(name, prefix) for name in names):
                raise ModelError(f"the shared part {prefix!r} names no parameter; parameters: {names}")
        ours = [name for name in names if any(_under(name, prefix) for prefix in prefixes)]
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        slots, end = _place(ours, shapes, 0)
        rest, width = _place([n for n in names if n not in set(ours)], shapes, end)
        return cls((*slots, *rest), end, width)

    @property
    def shared(self) -> slice:
        """The columns of omega."""
        return slice(0, self.shared_stop)

    @property
    def shared_size(self) -> int:
        """Scalars in omega, padding aside: what a transfer really carries."""
        return sum(slot.size for slot in self.slots if slot.start < self.shared_stop)

    @property
    def local_size(self) -> int:
        """Scalars that stay at the client."""
        return sum(slot.size for slot in self.slots if slot.start >= self.shared_stop)

    @property
    def last_layer_size(self) -> int:
        """Scalars in the last matrix that stays at the client."""
        local = (slot for slot in reversed(self.slots) if slot.start >= self.shared_stop)
        return next((slot.size for slot in local if len(slot.shape) > 1), 0)

    @property
    def digest(self) -> str:
        """A hash of names, shapes and order: two models with the same digest can be mixed."""
        text = ";".join(f"{s.name}{s.shape}@{s.start}" for s in self.slots) + f"|{self.shared_stop}|{self.width}"
        return hashlib.sha256(text.encode()).hexdigest()

    def views(self, row: Tensor) -> dict[str, Tensor]:
        """The parameters as views of one row."""
        return {s.name: row[s.start : s.start + s.size].view(s.shape) for s in self.slots}

    def local_part(self, row: Tensor, *, last_layer: bool = False) -> Tensor | None:
        """The local parameters as one finite vector: all, or the last layer; None if everything is shared."""
        views = self.views(row)
        local = [views[slot.name] for slot in self.slots if slot.start >= self.shared_stop]
        if not local:
            return None
        last = next((view for view in reversed(local) if view.dim() > 1), local[-1])
        return torch.cat([view.flatten() for view in ([last] if last_layer else local)]).nan_to_num()

    def bind(self, model: nn.Module, row: Tensor, gradient: Tensor | None = None) -> None:
        """Make `model` live in `row` (and its gradients in `gradient`): nothing is copied."""
        views = self.views(row)
        gradients = self.views(gradient) if gradient is not None else None
        for name, parameter in model.named_parameters():
            parameter.data = views[name]
            if gradients is not None:
                parameter.grad = gradients[name]

    def flatten(self, model: nn.Module) -> Tensor:
        """A fresh row with the model's present parameters."""
        row = torch.zeros(self.width)
        for name, view in self.views(row).items():
            view.copy_(model.get_parameter(name).detach())
        return row


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def _place(names: Sequence[str], shapes: dict[str, tuple[int, ...]], start: int) -> tuple[list[Slot], int]:
    slots = []
    for name in names:
        slot = Slot(name, shapes[name], start)
        slots.append(slot)
        start += -(-slot.size // ALIGN) * ALIGN
    return slots, start
