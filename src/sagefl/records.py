"""What one sample is made of where it has several arrays: the fields of a record, by name or by place."""

from __future__ import annotations

from ast import literal_eval
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """One array of a sample: its name or place, its type, its shape, and where it lies in a record's bytes."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def image(self) -> bool:
        """Whether it is pixels: uint8 with channels, height and width; a model gets them as floats in [0, 1]."""
        return self.dtype == np.uint8 and len(self.shape) == 3


def parts_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Part, ...]:
    """The arrays that a sample of this type and shape is made of; a plain one has no name."""
    if dtype.fields is None:
        return (Part("", dtype, shape, 0),)
    found = ((name, dtype.fields[name]) for name in dtype.names or ())
    return tuple(Part(name, field[0].base, field[0].shape, int(field[1])) for name, field in found)


def by_place(parts: tuple[Part, ...]) -> bool:
    """Whether the arrays of a record were given as a tuple: their names are their places."""
    return [part.name for part in parts] == [str(i) for i in range(len(parts))]


def type_name(dtype: np.dtype[Any]) -> str:
    """A type as text that another machine understands: `float32`, or the fields of a record."""
    return dtype.name if dtype.fields is None else repr(dtype.newbyteorder("<").descr)


def type_of(name: str) -> np.dtype[Any]:
    """The inverse of `type_name`."""
    return np.dtype(literal_eval(name) if name.startswith("[") else name)
