"""The samples as tensors, and how they become what a model is given.

An array that lies in a file stays there: workers map the same file instead of getting a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..records import RecordPart, by_place, in_file, record_parts
from ..selection.own_loss import OwnLoss
from .targets import Targets, targets_of

Indices = npt.NDArray[np.int64]
WIDENED = (torch.uint8, torch.int8, torch.int16)  # whole numbers that torch's embeddings do not take as they are
NARROWED = (torch.float64, torch.float16)  # as arrays in files may be


@dataclass(frozen=True)
class InputForm:
    """What a sample is made of; several arrays per sample lie in one row of bytes."""

    parts: tuple[RecordPart, ...] = ()  # none: as the tensors themselves say
    several: bool = False

    @classmethod
    def of(cls, x: npt.NDArray[Any]) -> InputForm:
        """Of samples as a data set holds them."""
        return cls(record_parts(x.dtype, x.shape[1:]), x.dtype.fields is not None)

    def rows(self, x: npt.NDArray[Any]) -> Tensor:
        """Samples as one tensor, a row each."""
        if not self.several:
            return torch.from_numpy(np.ascontiguousarray(x))
        return torch.from_numpy(np.ascontiguousarray(x).view(np.uint8).reshape(len(x), x.dtype.itemsize))

    def inputs(self, rows: Tensor) -> Any:
        """What a model is given: a tensor, or tensors by name or by place. More than one leading axis is kept."""
        if not self.several:
            return as_input(rows, image=not self.parts or self.parts[0].image)
        found = {part.name: as_input(_taken(rows, part), image=part.image) for part in self.parts}
        return tuple(found.values()) if by_place(self.parts) else found


def _taken(rows: Tensor, part: RecordPart) -> Tensor:
    size = part.dtype.itemsize * prod(part.shape)
    raw = rows[..., part.start : part.start + size].contiguous()
    kind = torch.from_numpy(np.empty(0, part.dtype)).dtype
    return raw.view(kind).view(*rows.shape[:-1], *part.shape)


def as_input(rows: Tensor, *, image: bool = True) -> Tensor:
    """uint8 images as floats in [0, 1], short whole numbers as int64, other floats as float32, all else as it is."""
    if image and rows.dtype == torch.uint8:
        return rows.float().div_(255)
    if rows.dtype in NARROWED:
        return rows.float()
    return rows.long() if rows.dtype in WIDENED else rows


def each(x: Any, change: Callable[[Tensor], Any]) -> Any:
    """What a model is given, with every tensor of it changed."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, dict):
        return {name: change(tensor) for name, tensor in x.items()}
    return tuple(map(change, x))


def sliced(x: Any, part: Any) -> Any:
    """Some samples of what a model is given."""
    return each(x, lambda tensor: tensor[part])


def split(x: Any, sizes: list[int]) -> Sequence[Any]:
    """What a model is given, in consecutive batches."""
    if isinstance(x, Tensor):
        return torch.split(x, sizes)
    if isinstance(x, dict):
        parts = zip(*(torch.split(tensor, sizes) for tensor in x.values()), strict=True)
        return [dict(zip(x, part, strict=True)) for part in parts]
    return list(zip(*(torch.split(tensor, sizes) for tensor in x), strict=True))


def placed(x: Any, device: torch.device) -> Any:
    """What a model is given, on another device."""
    return each(x, lambda tensor: tensor.to(device))


def model_input(x: npt.NDArray[Any]) -> Any:
    """What a model is given for some samples of a data set."""
    form = InputForm.of(x)
    return form.inputs(form.rows(x))


def as_seen(inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Inputs as the model sees them, a row each: two that it cannot tell apart are one question."""
    given = model_input(inputs)
    several = given.values() if isinstance(given, dict) else given
    parts = [given] if isinstance(given, Tensor) else [tensor.flatten(1) for tensor in several]
    zeroed = [part.numpy() + part.numpy().dtype.type(0) for part in parts]  # -0 becomes 0
    return zeroed[0] if len(zeroed) == 1 else np.concatenate([part.astype(np.float64) for part in zeroed], axis=1)


def copies(inputs: npt.NDArray[Any]) -> int:
    """How many of some inputs the model cannot tell from an earlier one of them."""
    return len(inputs) - len({row.tobytes() for row in as_seen(inputs)}) if len(inputs) else 0


@dataclass(frozen=True)
class Corpus:
    """The samples as tensors and which of them each client trains on."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int  # or numbers to be predicted
    shards: Sequence[Indices]  # training indices per client; anchors and evaluation samples are not in them
    form: InputForm = InputForm()
    clip: float | None = None  # where errors of values are cut off; None: the targets are classes
    own: OwnLoss | None = None  # a loss of the user's, by which risks are measured
    files: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # tensors that lie in files: how to map them again

    @classmethod
    def of(
        cls,
        arrays: Sequence[npt.NDArray[Any]],
        classes: int,
        shards: Sequence[Indices],
        *,
        clip: float | None = None,
        own: OwnLoss | None = None,
        shared_memory: bool = False,
    ) -> Corpus:
        """From training inputs, their targets, test inputs, their targets; shared memory lets workers see one copy."""
        form = InputForm.of(arrays[0])
        tensors: dict[str, Any] = {}
        files = {}
        for name, array in zip(_ARRAYS, arrays, strict=True):
            tensor = form.rows(array) if name.endswith("x") else torch.from_numpy(np.ascontiguousarray(array))
            if (mapped := in_file(array)) is not None:
                files[name] = mapped
            elif shared_memory:
                tensor.share_memory_()  # type: ignore[no-untyped-call]
            tensors[name] = tensor
        return cls(**tensors, classes=classes, shards=shards, form=form, clip=clip, own=own, files=files)

    @property
    def targets(self) -> Targets:
        """How outputs are compared with targets."""
        return targets_of(self.classes, self.clip, self.own)

    def __getstate__(self) -> dict[str, Any]:
        """Tensors in files are left out: whoever gets this maps the files."""
        return {f.name: None if f.name in self.files else getattr(self, f.name) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        for name, (path, kind, offset, shape) in self.files.items():
            array = np.memmap(path, kind, "c", offset, shape)
            rows = self.form.rows(array) if name.endswith("x") else torch.from_numpy(array)
            object.__setattr__(self, name, rows)


_ARRAYS = ("train_x", "train_y", "test_x", "test_y")
