"""The form that all data takes: four arrays, a name, a number of classes and, if known, the owner of each sample.

Nothing here reads files. `Dataset` is strict about its arrays, whoever loaded them; `Dataset.from_arrays` accepts a
user's arrays in any of the usual layouts and converts them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import DataError

Inputs = NDArray[np.uint8] | NDArray[np.float32]
Labels = NDArray[np.int64]

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training split that is dealt to clients and a test split that all of them share.

    Inputs are `uint8` images, N x C x H x W, or `float32` arrays of any shape with samples first (used as they are:
    scale them yourself, to [0, 1] for the built-in models). Labels are `int64` in `0 .. classes - 1`. `owners` says who
    each training sample comes from (a writer, a hospital, a device), as a number from 0.
    """

    name: str
    train_x: Inputs = field(repr=False)
    train_y: Labels = field(repr=False)
    test_x: Inputs = field(repr=False)
    test_y: Labels = field(repr=False)
    classes: int
    owners: Labels | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for split, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            _check_inputs(f"{self.name}: {split}_x", x)
            _check_labels(f"{self.name}: {split}_y", y, samples=len(x), classes=self.classes)
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_x.dtype != self.test_x.dtype:
            raise DataError(
                f"{self.name}: training inputs are {_describe(self.train_x)} and test inputs "
                f"{_describe(self.test_x)}; expected the same type and the same shape per sample"
            )
        if self.owners is not None and (self.owners.dtype != np.int64 or self.owners.shape != self.train_y.shape):
            raise DataError(
                f"{self.name}: owners are {_describe(self.owners)} for {len(self.train_y)} training samples; "
                "expected an int64 vector with one owner per sample"
            )

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_x: ArrayLike,
        train_y: ArrayLike,
        test_x: ArrayLike,
        test_y: ArrayLike,
        classes: int | None = None,
        owners: ArrayLike | None = None,
    ) -> Dataset:
        """A dataset from arrays in the usual layouts.

        Images may be N x H x W or channels-last; floats of any width become `float32`, integer labels `int64`, an
        N x 1 column of labels a vector. `classes` defaults to the largest label plus one. `owners` may be names or
        numbers; they are numbered in sorted order.
        """
        y_train, y_test = _labels(f"{name}: train_y", train_y), _labels(f"{name}: test_y", test_y)
        if classes is None:
            classes = int(max(y_train.max(initial=0), y_test.max(initial=0))) + 1
        x_train, x_test = _inputs(f"{name}: train_x", train_x), _inputs(f"{name}: test_x", test_x)
        numbers = None if owners is None else _numbered(f"{name}: owners", owners)
        return cls(name, x_train, y_train, x_test, y_test, classes, numbers)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, C x H x W for images."""
        return self.train_x.shape[1:]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content (not of the name): equal digests mean equal data."""
        state = hashlib.sha256(f"classes {self.classes}\n".encode())
        for x in (self.train_x, self.train_y, self.test_x, self.test_y):
            # Little-endian bytes, so that the digest does not depend on the machine.
            little = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("<"))
            state.update(f"{little.dtype.str} {little.shape}\n".encode())
            state.update(little.data)
        if self.owners is not None:
            state.update(b"owners\n" + np.ascontiguousarray(self.owners, dtype="<i8").tobytes())
        return state.hexdigest()


def _describe(x: NDArray[Any]) -> str:
    return f"{x.dtype} {' x '.join(map(str, x.shape))}"


def _check_inputs(what: str, x: NDArray[Any]) -> None:
    if not isinstance(x, np.ndarray):
        raise DataError(f"{what} is a {type(x).__name__}; expected a NumPy array")
    image, real = x.dtype == np.uint8 and x.ndim == 4, x.dtype == np.float32 and x.ndim >= 2
    if not (image or real):
        raise DataError(
            f"{what} is {_describe(x)}; expected uint8 images (samples x channels x height x width) or "
            "float32 with samples first. Dataset.from_arrays converts the usual layouts"
        )
    if x.size == 0:
        raise DataError(f"{what} is empty ({_describe(x)}); both splits need at least one sample")
    if real and not np.isfinite(x).all():
        bad = int(np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[0])
        raise DataError(f"{what} holds NaN or infinity, first in sample {bad}; clean the data first")


def _check_labels(what: str, y: NDArray[Any], *, samples: int, classes: int) -> None:
    if not isinstance(y, np.ndarray) or y.dtype != np.int64 or y.ndim != 1:
        got = _describe(y) if isinstance(y, np.ndarray) else type(y).__name__
        raise DataError(f"{what} is {got}; expected an int64 vector")
    if len(y) != samples:
        raise DataError(f"{what} has {len(y)} labels for {samples} inputs; expected one label per input")
    if classes < 2:
        raise DataError(f"{what}: {classes} class(es); expected at least two")
    if y.min() < 0 or y.max() >= classes:
        raise DataError(
            f"{what} has labels from {y.min()} to {y.max()}; expected 0 to {classes - 1} for {classes} classes"
        )


def _inputs(what: str, given: ArrayLike) -> Inputs:
    x = np.asarray(given)
    if x.dtype.kind == "f":
        x = x.astype(np.float32, copy=False)
    elif x.dtype != np.uint8:
        raise DataError(
            f"{what} is {_describe(x)}; expected uint8 (0 to 255) or floats. Convert it first, "
            "for example with x.astype(numpy.uint8)"
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


def _numbered(what: str, given: ArrayLike) -> Labels:
    names = np.asarray(given)
    if names.ndim != 1 or names.dtype.kind not in "iuUS":
        raise DataError(f"{what} are {_describe(names)}; expected a vector of names or whole numbers")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _labels(what: str, given: ArrayLike) -> Labels:
    y = np.asarray(given)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise DataError(f"{what} is {_describe(y)}; expected a vector of integer labels counted from 0")
    return y.astype(np.int64)
