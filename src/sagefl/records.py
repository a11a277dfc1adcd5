"""How arrays of samples are made: the fields of a record where a sample has several, and the file they lie in."""

from __future__ import annotations

from ast import literal_eval
from typing import Any, NamedTuple

import numpy as np


class RecordPart(NamedTuple):
    """One array of a sample: its name or place, its type, its shape, and where it lies in a record's bytes."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def image(self) -> bool:
        """Whether it is pixels: uint8 with channels, height and width; a model gets them as floats in [0, 1]."""
        return self.dtype == np.uint8 and len(self.shape) == 3


def record_parts(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[RecordPart, ...]:
    """The arrays that a sample of this type and shape is made of; a plain one has no name."""
    if dtype.fields is None:
        return (RecordPart("", dtype, shape, 0),)
    found = ((name, dtype.fields[name]) for name in dtype.names or ())
    return tuple(RecordPart(name, field[0].base, field[0].shape, int(field[1])) for name, field in found)


def by_place(parts: tuple[RecordPart, ...]) -> bool:
    """Whether the arrays of a record were given as a tuple: their names are their places."""
    return [part.name for part in parts] == [str(i) for i in range(len(parts))]


def type_name(dtype: np.dtype[Any]) -> str:
    """A type as text that another machine understands: `float32`, or the fields of a record."""
    return dtype.name if dtype.fields is None else repr(dtype.newbyteorder("<").descr)


def type_of(name: str) -> np.dtype[Any]:
    """The inverse of `type_name`."""
    return np.dtype(literal_eval(name) if name.startswith("[") else name)


WIDE = ("float64", "float16")
"""Floats that stay as they are in a file; what is formed from them is float32."""


def narrow(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Wide floats as models get them; all else as it is."""
    if x.dtype.name not in WIDE:
        return x
    with np.errstate(over="ignore"):  # what becomes infinite is looked for elsewhere
        return x.astype(np.float32)


def in_file(array: np.ndarray[Any, Any]) -> tuple[Any, ...] | None:
    """How to map the file again that an array lies in; None where it lies in memory, or is a part of such an array."""
    owner: Any = array
    while isinstance(getattr(owner, "base", None), np.ndarray):
        owner = owner.base
    if not isinstance(owner, np.memmap) or owner.filename is None or not array.flags.c_contiguous:
        return None
    at = array.ctypes.data - owner.ctypes.data
    if not 0 <= at <= owner.nbytes - array.nbytes:
        return None
    return str(owner.filename), array.dtype, int(owner.offset) + at, array.shape
