"""Getting real data onto this machine: `get` fetches, `status` says what is there.

Every way ends in the same place: uncompressed files in a scratch folder, verified against the catalogue's
checksums, then moved into place one atomic rename at a time. A fetch that is interrupted, fed wrong bytes or
runs out of disk leaves whatever was there before as it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from sagefl.data.catalogue import CATALOGUE, RealDataset, find, read_raw, ways_to_get
from sagefl.data.datasets import EMBEDDED, unknown
from sagefl.data.errors import DataError
from sagefl.data.places import data_dir
from sagefl.data.ways import WAYS, Say, WayFailed

__all__ = ["Status", "get", "status"]

_ABANDONED = 24 * 3600.0  # seconds


@dataclass(frozen=True)
class Status:
    """Whether a named dataset is on this machine, and where."""

    name: str
    title: str
    where: Path | None
    ways: str  # every way to get it, one per line; empty for what is embedded

    @property
    def present(self) -> bool:
        """All its files are there (they are verified when loaded)."""
        return self.where is not None


def status() -> list[Status]:
    """Every named dataset, the embedded one first. Looks for files without opening them, so it is instant."""
    embedded = Path(str(resources.files("sagefl.data") / "embedded"))
    mini = Status(EMBEDDED, "10,000 + 2,000 images of Fashion-MNIST, shipped with sagefl", embedded, "")
    return [mini, *(Status(spec.name, spec.title, find(spec), ways_to_get(spec)) for spec in CATALOGUE.values())]


def get(name: str, dest: Path | str | None = None, say: Say = lambda line: None) -> Path:
    """Make sure a dataset is on this machine and verified; returns the folder that holds it.

    Without ``dest``, data found anywhere on the search path is used where it lies, and fetched data goes to
    ``$SAGEFL_DATA`` or the user's cache. With ``dest``, a folder used like ``$SAGEFL_DATA``, the files end up in
    ``dest/NAME``. ``say`` is told what happens, a line at a time.
    """
    if name == EMBEDDED:
        return Path(str(resources.files("sagefl.data") / "embedded"))
    if name not in CATALOGUE:
        raise DataError(unknown(name))
    spec, root = CATALOGUE[name], data_dir() if dest is None else Path(dest)
    here = find(spec) if dest is None else find(spec, root)
    if here is not None and _intact(spec, here, say):
        return here
    return _fetch(spec, root, say)


def _intact(spec: RealDataset, folder: Path, say: Say) -> bool:
    try:
        for file in spec.files:
            read_raw(folder, file)
    except DataError as error:
        say(f"{error}; fetching it again")
        return False
    return True


def _fetch(spec: RealDataset, root: Path, say: Say) -> Path:
    target, failures = root / spec.folders[0], []
    with _explain_disk(root, spec):
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root, spec)
        with tempfile.TemporaryDirectory(prefix=f".{spec.name}-", dir=root) as scratch:
            for way in WAYS[spec.name]:
                work = Path(tempfile.mkdtemp(dir=scratch))
                try:
                    for file, raw in way.collect(target, work, say):
                        _write(work / "out" / file, raw)
                    for raw_file in spec.files:
                        read_raw(work / "out", raw_file)
                except (WayFailed, DataError) as error:
                    failures.append(f"  {way.label}: {error}")
                    shutil.rmtree(work)  # before the next way needs the room
                    continue
                _install(spec, work / "out", target)
                return target
    raise DataError(
        "\n".join([f"could not fetch {spec.name}; tried:", *failures, "Ways to get it:", ways_to_get(spec, root)])
    )


def _sweep(root: Path, spec: RealDataset) -> None:
    """Remove what fetches killed long ago left behind; younger scratch folders may be in use."""
    for scratch in root.glob(f".{spec.name}-*"):
        if time.time() - scratch.stat().st_mtime > _ABANDONED:
            shutil.rmtree(scratch, ignore_errors=True)


def _write(path: Path, raw: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _install(spec: RealDataset, source: Path, target: Path) -> None:
    """Move verified files into place; each replaces its predecessor in one step."""
    target.mkdir(exist_ok=True)
    for file in spec.files:
        (source / file.name).replace(target / file.name)


@contextmanager
def _explain_disk(root: Path, spec: RealDataset) -> Iterator[None]:
    # Network failures never get here: the ways turn them into WayFailed.
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {spec.name} under {root}: {error.strerror or error}. Fetching it needs up to "
            f"{3 * spec.size / 1e6:.0f} MB of free space for a moment and {spec.size / 1e6:.0f} MB in the end, in a "
            "folder you may write to; choose another one with the environment variable SAGEFL_DATA"
        ) from error
