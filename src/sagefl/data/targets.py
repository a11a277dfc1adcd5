"""What is to be learnt: classes (words, whole numbers), or real numbers (floats), unless told otherwise.

Classes are an `int64` vector in `0 .. classes - 1`. Values are `float32`, samples x outputs. Errors of values are
clipped where certificates need losses that are bounded: at twice the mean distance of the training targets from their
median, so that whoever always answers the median scores about one half, as a uniform guess does under clipped
cross-entropy.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import DataError
from .inputs import as_array, as_text, describe

TaskKind = Literal["classification", "regression"]
Labels: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float32]
STRATA = 10  # ranges of equal weight by which values are dealt to clients as classes are


def task_of(y: NDArray[Any]) -> TaskKind:
    """The kind of task that targets of this type are for."""
    return "regression" if y.dtype.kind == "f" else "classification"


_EXPECTED = "words or whole numbers from 0 (classes), or floats (regression)"


def _array(what: str, given: ArrayLike) -> NDArray[Any]:
    return as_array(what, given, "ragged; expected one target, or as many numbers, for every sample")


def words_numbered(
    name: str, train: ArrayLike, test: ArrayLike, classes: int | None = None
) -> tuple[Labels, Labels, tuple[str, ...]] | None:
    """Both splits' labels by number and the words that they were, in sorted order; None if they are numbers."""
    splits = {f"{name}: {split}": y for split, y in (("train_y", train), ("test_y", test))}
    found = [_words(what, _array(what, y)) for what, y in splits.items()]
    if not any(y.dtype.kind == "U" for y in found):
        return None
    if not all(y.dtype.kind == "U" for y in found):
        raise DataError(
            f"{name}: train_y is {describe(found[0])} and test_y {describe(found[1])}; expected words in both, or "
            "numbers in both"
        )
    known = np.union1d(*found)
    if classes is None and len(strange := np.setdiff1d(found[1], found[0])):
        raise DataError(
            f"{name}: test_y has label {str(strange[0])!r} and train_y has not; expected the same classes in both. If "
            f"they are meant, give their number: classes = {len(known)}, an array of the file or an argument of "
            "Dataset.from_arrays"
        )
    numbers = [np.searchsorted(known, y).astype(np.int64) for y in found]
    return numbers[0], numbers[1], tuple(map(str, known.tolist()))


def _words(what: str, y: NDArray[Any]) -> NDArray[Any]:
    """Labels as a vector of text if they are words, else as they are."""
    if y.dtype.kind not in "OSU":
        return y
    text = as_text(f"{what} holds", y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y, "a word")
    if text.ndim != 1:
        raise DataError(f"{what} is {describe(y)}; expected one word for every sample")
    if bare := int((np.char.strip(text) == "").sum()):
        raise DataError(f"{what}: {bare} samples have an empty label; expected a word for every sample")
    return text


def as_targets(what: str, given: ArrayLike, task: TaskKind | None = None) -> NDArray[Any]:
    """A user's targets as `Dataset` keeps them: a column is a vector of labels, a vector of floats a column."""
    y = _array(what, given)
    if y.dtype.kind not in "fiub":
        raise DataError(f"{what} is {describe(y)}; expected {_EXPECTED}")
    if (task or task_of(y)) == "regression":
        values = y.astype(np.float32, copy=False)
        return values[:, None] if values.ndim == 1 else values
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{what} is {describe(y)}; expected a vector of integer labels counted from 0")
    if y.dtype.kind == "f" and not (y == np.round(y)).all():
        bad = int(np.flatnonzero(y != np.round(y))[0])
        raise DataError(
            f"{what} has target {y[bad]:g} in sample {bad}; expected whole numbers for data.task = classification"
        )
    return y.astype(np.int64, copy=False)


def check_targets(what: str, y: Any, *, samples: int, classes: int) -> None:
    """Refuse targets that do not fit the inputs or the number of classes or outputs."""
    if isinstance(y, np.ndarray) and y.dtype == np.float32 and y.ndim == 2:
        _check_values(what, y, samples, classes)
        return
    if not isinstance(y, np.ndarray) or y.dtype != np.int64 or y.ndim != 1:
        got = describe(y) if isinstance(y, np.ndarray) else type(y).__name__
        raise DataError(f"{what} is {got}; expected an int64 vector, or float32 values (samples x outputs)")
    if len(y) != samples:
        raise DataError(f"{what} has {len(y)} labels for {samples} inputs; expected one label per input")
    if y.min() >= 0 and classes < 2:
        raise DataError(f"{what} has a single class; expected at least two")
    if y.min() < 0 or y.max() >= classes:
        wanted = f"0 to {classes - 1} for {classes} classes" if classes > 1 else "whole numbers from 0"
        raise DataError(f"{what} has labels from {y.min()} to {y.max()}; expected {wanted}")


def _check_values(what: str, y: Values, samples: int, outputs: int) -> None:
    if y.shape != (samples, outputs):
        raise DataError(f"{what} is {describe(y)} for {samples} inputs; expected {samples} x {outputs}")
    if not np.isfinite(y).all():
        bad = int(np.flatnonzero(~np.isfinite(y).all(axis=1))[0])
        raise DataError(f"{what} holds NaN or infinity, first in sample {bad}; clean the data first")


def spread(y: Values) -> float:
    """Twice the mean absolute distance from the median, in the mean over outputs; 1 where all targets are equal."""
    wide = y.astype(np.float64)
    found = float(2 * np.abs(wide - np.median(wide, axis=0)).mean())
    return found if found > 0 else 1.0


def strata(y: NDArray[Any]) -> Labels:
    """What partitions by label go by: the classes, or in which tenth of the data a sample's first value lies."""
    if y.dtype.kind != "f":
        return y
    first = y[:, 0]
    cuts = np.quantile(first, np.arange(1, STRATA) / STRATA)
    return np.unique(np.searchsorted(cuts, first, side="right"), return_inverse=True)[1].astype(np.int64)
