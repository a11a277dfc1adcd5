"""What one sample's input is made of: an array of any shape and type, or several of them.

Several arrays per sample, given by name (a mapping) or by place (a tuple), are kept as one array of records, so that
whatever moves, deals or sends samples handles one array; what a model is given is taken apart again by `record_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..records import WIDE, RecordPart, by_place, in_file, narrow, record_parts
from .errors import DataError

Inputs: TypeAlias = NDArray[Any]
Shape: TypeAlias = "tuple[int, ...] | dict[str, tuple[int, ...]] | tuple[tuple[int, ...], ...]"

KINDS = ("uint8", "int8", "int16", "int32", "int64", "bool", "float32")
"""What inputs are kept as: floats as float32, whole numbers as they are (unsigned ones in the next larger signed).

Wide floats in a file that is mapped stay there as they are; batches formed from them are float32.
"""
_SIGNED = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
_CHANNELS = (1, 3, 4)
ROWS = 4096  # samples looked at in one go, so that arrays in files need not fit into memory


def shape_of(x: Inputs) -> Shape:
    """What a model is told about one sample: its shape, or the shapes of its arrays by name or by place."""
    parts = record_parts(x.dtype, x.shape[1:])
    if x.dtype.fields is None:
        return parts[0].shape
    return tuple(p.shape for p in parts) if by_place(parts) else {p.name: p.shape for p in parts}


def columns_of(x: Inputs) -> Iterator[tuple[RecordPart, Inputs]]:
    """Every array of the samples, with the samples first."""
    for part in record_parts(x.dtype, x.shape[1:]):
        yield part, x if x.dtype.fields is None else x[part.name]


def describe(x: NDArray[Any]) -> str:
    """Type and shape, for messages."""
    if x.dtype.fields is None:
        return f"{x.dtype} {' x '.join(map(str, x.shape))}"
    told = ", ".join(f"{p.name}: {p.dtype} {' x '.join(map(str, (len(x), *p.shape)))}" for p, _ in columns_of(x))
    return f"records ({told})"


def check_inputs(what: str, x: Any) -> None:
    """Refuse what no model could be given."""
    if not isinstance(x, np.ndarray):
        raise DataError(f"{what} is a {type(x).__name__}; expected a NumPy array")
    if x.size == 0:
        raise DataError(f"{what} is empty ({describe(x)}); both splits need at least one sample")
    for part, column in columns_of(x):
        name = f"{what}[{part.name!r}]" if part.name else what
        if not (part.dtype.name in KINDS or stays_in_file(column)):
            raise DataError(
                f"{name} is {describe(column)}; expected samples first, of type {', '.join(KINDS)}. "
                "Dataset.from_arrays converts the usual layouts"
            )
        if column.ndim < 1 + (not part.name):
            raise DataError(
                f"{name} is {describe(column)}; expected samples first, and an axis or more for what is in a sample: "
                "reshape(-1, 1) if that is one number"
            )
        for start in range(0, len(column), ROWS) if part.dtype.kind == "f" else ():
            rows = narrow(column[start : start + ROWS])
            if not np.isfinite(rows).all():
                bad = start + int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))[0])
                raise DataError(f"{name} holds NaN or infinity, first in sample {bad}; clean the data first")


def stays_in_file(x: Inputs) -> bool:
    """Whether these are floats of another width in a file that is mapped: to convert them would be to read them all."""
    return x.dtype.name in WIDE and x.dtype.isnative and in_file(x) is not None


def as_inputs(what: str, given: ArrayLike | Mapping[str, ArrayLike] | tuple[Any, ...]) -> Inputs:
    """A user's inputs in the form that `Dataset` keeps: one array, or records where several were given."""
    several = isinstance(given, Mapping) or (isinstance(given, tuple) and all(hasattr(g, "shape") for g in given))
    if not several:
        return _plain(what, given)
    named = dict(given) if isinstance(given, Mapping) else {str(i): g for i, g in enumerate(given)}  # type: ignore[arg-type]
    if not named:
        raise DataError(f"{what} is empty: expected at least one array per sample")
    arrays = {str(name): _plain(f"{what}[{name!r}]", array) for name, array in named.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise DataError(f"the arrays of {what} have different numbers of samples ({told}); expected one row each")
    kind = np.dtype([(name, array.dtype, array.shape[1:]) for name, array in arrays.items()])
    records = np.empty(next(iter(lengths.values())), kind)
    for name, array in arrays.items():
        records[name] = array
    return records


_REGULAR = "expected numbers in a regular array with samples first"
_RAGGED = f"ragged: its samples differ in length; {_REGULAR}: pad them to one length"


def _objects(x: NDArray[Any]) -> str:
    """What is wrong with an array of Python objects, and what to do about it."""
    flat = x.ravel()
    if x.size and all(isinstance(value, list | tuple | np.ndarray) for value in flat):
        return f"is {_RAGGED}"
    odd = (i for i, value in enumerate(flat) if not isinstance(value, int | float | np.number))
    if (at := next(odd, None)) is None:
        return f"is an array of Python objects; {_REGULAR}: give it a type, such as astype(float)"
    cure = "fill in what is missing, or leave those samples out" if flat[at] is None else "turn words into numbers"
    where = f"{type(flat[at]).__name__} {flat[at]!r:.40} in sample {at * len(x) // x.size}"
    return f"holds Python objects, first {where}; {_REGULAR}: {cure}"


def as_array(what: str, given: Any, ragged: str) -> NDArray[Any]:
    """Whatever a user has at hand as an array; `ragged` says what is expected of lists that are none."""
    try:
        x = np.asarray(given)
    except ValueError:
        raise DataError(f"{what} is {ragged}") from None
    except (TypeError, RuntimeError) as error:  # such as tensors on a device, with a gradient, of type bfloat16
        why = str(error).splitlines()[0]
        raise DataError(f"{what} is a {type(given).__name__} that NumPy cannot read: {why}") from None
    if x.ndim == 0:
        raise DataError(f"{what} is a {type(given).__name__}; expected an array with samples first")
    return x


def _plain(what: str, given: Any) -> Inputs:
    x = as_array(what, given, _RAGGED)
    if x.dtype == object:
        raise DataError(f"{what} {_objects(x)}")
    if x.dtype.kind not in "fiubV" or (x.dtype.kind == "V" and x.dtype.fields is None):
        raise DataError(f"{what} is {describe(x)}; {_REGULAR}")
    if x.dtype.fields is not None:
        return np.ascontiguousarray(x)
    if x.dtype.kind == "f" and not stays_in_file(x):
        x = x.astype(np.float32, copy=False)
    x = x.astype(_SIGNED.get(x.dtype.name, x.dtype), copy=False)
    if x.ndim == 3 and x.dtype == np.uint8:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS and x.dtype.name in _PIXELS:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


_PIXELS = ("uint8", "float32")


def alike(train: Inputs, test: Inputs) -> tuple[Inputs, Inputs]:
    """Both splits with their arrays in the order of the training split's, and whole numbers as wide as the wider's.

    What differs in any other way stays as it is, for `Dataset` to refuse.
    """
    if train.dtype == test.dtype:
        return train, test
    parts, others = (record_parts(x.dtype, x.shape[1:]) for x in (train, test))
    there = {part.name: part for part in others}
    if there.keys() != {part.name for part in parts}:
        return train, test
    kinds = {part.name: _wider(part.dtype, there[part.name].dtype) for part in parts}
    if None in kinds.values():
        return train, test
    return _cast(train, parts, kinds), _cast(test, [there[part.name] for part in parts], kinds)


def _wider(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any] | None:
    """The type that holds both; None if they differ in more than the width of signed whole numbers."""
    if one == other:
        return one
    return np.promote_types(one, other) if one.kind == other.kind == "i" else None


def _cast(x: Inputs, parts: Sequence[RecordPart], kinds: Mapping[str, Any]) -> Inputs:
    if x.dtype.fields is None:
        return x.astype(kinds[""], copy=False)
    made = np.empty(len(x), [(part.name, kinds[part.name], part.shape) for part in parts])
    for part in parts:
        made[part.name] = x[part.name]
    return made


def as_text(what: str, x: NDArray[Any], expected: str) -> NDArray[Any]:
    """Words as text: bytes are decoded, objects that are all text become an array of it; numbers stay as they are."""
    if x.dtype == object:  # as a column of a table comes
        odd = (i for i, word in enumerate(x.ravel()) if not isinstance(word, str))
        if (at := next(odd, None)) is not None:
            raise DataError(f"{what} {x.ravel()[at]!r:.40} for sample {at}; expected {expected} for every sample")
        return x.astype(str)
    if x.dtype.kind == "S":
        try:
            return np.char.decode(x, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{what} bytes that are no UTF-8 ({error.reason}); expected text") from None
    return x
