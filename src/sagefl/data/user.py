"""A user's own data: four arrays in an `.npz` file or a folder of `.npy` files, or a Python function that returns them.

A fifth array may name the owner of each training sample, a sixth that of each test sample; `x_train.NAME` is one of
several inputs of a sample.

Files are never unpickled. A function is the user's own code and runs with the user's rights, like any import.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reading import note_returned, watched
from ..references import is_reference, load
from .dataset import Dataset
from .errors import DataError

_SPELLINGS = (("x_train", "y_train", "x_test", "y_test"), ("train_x", "train_y", "test_x", "test_y"))
SIZES = (4, 5, 6)  # arrays that a function may return
_EXPECTED = "expected the arrays x_train, y_train, x_test, y_test (or train_x, train_y, test_x, test_y)"


def from_npz(path: Path, name: str | None = None) -> Dataset:
    """The dataset in an `.npz` file of the four arrays and, optionally, `classes`, `owners` and `owners_test`."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; {_EXPECTED} saved with numpy.savez_compressed")
    return _from_named(path, name, _read_npz(path))


def from_folder(path: Path, name: str | None = None) -> Dataset:
    """The dataset in a folder of `.npy` files named as the arrays of an `.npz` file are; they are mapped, not read."""
    arrays: dict[str, Any] = {}
    for file in sorted(path.glob("*.npy")):
        try:
            arrays[file.stem] = np.load(file, mmap_mode="c", allow_pickle=False)  # written to by nobody, yet writable
        except (OSError, EOFError, ValueError) as error:
            raise DataError(f"{file} cannot be read as a plain array: {error}; pickled objects are refused") from error
    return _from_named(path, name, arrays)


def _from_named(path: Path, name: str | None, arrays: dict[str, Any]) -> Dataset:
    several = _gathered(arrays)
    keys = next((keys for keys in _SPELLINGS if several.keys() >= set(keys)), None)
    if keys is None:
        raise DataError(f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; {_EXPECTED}")
    classes = arrays.get("classes")
    if classes is not None and (classes.size != 1 or classes.dtype.kind not in "iu"):
        raise DataError(f"{path}: classes is {classes.dtype} of shape {classes.shape}; expected one integer")
    train_x, train_y, test_x, test_y = (several[key] for key in keys)
    number = None if classes is None else int(classes.item())
    owners = {key: arrays.get(key) for key in ("owners", "owners_test")}
    return Dataset.from_arrays(name or str(path), train_x, train_y, test_x, test_y, number, **owners)


def _gathered(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays by name; those called `x_train.NAME` together, as several arrays per sample."""
    found: dict[str, Any] = {}
    for key, array in arrays.items():
        whole, dot, part = key.partition(".")
        if dot:
            found.setdefault(whole, {})[part] = array
        else:
            found[key] = array
    return found


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    wanted = {*_SPELLINGS[0], *_SPELLINGS[1], "classes", "owners", "owners_test"}
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{path} holds a single array; {_EXPECTED} saved with numpy.savez_compressed")
            # Other members are listed but not read: they may be large, or objects.
            return {key: archive[key] if key.partition(".")[0] in wanted else np.empty(0) for key in archive.files}
    except DataError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read as plain arrays: {error}. {_EXPECTED} of numbers; pickled objects are refused"
        ) from error


def from_reference(reference: str) -> Dataset:
    """The dataset that `module:function` or `file.py:function` returns; modules in the current folder are found."""
    before = list(sys.path)
    try:
        with watched(f"data {reference}"):  # a module may read its files when it is imported
            function = _resolve(reference)
        return _call(function, reference)
    finally:
        sys.path[:] = before


@dataclass(frozen=True)
class FunctionDataset:
    """A dataset that a function returns; there is nothing to fetch."""

    name: str
    title: str
    function: Callable[[], Any]
    where: Path  # the file that holds the function, or what it reads

    def find(self, root: Path | None = None) -> Path:
        """The file or folder."""
        return self.where

    def load(self, root: Path | None = None) -> Dataset:
        """What the function returns."""
        return _call(self.function, self.name)


def _call(function: Callable[[], Any], name: str) -> Dataset:
    reader = f"data {name}"
    try:
        with watched(reader):
            result = function()
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name}() raised {type(error).__name__}: {error}") from error
    made = _made(name, result)
    note_returned(reader, made.digest)
    return made


def _made(name: str, result: Any) -> Dataset:
    if isinstance(result, Dataset):
        return result
    if isinstance(result, tuple | list) and len(result) in SIZES:
        return from_tuple(name, result)
    got = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
    raise DataError(
        f"{name}() returned {got}; expected a sagefl.data.Dataset or the four arrays "
        "(train_x, train_y, test_x, test_y), and as a fifth, if you have them, the owners of the training samples"
    )


def from_tuple(name: str, arrays: Sequence[Any]) -> Dataset:
    """The dataset of the four arrays, a fifth for the owners of training samples, a sixth for those of test samples."""
    train_x, train_y, test_x, test_y, *rest = arrays
    owners = dict(zip(("owners", "owners_test"), rest, strict=False))
    return Dataset.from_arrays(name, train_x, train_y, test_x, test_y, **owners)


def _resolve(reference: str) -> Callable[[], Any]:
    if not is_reference(reference):
        raise DataError(f"{reference!r} is not of the form module:function")
    hint = ". Expected a function in a module in the current folder or an installed one"
    target: Any = load("dataset", reference, DataError, hint)
    if not callable(target):
        raise DataError(f"{reference} is a {type(target).__name__}; expected a function that returns the data")
    return target  # type: ignore[no-any-return]
