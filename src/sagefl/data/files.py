"""Datasets kept in files: where the files may be, whether they are intact, and how they become arrays.

`FileDataset` finds files without opening them, and verifies them when it opens them. Nothing here downloads
(that is `fetch`), and nothing is ever unpickled.

Checksums are of the *uncompressed content*, because archives of the same files differ (Debian repacked
Fashion-MNIST without file names in the gzip headers). A matching checksum implies every other fact one could
check, such as class counts and mean brightness; the tests state those facts next to the checksums.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .dataset import Dataset
from .errors import DataError, DataMissing
from .places import data_dir, roots

Say = Callable[[str], object]
Contents = Iterator[tuple[str, bytes]]  # one file at a time, to save memory


class WayFailed(Exception):  # noqa: N818 (it is an outcome, caught one call up)
    """This way did not work; the next may."""


@dataclass(frozen=True)
class Way:
    """One way to get a dataset's files; see `ways` for those there are.

    `collect(spec, target, work, say)` yields (file name, content) pairs or raises `WayFailed`. `target` is the folder
    the files will end up in, `work` an empty folder to use freely, and `say` takes lines to show the user.
    """

    label: str
    collect: Callable[[FileDataset, Path, Path, Say], Contents]


@dataclass(frozen=True)
class RawFile:
    """One uncompressed file: its size in bytes and its checksum."""

    name: str
    size: int
    checksum: str
    algorithm: str = "sha256"


@dataclass(frozen=True)
class FileDataset:
    """A public dataset: its files, the folders they may be in, how to decode them and every way to get them."""

    name: str
    title: str
    files: tuple[RawFile, ...]
    folders: tuple[str, ...]  # below a data root; fetched files go into the first
    decode: Callable[[str, dict[str, bytes]], Dataset]  # from the dataset's name and its files' contents
    ways: tuple[Way, ...] = ()  # what `sagefl data get` tries, in this order
    hints: tuple[str, ...] = ()  # the same and more for users to read; {folder} is filled in
    pickled: str = ""  # a folder in which others keep this dataset as pickles

    @property
    def size(self) -> int:
        """Bytes on disk, uncompressed."""
        return sum(file.size for file in self.files)

    def find(self, root: Path | None = None) -> Path | None:
        """The first folder that holds all files (plain or gzipped), or None. Opens nothing."""
        return next(iter(self.find_all(root)), None)

    def find_all(self, root: Path | None = None) -> list[Path]:
        """All folders that hold every file, in search order."""
        return [folder for folder in self._folders(root) if not self._lacking(folder)]

    def load(self, root: Path | None = None) -> Dataset:
        """Find, verify and decode it; `DataMissing` if it is not there, `DataError` if it is damaged."""
        folder = self.find(root)
        if folder is None:
            raise DataMissing(self._missing(root))
        return self.decode(self.name, {file.name: read_raw(folder, file) for file in self.files})

    def ways_to_get(self, root: Path | None = None) -> str:
        """Every way to get it, one per line, ready to print."""
        folder = (root or data_dir()) / self.folders[0]
        return "\n".join(f"  - {hint.format(folder=folder)}" for hint in self.hints)

    def _folders(self, root: Path | None) -> list[Path]:
        return [base / folder for base in ((root,) if root else roots()) for folder in self.folders]

    def _lacking(self, folder: Path) -> list[str]:
        return [file.name for file in self.files if _locate(folder, file) is None]

    def _missing(self, root: Path | None) -> str:
        bases = (root,) if root else roots()
        lines = [f"{self.title} is not on this machine. Looked for the folders {', '.join(self.folders)} in:"]
        lines += [f"  {base}" for base in bases]
        for folder in self._folders(root):
            lacking = self._lacking(folder)
            if len(lacking) < len(self.files):
                lines.append(f"{folder} is incomplete: it lacks {', '.join(lacking)}.")
        if self.pickled and any((base / self.pickled).is_dir() for base in bases):
            lines.append(f"There is a folder {self.pickled}, but its files are pickles, which sagefl never opens.")
        lines += [f"Ways to get {self.name} (about {self.size / 1e6:.0f} MB); any one will do:", self.ways_to_get(root)]
        return "\n".join([*lines, "Or use the embedded subset of Fashion-MNIST, fmnist-mini."])


def read_raw(folder: Path, file: RawFile) -> bytes:
    """The verified, uncompressed content of one file."""
    path = _locate(folder, file)
    if path is None:
        raise DataMissing(f"{folder / file.name} (or {file.name}.gz) does not exist")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(file.size + 1)  # one more than expected, never a whole bomb
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. {_remedy(path)}") from error
    _verify(raw, file, path)
    return raw


def _verify(raw: bytes, file: RawFile, path: Path) -> None:
    if len(raw) != file.size:
        size = f"more than {file.size}" if len(raw) > file.size else str(len(raw))
        raise DataError(f"{path} holds {size} bytes of data; expected {file.size}. {_remedy(path)}")
    checksum = hashlib.new(file.algorithm, raw, usedforsecurity=False).hexdigest()
    if checksum != file.checksum:
        raise DataError(
            f"{path} has the wrong checksum: {file.algorithm} of its content is {checksum}; "
            f"expected {file.checksum}. {_remedy(path)}"
        )


def _remedy(path: Path) -> str:
    return f"It is damaged or not the official file: delete {path.name} and fetch it again with `sagefl data get`"


def _locate(folder: Path, file: RawFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    return next((path for path in candidates if path.is_file()), None)
