"""The shape all data takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

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
        ({"train_x": X.astype(np.float64)}, "train_x is float64 6 x 1 x 2 x 2; expected samples first, of type uint8"),
        ({"train_x": X.astype("U3")}, "train_x is <U3"),
        ({"train_x": Y}, "train_x is int64 6; expected samples first"),
        ({"train_y": np.eye(3, dtype=np.float32)[Y]}, "train_y is float32 and test_y int64; expected both"),
        ({"train_x": X.tolist()}, "list; expected a NumPy array"),
        ({"train_y": Y.astype(np.int32)}, "int32 6; expected an int64 vector, or float32 values"),
        ({"train_y": Y.tolist()}, "list; expected an int64 vector"),
        ({"train_y": Y - 1}, "labels from -1 to 1; expected 0 to 2"),
        ({"train_y": -(Y % 2), "classes": 1}, "train_y has labels from -1 to 0; expected whole numbers from 0"),
        ({"classes": 2}, "labels from 0 to 2; expected 0 to 1"),
        ({"classes": 1}, "has a single class; expected at least two"),
        ({"test_x": X[:0], "test_y": Y[:0]}, "test_x is empty"),
        ({"train_x": X[:0], "train_y": Y[:0]}, "train_x is empty"),
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


def test_a_test_label_beyond_those_of_training_is_no_class_unless_it_is_said_to_be_one() -> None:
    y, tested = np.array([0, 1] * 3), np.array([0, 1, 5, 6, 0, 1])
    told = "d: test_y has label 6 and train_y none above 1; expected the same classes in both.* classes = 7"
    with pytest.raises(DataError, match=told):
        Dataset.from_arrays("d", X, y, X, tested)
    assert Dataset.from_arrays("d", X, y, X, tested, classes=7).classes == 7
    with pytest.raises(DataError, match=told):
        Dataset.from_arrays("d", X, y.astype(float), X, tested.astype(float)).meant_as("classification")


def test_whole_numbers_that_are_hardly_labels_are_asked_about() -> None:
    """Prices in a column of whole numbers would be as many classes, and as many outputs."""
    prices = np.random.default_rng(0).integers(100_000, 900_000, 40)
    x = np.zeros((40, 2))
    told = r"labels up to \d+, 40 different ones in 40 samples; .* If these are values, say data\.task=regression"
    with pytest.raises(DataError, match=told):
        Dataset.from_arrays("d", x, prices, x[:1], prices[:1]).meant_as()
    made = Dataset.from_arrays("d", x, prices, x[:1], prices[:1])
    assert made.meant_as("regression").classes == 1
    assert made.meant_as("classification").classes == prices.max() + 1
    postcodes = np.array([10_115, 80_331] * 20)
    with pytest.raises(DataError, match="labels up to 80331, 2 different ones in 40 samples"):
        Dataset.from_arrays("d", x, postcodes, x, postcodes).meant_as()
    words = np.arange(4000) % 1500  # a vocabulary
    x = np.zeros((4000, 2))
    assert Dataset.from_arrays("d", x, words, x, words).meant_as().classes == 1500


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (None, "train_x is a NoneType; expected an array with samples first"),
        ({"a": {"b": X}}, r"train_x\['a'\] is a dict; expected an array with samples first"),
        (torch.zeros(6, 2, requires_grad=True), "train_x is a Tensor that NumPy cannot read: Can't call numpy"),
        (torch.zeros(6, 2).bfloat16(), "train_x is a Tensor that NumPy cannot read: Got unsupported"),
        (np.zeros(6), r"train_x is float32 6; expected samples first, and an axis .* reshape\(-1, 1\)"),
    ],
)
def test_inputs_that_are_no_arrays_are_one_sentence(given: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Dataset.from_arrays("d", given, Y, X, Y)


def test_names_may_come_as_objects_as_a_column_of_a_table_does() -> None:
    names: Any = np.array(["ada", "bob", "ada", "bob", "ada", "ada"], object)
    assert Dataset.from_arrays("d", X, Y, X, Y, owners=names).owner_names == ("ada", "bob")
    for odd, complaint in ((None, "owners hold None for sample 3; expected a name"), (2.5, "owners hold 2.5 for")):
        names[3] = odd
        with pytest.raises(DataError, match=complaint):
            Dataset.from_arrays("d", X, Y, X, Y, owners=names)
    with pytest.raises(DataError, match="owners hold bytes that are no UTF-8"):
        Dataset.from_arrays("d", X, Y, X, Y, owners=np.array([b"a", b"\xff"] * 3))


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        ([[1, 2], [3]], Y[:2], "train_x is ragged: its samples differ in length; .*pad them to one length"),
        (np.array(["a", "b"]), Y[:2], "train_x is <U1 2; expected numbers"),
        (
            np.array([[1.0, 2.0], [3.0, None]], object),
            Y[:2],
            "train_x holds Python objects, first NoneType None in sample 1; .*: fill in what is missing",
        ),
        (
            np.array(["red", "blue"], object),
            Y[:2],
            "train_x holds Python objects, first str 'red' in sample 0; expected numbers .*: turn words into numbers",
        ),
        (np.array([1, 2.5], object), Y[:2], "train_x is an array of Python objects; .*astype.float."),
        (np.array([np.ones(2), np.ones(3)], object), Y[:2], "train_x is ragged: its samples differ in length; .*pad"),
        ({"ids": X, "mask": X[:5]}, Y, "train_x have different numbers of samples .ids: 6, mask: 5.; expected one row"),
        ({"ids": X, "words": np.array(["a"] * 6)}, Y, r"train_x\['words'\] is <U1 6; expected numbers"),
        (
            X,
            np.array([1 + 2j] * 6),
            "train_y is complex128 6; expected words or whole numbers from 0 .classes., or floats",
        ),
        (X, np.array(["a"] * 6), "train_y has a single class; expected at least two"),
        (X, np.array([["a", "b"]] * 6), "train_y is <U1 6 x 2; expected one word for every sample"),
        (
            X,
            np.array(["a", "b", "c", "a", "b", None], object),
            "train_y holds None for sample 5; expected a word for every",
        ),
        (X, np.array([0, 1, 2] * 2, object), "train_y holds 0 for sample 0; expected a word for every sample"),
        (X, np.array(["a", " "] * 3), "train_y: 3 samples have an empty label"),
        (X, np.array([b"a", b"\xff"] * 3), "train_y holds bytes that are no UTF-8"),
        (X, np.zeros((6, 2), bool), "train_y is bool 6 x 2; expected a vector of integer labels"),
        (X, np.zeros(6, bool), "train_y has a single class"),
        (X, [[1.0], [2.0, 3.0]], "train_y is ragged"),
        (X, np.array([0.5, np.nan] * 3), "train_y holds NaN or infinity, first in sample 1"),
        (X, np.eye(3)[Y].astype(int), "train_y is int64 6 x 3"),
        (np.float32(3), Y, "train_x is a float32; expected an array with samples first"),
    ],
)
def test_what_cannot_be_converted_is_refused(x: Any, y: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Dataset.from_arrays("d", x, y, x, y)


# Inputs of any kind, targets of either ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept", "shape"),
    [
        (np.zeros((6, 7), np.int32), "int32", (7,)),  # tokens
        (np.zeros((6, 7), np.uint16), "int32", (7,)),
        (np.zeros((6, 7), np.uint8), "uint8", (7,)),  # bytes of text are no image
        (np.zeros((6, 5, 3)), "float32", (5, 3)),  # a sequence of floats stays one
        (np.zeros((6, 2), bool), "bool", (2,)),
    ],
)
def test_tokens_sequences_and_tables_keep_their_shape(given: Any, kept: str, shape: tuple[int, ...]) -> None:
    data = Dataset.from_arrays("d", given, Y, given, Y)
    assert data.train_x.dtype.name == kept
    assert data.input_shape == shape


def test_several_arrays_per_sample_are_told_apart_by_name_or_by_place() -> None:
    ids, mask = np.arange(24).reshape(6, 4), np.ones((6, 4), bool)
    named = Dataset.from_arrays("d", {"ids": ids, "mask": mask}, Y, {"ids": ids, "mask": mask}, Y)
    assert named.input_shape == {"ids": (4,), "mask": (4,)}
    assert np.array_equal(named.train_x[[2, 5]]["ids"], ids[[2, 5]])
    placed = Dataset.from_arrays("d", (ids, mask), Y, (ids, mask), Y)
    assert placed.input_shape == ((4,), (4,))
    other = Dataset.from_arrays("d", {"ids": ids + 1, "mask": mask}, Y, {"ids": ids, "mask": mask}, Y)
    assert len({named.digest, placed.digest, other.digest}) == 3


def test_floats_as_targets_are_values_and_a_task_can_say_otherwise() -> None:
    x = np.zeros((6, 2))
    values = Dataset.from_arrays("d", x, Y + 0.5, x, Y + 0.5)
    assert (values.task, values.classes, values.train_y.shape) == ("regression", 1, (6, 1))
    assert values.clipped_at == pytest.approx(2 * np.mean(np.abs(Y - 1)))
    labels = Dataset.from_arrays("d", x, Y, x, Y)
    assert (labels.task, labels.clipped_at) == ("classification", None)
    assert labels.meant_as("regression").train_y.tolist() == [[float(y)] for y in Y]
    assert labels.meant_as("regression", 3.0).clipped_at == 3.0
    assert Dataset.from_arrays("d", x, Y.astype(float), x, Y.astype(float)).meant_as("classification").classes == 3
    with pytest.raises(DataError, match=r"train_y has target 0\.5 in sample 0; expected whole numbers"):
        values.meant_as("classification")
    with pytest.raises(DataError, match=r"data\.clip is where errors of values are cut off"):
        labels.meant_as(clip=1.0)


def test_values_are_dealt_by_tenths() -> None:
    x = np.zeros((100, 1))
    data = Dataset.from_arrays("d", x, np.arange(100.0)[::-1].copy(), x, np.arange(100.0))
    assert np.bincount(data.strata).tolist() == [10] * 10
    assert data.strata[0] == 9


# Taken as they are meant ----------------------------------------------------------------------------------------------

KINDS = np.array(["cat", "ant", "bee", "cat", "ant", "bee"])


@pytest.mark.parametrize("given", [KINDS, KINDS.astype(object), KINDS.astype("S"), KINDS[:, None], KINDS.tolist()])
def test_words_are_classes_in_sorted_order_and_their_names_are_kept(given: Any) -> None:
    data = Dataset.from_arrays("d", X, given, X[:3], given[:3])
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([2, 0, 1, 2, 0, 1], [2, 0, 1])
    assert (data.classes, data.label_names) == (3, ("ant", "bee", "cat"))
    assert data.digest == Dataset.from_arrays("d", X, [2, 0, 1, 2, 0, 1], X[:3], [2, 0, 1]).digest
    assert make().label_names is None


def test_words_of_one_split_only() -> None:
    told = "d: test_y has label 'dog' and train_y has not; expected the same classes in both.* classes = 4"
    with pytest.raises(DataError, match=told):
        Dataset.from_arrays("d", X, KINDS, X, np.where(KINDS == "bee", "dog", KINDS))
    meant = Dataset.from_arrays("d", X, KINDS, X, np.where(KINDS == "bee", "dog", KINDS), classes=4)
    assert meant.label_names == ("ant", "bee", "cat", "dog")
    assert Dataset.from_arrays("d", X, KINDS, X[:1], ["bee"]).test_y.tolist() == [1]
    with pytest.raises(
        DataError, match="train_y is <U3 6 and test_y int64 6; expected words in both, or numbers in both"
    ):
        Dataset.from_arrays("d", X, KINDS, X, Y)


def test_words_are_no_values_and_many_of_them_are_asked_about() -> None:
    with pytest.raises(DataError, match=r"train_y holds words; expected numbers for data\.task = regression"):
        Dataset.from_arrays("d", X, KINDS, X, KINDS).meant_as("regression")
    with pytest.raises(DataError, match="train_y holds words; expected numbers"):
        Dataset.from_arrays("d", X, KINDS, X, KINDS, task="regression")
    names = [f"w{n}" for n in range(1500)]
    many = Dataset.from_arrays("d", np.zeros((1500, 2)), names, np.zeros((1, 2)), names[:1])
    with pytest.raises(DataError, match=r"1500 different words in 1500 samples; .* say data\.task=classification$"):
        many.meant_as()
    assert many.meant_as("classification").classes == 1500


def test_booleans_are_two_classes() -> None:
    data = Dataset.from_arrays("d", X, Y > 0, X, (Y > 0)[:, None])
    assert (data.task, data.classes, data.train_y.tolist()) == ("classification", 2, [0, 1, 1, 0, 1, 1])
    assert data.train_y.dtype == data.test_y.dtype == np.int64
    assert data.digest == Dataset.from_arrays("d", X, (Y > 0).astype(int), X, (Y > 0).astype(int)).digest


def test_test_inputs_may_name_their_arrays_in_another_order() -> None:
    ids, mask = np.arange(24).reshape(6, 4), np.ones((6, 2), np.float32)
    train, turned = {"ids": ids, "mask": mask}, {"mask": mask[:3], "ids": ids[:3]}
    data = Dataset.from_arrays("d", train, Y, turned, Y[:3])
    assert data.test_x.dtype == data.train_x.dtype
    assert np.array_equal(data.test_x["ids"], ids[:3])
    assert data.digest == Dataset.from_arrays("d", train, Y, {"ids": ids[:3], "mask": mask[:3]}, Y[:3]).digest
    for other in ({"ids": ids, "masks": mask}, {"ids": ids}, {"mask": mask[:, :1], "ids": ids}):
        with pytest.raises(DataError, match="expected the same type and the same shape per sample"):
            Dataset.from_arrays("d", train, Y, other, Y)


@pytest.mark.parametrize("turned", [False, True])
def test_tokens_of_two_widths_are_as_wide_as_the_wider(turned: bool) -> None:
    narrow, wide = np.arange(24, dtype=np.int32).reshape(6, 4), np.arange(24, dtype=np.int64).reshape(6, 4)
    x, tested = (wide, narrow) if turned else (narrow, wide)
    data = Dataset.from_arrays("d", x, Y, tested, Y)
    assert data.train_x.dtype == data.test_x.dtype == np.int64
    assert data.digest == Dataset.from_arrays("d", wide, Y, wide, Y).digest
    several = Dataset.from_arrays("d", {"a": x, "b": narrow}, Y, {"b": narrow, "a": tested}, Y)
    assert [several.train_x[k].dtype.name for k in ("a", "b")] == ["int64", "int32"]
    for odd in (tested.astype(np.float32), tested.astype(np.uint8), tested % 2 == 0):
        with pytest.raises(DataError, match="expected the same type"):
            Dataset.from_arrays("d", x, Y, odd, Y)
