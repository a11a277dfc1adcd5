"""`load`: every dataset by one string, wherever it comes from."""

from __future__ import annotations

from pathlib import Path

from ..selection.registry import nearest
from .catalogue import EMBEDDED, datasets
from .dataset import Dataset
from .errors import DataError
from .hugging import from_hub
from .tables import from_table, is_table
from .user import from_folder, from_npz, from_reference


def load(name: str = EMBEDDED, root: Path | str | None = None) -> Dataset:
    """The dataset called `name`, verified.

    `name` is one that `sagefl data list` prints (`fmnist-mini`, which is embedded, `fmnist`, `mnist`, `cifar10`, and
    what installed packages add), a path to an `.npz` file, `module:function` or `hf:NAME`. Files are searched in `root`
    if given, otherwise in `$SAGEFL_DATA`, the user's cache and Debian's dataset packages.
    """
    if name in datasets():
        return datasets()[name].load(None if root is None else Path(root))
    if name.endswith(".npz"):
        return from_npz(Path(name).expanduser(), name)
    if is_table(name):
        return from_table(name)
    if Path(name).expanduser().is_dir():
        return from_folder(Path(name).expanduser(), name)
    if name.startswith("hf:"):
        return from_hub(name)
    if ":" in name:
        return from_reference(name)
    raise DataError(unknown(name))


def unknown(name: str) -> str:
    """The error for a name that does not exist: the nearest one, and all choices."""
    known = datasets()
    hint = nearest(name.lower(), known)
    if Path(name).is_file():
        hint = (
            "; of files, .npz, .csv and .parquet are read (never pickles): save your arrays with numpy.savez_compressed"
        )
    return (
        f"unknown dataset {name!r}{hint}; known: {', '.join(known)}, a path to an .npz, .csv or .parquet file, a "
        "folder of .npy files, module:function (your Python function), hf:NAME (Hugging Face)"
    )
