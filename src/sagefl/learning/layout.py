"""How a module's parameters and state lie in one row of the population matrix.

Shared parameters first, the local rest after them, and last the buffers that training changes (running statistics),
which stay with their client unless the config has them exchanged: then those that are floats come first of all. Every
tensor starts on a 64-byte boundary and so does every row, because vectorised kernels may round differently at other
alignments, and repeatability is bit for bit. Frozen parameters and constant buffers are in no row: they are stored
once, with the module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from .models import ModelError

ALIGN = 16  # floats: 64 bytes
EVERYTHING = "*"


@dataclass(frozen=True)
class Slot:
    """Where one parameter or buffer stands in a row."""

    name: str
    shape: tuple[int, ...]
    start: int
    buffer: str = ""  # the type of a buffer; whole numbers lie in the row by their bits

    @property
    def size(self) -> int:
        """Number of scalars."""
        return prod(self.shape)

    @property
    def columns(self) -> int:
        """Floats of the row that it takes, padding aside."""
        return -(-self.size * self.dtype.itemsize // 4)

    @property
    def dtype(self) -> torch.dtype:
        """The type of its scalars."""
        found: torch.dtype = getattr(torch, self.buffer or "float32")
        return found

    def of(self, rows: Tensor) -> Tensor:
        """Its view of one row, or of many."""
        part = rows[..., self.start : self.start + self.columns]
        if self.dtype == torch.float32:
            return part.view((*rows.shape[:-1], *self.shape))
        return part.view(self.dtype)[..., : self.size].view((*rows.shape[:-1], *self.shape))


@dataclass(frozen=True)
class Layout:
    """The columns of the population matrix."""

    slots: tuple[Slot, ...]
    shared_stop: int  # columns [0, shared_stop) are the shared block omega
    width: int
    trained_start: int  # columns [trained_start, trained_stop) are parameters; the others are buffers
    trained_stop: int
    base: str = ""  # digest of the frozen parameters

    @classmethod
    def of(
        cls,
        model: nn.Module,
        shared: Sequence[str] | None = None,
        state: Sequence[str] | None = None,
        *,
        exchange_state: bool = False,
    ) -> Layout:
        """The layout of `model`.

        `shared` are name prefixes and default to `model.shared`, or to everything; `state` are the buffers that
        training changes and default to running statistics.
        """
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad}
        if not shapes:
            raise ModelError("the model has no parameters to train")
        ours = _shared(model, shapes, shared)
        kinds = {name: str(b.dtype).removeprefix("torch.") for name, b in _state(model, state)}
        shapes |= {name: tuple(b.shape) for name, b in _state(model, state)}
        moving = [name for name, kind in kinds.items() if exchange_state and kind == "float32"]
        first, begin = _place(moving, shapes, 0, kinds)
        mine, end = _place(ours, shapes, begin)
        rest, stop = _place([n for n in shapes if n not in {*ours, *kinds}], shapes, end)
        last, width = _place([n for n in kinds if n not in moving], shapes, stop, kinds)
        return cls((*first, *mine, *rest, *last), end, width, begin, stop, _base(model))

    @property
    def shared(self) -> slice:
        """The columns of omega."""
        return slice(0, self.shared_stop)

    @property
    def whole(self) -> slice:
        """The columns of all parameters, and of the buffers that are exchanged."""
        return slice(0, self.trained_stop)

    @property
    def trained(self) -> slice:
        """The columns of parameters."""
        return slice(self.trained_start, self.trained_stop)

    @property
    def shared_size(self) -> int:
        """Scalars in omega, padding aside: what a transfer really carries."""
        return sum(slot.size for slot in self.slots if slot.start < self.shared_stop)

    @property
    def local_size(self) -> int:
        """Scalars of parameters that stay at the client."""
        return sum(slot.size for slot in self._local)

    @property
    def full_size(self) -> int:
        """Scalars of the whole row: a full model moves with its running statistics."""
        return sum(slot.columns for slot in self.slots)

    @property
    def trained_width(self) -> int:
        """Columns that an optimiser moves."""
        return self.trained_stop - self.trained_start

    @property
    def _local(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.start >= self.shared_stop and not slot.buffer]

    @property
    def last_layer_size(self) -> int:
        """Scalars in the last matrix that stays at the client."""
        return next((slot.size for slot in reversed(self._local) if len(slot.shape) > 1), 0)

    @property
    def digest(self) -> str:
        """A hash of names, shapes, order and frozen weights: two models with the same digest can be mixed."""
        text = ";".join(f"{s.name}{s.shape}@{s.start}{s.buffer}" for s in self.slots)
        text += f"|{self.shared_stop}|{self.width}" + (f"|{self.base}" if self.base else "")
        return hashlib.sha256(text.encode()).hexdigest()

    def columns(self, part: slice) -> tuple[slice, slice]:
        """The trained columns among some of the row's: where they stand in the row, and in the moments."""
        start, stop, _ = part.indices(self.width)
        start, stop = max(start, self.trained_start), min(stop, self.trained_stop)
        return slice(start, stop), slice(start - self.trained_start, stop - self.trained_start)

    def views(self, row: Tensor) -> dict[str, Tensor]:
        """The parameters and buffers as views of one row."""
        return {slot.name: slot.of(row) for slot in self.slots}

    def local_part(self, row: Tensor, *, last_layer: bool = False) -> Tensor | None:
        """The local parameters as one finite vector: all, or the last layer; None if everything is shared."""
        local = [slot.of(row) for slot in self._local]
        if not local:
            return None
        last = next((view for view in reversed(local) if view.dim() > 1), local[-1])
        return torch.cat([view.flatten() for view in ([last] if last_layer else local)]).nan_to_num()

    def bind(self, model: nn.Module, row: Tensor, gradient: Tensor | None = None) -> None:
        """Make `model` live in `row` (and its gradients in `gradient`): nothing is copied."""
        views = self.views(row)
        gradients = self.views(gradient) if gradient is not None else None
        for name, parameter in model.named_parameters():
            if name not in views:
                continue  # frozen
            parameter.data = views[name]
            if gradients is not None:
                parameter.grad = gradients[name]
        for slot in self.slots:
            if slot.buffer:
                module, _, name = slot.name.rpartition(".")
                # `.data`: autograd would take a change of one buffer for a change of all that live in the row.
                setattr(model.get_submodule(module), name, views[slot.name].data)

    def keep_state(self, model: nn.Module, row: Tensor) -> None:
        """Put buffers into `row` that the model has replaced instead of changing them in place."""
        for slot in self.slots:
            if slot.buffer and (held := model.get_buffer(slot.name)).data_ptr() != (view := slot.of(row)).data_ptr():
                view.copy_(held)

    def flatten(self, model: nn.Module) -> Tensor:
        """A fresh row with the model's present parameters and buffers."""
        row = torch.zeros(self.width)
        for slot in self.slots:
            held = model.get_buffer(slot.name) if slot.buffer else model.get_parameter(slot.name)
            slot.of(row).copy_(held.detach())
        return row


