"""The shape all data takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sagefl.data import DataError, Dataset

X = np.arange(6 * 4, dtype=np.uint8).reshape(6, 1, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def make(**changes: Any) -> Dataset:
    good: dict[str, Any] = {"name": "d", "train_x": X, "train_y": Y, "test_x": X[:3], "test_y": Y[:3], "classes": 3}
    return Dataset(**(good | changes))


def test_a_good_dataset_tells_its_shape_but_does_not_print_its_pixels() -> None:
    data = make()
    assert data.input_shape == (1, 2, 2)
    assert repr(data) == "Dataset(name='d', classes=3)"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train_x": X[:5]}, "6 labels for 5 inputs"),
        ({"train_x": X[:, 0]}, "train_x is uint8 6 x 2 x 2; expected uint8 images"),
        ({"train_x": X.astype(np.float64)}, "float64"),
        ({"train_x": X.tolist()}, "list; expected a NumPy array"),
        ({"train_y": Y.astype(np.int32)}, "int32 6; expected an int64 vector"),
        ({"train_y": Y.tolist()}, "list; expected an int64 vector"),
        ({"train_y": Y - 1}, "labels from -1 to 1; expected 0 to 2"),
        ({"classes": 2}, "labels from 0 to 2; expected 0 to 1"),
        ({"classes": 1}, "at least two"),
        ({"test_x": X[:0], "test_y": Y[:0]}, "test_x is empty"),
        ({"test_x": X[:3, :, :1]}, "the same shape per sample"),
        ({"test_x": X[:3].astype(np.float32)}, "the same type"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        make(**changes)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_numbers_are_refused_with_their_place(bad: float) -> None:
    x = X.astype(np.float32)
    x[4, 0, 1, 1] = bad
    with pytest.raises(DataError, match=r"train_x holds NaN or infinity, first in sample 4"):
        make(train_x=x, test_x=x[:3])


def test_the_digest_is_of_all_the_content_and_of_nothing_else() -> None:
    digest = make().digest
    assert digest == make(name="renamed", train_x=X.copy(order="F")).digest
    for key, value in (("train_x", X), ("train_y", Y), ("test_x", X[:3]), ("test_y", Y[:3])):
        assert make(**{key: value[::-1].copy()}).digest != digest, key
    assert make(classes=4).digest != digest
    assert make(train_x=X.reshape(6, 1, 4, 1), test_x=X[:3].reshape(3, 1, 4, 1)).digest != digest


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((6, 28, 28), (1, 28, 28)),
        ((6, 3, 32, 32), (3, 32, 32)),
        ((6, 32, 24, 3), (3, 32, 24)),
        ((6, 28, 28, 1), (1, 28, 28)),
        ((6, 3, 32, 3), (3, 32, 3)),  # already channels first: nothing is turned
    ],
)
def test_usual_image_layouts_become_channels_first(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(256, size=given, dtype=np.uint8)
    data = Dataset.from_arrays("d", x, Y, x, Y)
    assert data.input_shape == expected
    assert data.train_x.flags.c_contiguous
    assert sorted(data.train_x[5].ravel()) == sorted(x[5].ravel())


def test_channels_last_keeps_each_pixel_in_its_place() -> None:
    x = np.random.default_rng(0).integers(256, size=(6, 5, 7, 3), dtype=np.uint8)
    data = Dataset.from_arrays("d", x, Y, x, Y)
    assert data.train_x[2, 1, 3, 6] == x[2, 3, 6, 1]


def test_tables_of_floats_and_columns_of_labels_are_welcome() -> None:
    x = np.random.default_rng(0).normal(size=(6, 9))
    data = Dataset.from_arrays("d", x, Y[:, None].astype(np.uint8), x, Y, classes=5)
    assert data.train_x.dtype == np.float32
    assert data.train_y.dtype == np.int64
    assert data.train_y.tolist() == Y.tolist()
    assert data.classes == 5
    assert Dataset.from_arrays("d", x, Y, x, Y).classes == 3


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        (X.astype(np.int64), Y, "train_x is int64 .*expected uint8"),
        (X > 3, Y, "train_x is bool"),
        (X, Y.astype(float), "train_y is float64 6; expected a vector of integer labels"),
        (X, np.eye(3)[Y].astype(int), "train_y is int64 6 x 3"),
        (np.float32(3), Y, "train_x is float32"),
    ],
)
def test_what_cannot_be_converted_is_refused(x: Any, y: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Dataset.from_arrays("d", x, y, x, y)
