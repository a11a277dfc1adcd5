"""Shared by the files of this package: its error, its array types and checks of simple arguments."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import SageflError

Seed: TypeAlias = int | tuple[int, ...]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
QUOTED = re.compile(r'((?:^|,)\s*"(?:[^"]|"")*")|#.*')  # a field in quotes, which is kept, or a comment


class TopologyError(SageflError, ValueError):
    """An impossible graph, trace, link or misbehaviour setting; the message says what to do."""


def whole(name: str, value: object, least: int = 0) -> int:
    """`value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise TopologyError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def number(name: str, value: object, least: float, most: float = math.inf) -> float:
    """`value` as a finite float in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
        where = f"of at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        raise TopologyError(f"{name} must be a number {where}, got {value!r}")
    if math.isinf(value):
        raise TopologyError(f"{name} must be finite, got {value!r}")
    return float(value)


def probability(name: str, value: object) -> float:
    """`value` as a float in [0, 1]."""
    return number(name, value, 0.0, 1.0)


def frozen(array: npt.ArrayLike) -> IntArray:
    """A read-only copy, so that nobody can change what many clients share."""
    copy = np.array(array, dtype=np.int64)
    copy.setflags(write=False)
    return copy


def numbered_fields(
    path: str | PathLike[str], what: str, *, commas_first: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The lines of a text file as `(line number, fields)`, split at commas and blanks, without # comments.

    With `commas_first` blanks split only lines without commas, so that names may hold some, and a name in double
    quotes may hold commas and #.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise TopologyError(f"cannot read the {what} {str(path)!r}: {reason}; check the path") from problem
    except UnicodeDecodeError as problem:
        raise TopologyError(f"the {what} {str(path)!r} is not UTF-8 text: {problem}") from problem
    for line, content in enumerate(text.splitlines(), start=1):
        kept = QUOTED.sub(r"\1", content) if commas_first else content.split("#", 1)[0]
        if commas_first and "," in kept:
            yield line, [field.strip() for field in next(csv.reader([kept], skipinitialspace=True))]
            continue
        fields = kept.replace(",", " ").split()
        if fields:
            yield line, fields
