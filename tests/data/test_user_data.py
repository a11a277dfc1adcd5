"""A user's own arrays: .npz files and functions, good and bad."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagefl.data import DataError, load

RNG = np.random.default_rng(0)
X = RNG.integers(256, size=(8, 5, 5), dtype=np.uint8)
Y = np.arange(8) % 4
ARRAYS: dict[str, Any] = {"x_train": X, "y_train": Y, "x_test": X[:4], "y_test": Y[:4]}


def saved(folder: Path, **arrays: Any) -> str:
    np.savez_compressed(folder / "mine.npz", **arrays)
    return str(folder / "mine.npz")


def test_npz_in_both_spellings(tmp_path: Path) -> None:
    keras = load(saved(tmp_path, **ARRAYS))
    assert keras.input_shape == (1, 5, 5)
    assert keras.classes == 4
    assert keras.name.endswith("mine.npz")
    ours = load(saved(tmp_path, train_x=X, train_y=Y, test_x=X[:4], test_y=Y[:4], classes=7, extra=np.ones(3)))
    assert ours.classes == 7
    np.testing.assert_array_equal(ours.train_x, keras.train_x)


def test_several_arrays_per_sample_in_an_npz(tmp_path: Path) -> None:
    words, where = np.arange(40, dtype=np.int32).reshape(8, 5), np.ones((8, 2), np.float32)
    labels = np.arange(8) % 2
    parts = {"x_train.words": words, "x_train.where": where, "x_test.words": words[:4], "x_test.where": where[:4]}
    data = load(saved(tmp_path, **parts, y_train=labels, y_test=labels[:4]))
    assert data.input_shape == {"words": (5,), "where": (2,)}
    np.testing.assert_array_equal(data.train_x["words"], words)


def test_labels_in_an_npz_may_be_words(tmp_path: Path) -> None:
    words = np.array(["ant", "bee", "cat", "dog"])[Y]
    data = load(saved(tmp_path, **ARRAYS | {"y_train": words, "y_test": words[:4]}))
    assert data.label_names == ("ant", "bee", "cat", "dog")
    assert data.digest == load(saved(tmp_path, **ARRAYS)).digest


@pytest.mark.parametrize("owners", [[7, 7, 3, 3, 3, 9, 9, 9], list("bbaaaccc")])
def test_whose_the_samples_are_may_come_as_names_or_numbers(tmp_path: Path, owners: list[Any]) -> None:
    data = load(saved(tmp_path, **ARRAYS, owners=np.array(owners)))
    assert data.owners is not None
    assert data.owners.tolist() == [1, 1, 0, 0, 0, 2, 2, 2]
    without = load(saved(tmp_path, **ARRAYS))
    assert without.owners is None
    assert without.digest != data.digest


def test_a_home_relative_path_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    saved(tmp_path, **ARRAYS)
    assert load("~/mine.npz").name == "~/mine.npz"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"x_train": X[:7]}, "8 labels for 7 inputs"),
        ({"y_train": Y - 1}, "labels from -1"),
        ({"x_train": X.astype(np.int32)}, "expected the same type"),
        ({"classes": 3}, "labels from 0 to 3; expected 0 to 2"),
        ({"classes": 3.5}, "classes is float64"),
        ({"owners": np.arange(7)}, "owners are int64 7 for 8 training samples"),
        ({"owners": np.linspace(0, 1, 8)}, "owners are float64 8; expected a vector of names or whole numbers"),
        ({"owners": Y[:, None]}, "owners are int64 8 x 1; expected a vector of names"),
        ({"x_train": np.full((8, 2), np.nan), "x_test": np.ones((4, 2))}, "NaN"),
    ],
)
def test_bad_arrays_in_an_npz(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        load(saved(tmp_path, **(ARRAYS | changes)))


def test_missing_keys_are_told_with_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds images, labels; expected the arrays x_train"):
        load(saved(tmp_path, images=X, labels=Y))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz: no such file"):
        load(str(tmp_path / "none.npz"))


class Bomb:
    """Unpickling this would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("wrapped", [True, False])
def test_nothing_is_ever_unpickled(tmp_path: Path, wrapped: bool) -> None:
    trace, path = tmp_path / "boom", tmp_path / "evil.npz"
    if wrapped:
        np.savez(path, **(ARRAYS | {"x_train": np.array([Bomb(trace)], dtype=object)}))
    else:
        path.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(DataError, match="pickled objects are refused"):
        load(str(path))
    assert not trace.exists()


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:200], lambda raw: b"", lambda raw: raw.replace(b"\x93NUMPY", b"\x93NUMPI")]
)
def test_damaged_archives(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **ARRAYS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="cannot be read as plain arrays"):
        load(str(path))


def test_a_single_array_in_disguise(tmp_path: Path) -> None:
    with (tmp_path / "one.npz").open("wb") as stream:
        np.save(stream, X)
    with pytest.raises(DataError, match="holds a single array"):
        load(str(tmp_path / "one.npz"))


MODULE = """
import numpy as np
from sagefl.data import Dataset

x = np.zeros((6, 4), np.float32)
y = np.arange(6) % 3
not_a_function = 3

def four(): return x, y, x, y
def whole(): return Dataset.from_arrays("whole", x, y, x, y, classes=9)
def three(): return x, y, x
def nothing(): return None
def broken(): raise KeyError("no such table")
def lazy():
    import helper_of_mine_k3
    return helper_of_mine_k3.arrays()
class Maker:
    @staticmethod
    def make(): return x, y, x, y
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, and another that it imports only when called."""
    (tmp_path / "data_of_mine_k3.py").write_text(MODULE)
    (tmp_path / "helper_of_mine_k3.py").write_text("from data_of_mine_k3 import four as arrays")
    (tmp_path / "fails_k3.py").write_text("import no_such_library_k3")
    monkeypatch.chdir(tmp_path)
    for name in ("data_of_mine_k3", "helper_of_mine_k3", "fails_k3"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "data_of_mine_k3"


@pytest.mark.parametrize(
    ("function", "name", "classes"),
    [
        ("four", "data_of_mine_k3:four", 3),
        ("whole", "whole", 9),
        ("lazy", "data_of_mine_k3:lazy", 3),
        ("Maker.make", "data_of_mine_k3:Maker.make", 3),
    ],
)
def test_functions_in_the_current_folder(module: str, function: str, name: str, classes: int) -> None:
    before = list(sys.path)
    data = load(f"{module}:{function}")
    assert (data.name, data.classes, data.input_shape) == (name, classes, (4,))
    assert sys.path == before


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("data_of_mine_k3:three", "returned 3 values; expected a sagefl.data.Dataset or the four arrays"),
        ("data_of_mine_k3:nothing", "returned a NoneType"),
        ("data_of_mine_k3:broken", "raised KeyError: 'no such table'"),
        ("data_of_mine_k3:absent", "has no attribute 'absent'"),
        ("data_of_mine_k3:not_a_function", "is a int; expected a function"),
        ("fails_k3:f", "No module named 'no_such_library_k3'"),
        ("no_such_module_k3:f", "cannot load dataset 'no_such_module_k3:f'"),
        (":f", "not of the form module:function"),
        ("data_of_mine_k3:", "not of the form module:function"),
    ],
)
def test_functions_that_do_not_work(module: str, reference: str, complaint: str) -> None:
    before = list(sys.path)
    with pytest.raises(DataError, match=complaint):
        load(reference)
    assert sys.path == before