def _shared(
    model: nn.Module, names: Sequence[str] | dict[str, tuple[int, ...]], given: Sequence[str] | None
) -> list[str]:
    """The parameters that are exchanged."""
    declared = getattr(model, "shared", EVERYTHING) if given is None else given
    if not isinstance(declared, str | list | tuple | set) or not all(isinstance(prefix, str) for prefix in declared):
        raise ModelError(
            f"{type(model).__name__}.shared is {declared!r}; expected name prefixes, or '*' for everything"
        )
    prefixes = (declared,) if isinstance(declared, str) else tuple(declared)
    if not prefixes:
        raise ModelError(
            f"no parameter is shared: declare the shared part, e.g. shared = ('encoder',), or '*' for everything; "
            f"parameters: {list(names)}"
        )
    for prefix in prefixes:
        if not any(_under(name, prefix) for name in names):
            frozen = any(_under(name, prefix) for name, _ in model.named_parameters())
            why = "names frozen parameters only" if frozen else "names no parameter"
            raise ModelError(f"the shared part {prefix!r} {why}; parameters: {list(names)}")
    return [name for name in names if any(_under(name, prefix) for prefix in prefixes)]


def _state(model: nn.Module, given: Sequence[str] | None) -> list[tuple[str, Tensor]]:
    """The buffers that belong to clients."""
    if given is None:
        keeping = [
            name
            for name, module in model.named_modules()
            if getattr(module, "track_running_stats", False) and getattr(module, "running_mean", None) is not None
        ]
        return [(name, b) for name, b in model.named_buffers() if name.rpartition(".")[0] in keeping]
    return [(name, b) for name, b in model.named_buffers() if name in given]


def _base(model: nn.Module) -> str:
    """A hash of the frozen parameters; empty without any."""
    frozen = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
    if not frozen:
        return ""
    state = hashlib.sha256()
    for name, p in frozen:
        state.update(f"{name}{tuple(p.shape)}{p.dtype}".encode())
        state.update(np.ascontiguousarray(p.detach().cpu().reshape(-1).view(torch.uint8).numpy()).data)
    return state.hexdigest()


def _under(name: str, prefix: str) -> bool:
    return prefix == EVERYTHING or name == prefix or name.startswith(f"{prefix}.")


def _place(
    names: Sequence[str], shapes: dict[str, tuple[int, ...]], start: int, kinds: dict[str, str] | None = None
) -> tuple[list[Slot], int]:
    slots = []
    for name in names:
        slot = Slot(name, shapes[name], start, (kinds or {}).get(name, ""))
        slots.append(slot)
        start += -(-slot.columns // ALIGN) * ALIGN
    return slots, start
