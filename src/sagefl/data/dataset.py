"""The form that all data takes: four arrays, a name, a number of classes and, if known, the owner of each sample.

Nothing here reads files. `Dataset` is strict about its arrays, whoever loaded them; `Dataset.from_arrays` accepts a
user's arrays in any of the usual layouts and converts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..records import WIDE, narrow
from ..selection.own_loss import OwnLoss
from .errors import DataError
from .inputs import ROWS, Inputs, Shape, alike, as_array, as_inputs, as_text, check_inputs, describe, shape_of
from .targets import Labels, TaskKind, as_targets, check_targets, spread, strata, task_of, words_numbered

MOST_CLASSES = 1000  # beyond so many it is asked whether they can be classes
GAPS = 10  # classes for every label that there is: more, and these are hardly labels


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training split that is dealt to clients and a test split that all of them share.

    Inputs have samples first and any shape: `uint8` images (N x C x H x W, which models get as floats in [0, 1]),
    whole numbers (tokens), `float32` (used as they are: scale them yourself), or records of several such arrays.
    Targets are `int64` labels in `0 .. classes - 1`, or `float32` values, N x `classes`, for regression. `owners` says
    who each training sample comes from (a writer, a hospital, a device), as a number from 0; `owner_names` what they
    are called; `test_owners`, if there, whose each test sample is (-1: nobody's who trains), so that every owner is
    tested on its own. `clip` is where errors of values are cut off for certificates; by default twice their spread.
    `loss` is one of the user's own for certificates. `label_names` are the classes, where labels were words.
    """

    name: str
    train_x: Inputs = field(repr=False)
    train_y: NDArray[Any] = field(repr=False)
    test_x: Inputs = field(repr=False)
    test_y: NDArray[Any] = field(repr=False)
    classes: int
    owners: Labels | None = field(default=None, repr=False)
    owner_names: tuple[str, ...] | None = field(default=None, repr=False)
    test_owners: Labels | None = field(default=None, repr=False)
    clip: float | None = field(default=None, repr=False)
    loss: OwnLoss | None = field(default=None, repr=False)
    label_names: tuple[str, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        kinds = [getattr(y, "dtype", None) for y in (self.train_y, self.test_y)]
        if kinds[0] != kinds[1] and all(kind in (np.int64, np.float32) for kind in kinds):
            raise DataError(
                f"{self.name}: train_y is {kinds[0]} and test_y {kinds[1]}; expected both to be labels (whole numbers) "
                "or both values (floats)"
            )
        for split, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            check_inputs(f"{self.name}: {split}_x", x)
            check_targets(f"{self.name}: {split}_y", y, samples=len(x), classes=self.classes)
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_x.dtype != self.test_x.dtype:
            raise DataError(
                f"{self.name}: training inputs are {describe(self.train_x)} and test inputs "
                f"{describe(self.test_x)}; expected the same type and the same shape per sample"
            )
        for what, of, owners, y in (
            ("owners", "training", self.owners, self.train_y),
            ("test_owners", "test", self.test_owners, self.test_y),
        ):
            if owners is not None and (owners.dtype != np.int64 or owners.ndim != 1 or len(owners) != len(y)):
                raise DataError(
                    f"{self.name}: {what} are {describe(owners)} for {len(y)} {of} samples; "
                    "expected an int64 vector with one owner per sample"
                )

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_x: ArrayLike | Mapping[str, ArrayLike],
        train_y: ArrayLike,
        test_x: ArrayLike | Mapping[str, ArrayLike],
        test_y: ArrayLike,
        classes: int | None = None,
        owners: ArrayLike | None = None,
        task: TaskKind | None = None,
        owners_test: ArrayLike | None = None,
    ) -> Dataset:
        """A dataset from arrays in the usual layouts.

        `uint8` images may be N x H x W or channels-last; floats of any width become `float32`; several arrays per
        sample are a dictionary or a tuple. Whole numbers as targets are classes (an N x 1 column becomes a vector),
        floats are values, unless `task` says otherwise; words are classes, numbered in sorted order, and so are
        booleans. `classes` defaults to the largest training label plus one.
        `owners` may be names or numbers, which are numbered in sorted order; `owners_test` is of test samples.
        """
        called = None
        if (words := words_numbered(name, train_y, test_y, classes)) is not None:
            train_y, test_y, called = words
            _refuse_words(name, task)
        y_train, y_test = _both(name, train_y, test_y, task)
        if classes is None or y_train.ndim == 2:
            classes = _outputs(name, y_train, y_test)
        x_train, x_test = as_inputs(f"{name}: train_x", train_x), as_inputs(f"{name}: test_x", test_x)
        if x_train.dtype != x_test.dtype:  # one of them lies in a file, the other in memory
            x_train, x_test = alike(narrow(x_train), narrow(x_test))
        if owners is None:
            if owners_test is not None:
                raise DataError(f"{name}: owners_test without owners; say whose the training samples are, too")
            return cls(name, x_train, y_train, x_test, y_test, classes, label_names=called)
        numbers, names, known = _numbered(f"{name}: owners", owners)
        tested = None if owners_test is None else _placed(f"{name}: owners_test", owners_test, known)
        return cls(name, x_train, y_train, x_test, y_test, classes, numbers, names, tested, label_names=called)

    def meant_as(self, task: TaskKind | None = None, clip: float | None = None) -> Dataset:
        """The same data for another kind of task, and with errors clipped elsewhere; None leaves it as it is."""
        made = self
        if task is None and self.task == "classification" and self.classes > MOST_CLASSES:
            self._refuse_gaps()
        if task is not None and task != self.task:
            if self.label_names is not None:
                _refuse_words(self.name, task)
            train_y, test_y = _both(self.name, self.train_y, self.test_y, task)
            made = replace(made, train_y=train_y, test_y=test_y, classes=_outputs(self.name, train_y, test_y))
        if clip is not None and made.task != "regression":
            raise DataError(
                f"data.clip is where errors of values are cut off, and the targets of {self.name} are classes"
            )
        return made if clip is None else replace(made, clip=clip)

    def _refuse_gaps(self) -> None:
        """Refuse whole numbers that can hardly be labels: prices, or somebody's numbers for classes."""
        different = len(np.unique(self.train_y))
        if self.label_names is not None and 2 * different > len(self.train_y):
            raise DataError(
                f"{self.name}: train_y has {different} different words in {len(self.train_y)} samples; if there are so "
                "many classes, say data.task=classification"
            )
        if self.classes > GAPS * different or 2 * different > len(self.train_y):
            raise DataError(
                f"{self.name}: train_y has labels up to {self.train_y.max()}, {different} different ones in "
                f"{len(self.train_y)} samples; labels count classes from 0. If these are values, say "
                "data.task=regression; if they stand for fewer classes, number those; if there are so many, say "
                "data.task=classification"
            )

    def narrowed(self) -> Dataset:
        """The same with inputs of other floats, which lie in files, as float32 in memory."""
        if self.train_x.dtype.name not in WIDE:
            return self
        return replace(self, train_x=narrow(self.train_x), test_x=narrow(self.test_x))

    @property
    def task(self) -> TaskKind:
        """What is learnt: classes or values."""
        return task_of(self.train_y)

    @cached_property
    def clipped_at(self) -> float | None:
        """Where errors of values are cut off for certificates; None for classes."""
        if self.task == "classification":
            return None
        return self.clip or spread(self.train_y)

    @cached_property
    def strata(self) -> Labels:
        """What partitions by label go by: the classes, or tenths of the values."""
        return strata(self.train_y)

    @property
    def input_shape(self) -> Shape:
        """The shape of one input, C x H x W for images; of several arrays the shape of each."""
        return shape_of(self.train_x)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content (not of the name): equal digests mean equal data."""
        state = hashlib.sha256(f"classes {self.classes}\n".encode())
        for x in (self.train_x, self.train_y, self.test_x, self.test_y):
            # Little-endian bytes, so that the digest does not depend on the machine; wide floats as models get them.
            wide = x.dtype.name in WIDE
            form = (np.dtype(np.float32) if wide else x.dtype).newbyteorder("<")
            state.update(f"{form.str if form.fields is None else form.descr} {x.shape}\n".encode())
            for start in range(0, len(x), ROWS) if wide else (0,):
                little = np.ascontiguousarray(x[start : start + ROWS] if wide else x, dtype=form)
                state.update(little.view(np.uint8).data if form.fields is not None else little.data)
        if self.owners is not None:
            state.update(b"owners\n" + np.ascontiguousarray(self.owners, dtype="<i8").tobytes())
        if self.test_owners is not None:
            state.update(b"test owners\n" + np.ascontiguousarray(self.test_owners, dtype="<i8").tobytes())
        return state.hexdigest()


def _refuse_words(name: str, task: TaskKind | None) -> None:
    if task == "regression":
        raise DataError(f"{name}: train_y holds words; expected numbers for data.task = regression")


def _both(name: str, train_y: ArrayLike, test_y: ArrayLike, task: TaskKind | None) -> tuple[NDArray[Any], NDArray[Any]]:
    return as_targets(f"{name}: train_y", train_y, task), as_targets(f"{name}: test_y", test_y, task)


def _outputs(name: str, train_y: NDArray[Any], test_y: NDArray[Any]) -> int:
    """How many numbers a model answers with: one per class, or the values themselves."""
    if train_y.ndim == 2:
        return int(train_y.shape[1])
    most, tested = int(train_y.max(initial=0)), int(test_y.max(initial=0))
    if len(train_y) and tested > most and train_y.min(initial=0) >= 0:
        raise DataError(
            f"{name}: test_y has label {tested} and train_y none above {most}; expected the same classes in both. If "
            f"they are meant, give their number: classes = {tested + 1}, an array of the file or an argument of "
            "Dataset.from_arrays"
        )
    return most + 1


def _numbered(what: str, given: ArrayLike) -> tuple[Labels, tuple[str, ...] | None, NDArray[Any]]:
    """Owners by number, their names where they were given by name, and what was given for each, in order."""
    names = _names(what, given)
    found, numbers = np.unique(names, return_inverse=True)
    plain = names.dtype.kind != "U" and np.array_equal(found, np.arange(len(found)))
    return numbers.astype(np.int64), None if plain else tuple(map(str, found.tolist())), found


def _placed(what: str, given: ArrayLike, known: NDArray[Any]) -> Labels:
    """The numbers of owners that are known already; -1 for others."""
    names = _names(what, given)
    if (names.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise DataError(
            f"{what} are {describe(names)}; expected names or numbers as the owners of training samples are"
        )
    at = np.minimum(np.searchsorted(known, names), len(known) - 1)
    return np.where(known[at] == names, at, -1).astype(np.int64)


def _names(what: str, given: ArrayLike) -> NDArray[Any]:
    given = as_array(what, given, "ragged; expected a vector of names or whole numbers")
    names = as_text(f"{what} hold", given, "a name, or a whole number,")
    if names.ndim != 1 or names.dtype.kind not in "iuU":
        raise DataError(f"{what} are {describe(names)}; expected a vector of names or whole numbers")
    if names.dtype.kind == "U" and (bare := int((np.char.strip(names) == "").sum())):
        raise DataError(f"{what}: {bare} samples have an empty name; expected a name for every owner")
    return names
