"""`load`: every dataset by one string, whatever it comes from."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

import numpy as np

from sagefl.data import catalogue
from sagefl.data.dataset import Dataset
from sagefl.data.errors import DataError

__all__ = ["EMBEDDED", "NAMES", "load"]

EMBEDDED = "fmnist-mini"
NAMES = (EMBEDDED, *catalogue.CATALOGUE)

_MINI_DIGEST = "b3fa62eba020cd60a399fb4817407641e6f79044c703028ef76a07ea41cc397c"


def load(name: str = EMBEDDED, root: Path | str | None = None) -> Dataset:
    """The dataset called ``name``, verified.

    ``name`` is ``fmnist-mini`` (embedded), ``fmnist``, ``mnist``, ``cifar10``, a path to an ``.npz`` file,
    ``module:function`` or ``hf:NAME``. Real files are searched in ``root`` if given, otherwise in
    ``$SAGEFL_DATA``, the user's cache and Debian's dataset packages.
    """
    if name == EMBEDDED:
        return _embedded()
    if name in catalogue.CATALOGUE:
        return catalogue.read(catalogue.CATALOGUE[name], None if root is None else Path(root))
    if name.endswith(".npz"):
        from sagefl.data.user import from_npz

        return from_npz(Path(name).expanduser(), name)
    if name.startswith("hf:"):
        from sagefl.data.hugging import from_hub

        return from_hub(name)
    if ":" in name:
        from sagefl.data.user import from_callable

        return from_callable(name)
    raise DataError(unknown(name))


def unknown(name: str) -> str:
    """What to say about a name that is none: the nearest one, and all choices."""
    close = difflib.get_close_matches(name.lower(), NAMES, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    if Path(name).is_file():
        hint = "; of files, only .npz is read (never pickles): save your arrays with numpy.savez_compressed."
    return (
        f"unknown dataset {name!r}{hint} Choices: {', '.join(NAMES)}, a path to an .npz file, "
        "module:function (your Python function), hf:NAME (Hugging Face)"
    )


def _embedded() -> Dataset:
    source = resources.files("sagefl.data") / "embedded" / "fmnist-mini.npz"
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as part:
        mini = Dataset(
            EMBEDDED,
            train_x=part["train_x"],
            train_y=part["train_y"].astype(np.int64),
            test_x=part["test_x"],
            test_y=part["test_y"].astype(np.int64),
            classes=10,
        )
    if mini.digest != _MINI_DIGEST:
        raise DataError(
            f"the embedded {EMBEDDED} has digest {mini.digest}; expected {_MINI_DIGEST}. "
            "The installation is damaged: reinstall sagefl"
        )
    return mini
