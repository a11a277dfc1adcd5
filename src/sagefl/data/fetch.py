"""Getting datasets onto this machine.

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
from pathlib import Path

from .catalogue import datasets
from .errors import DataError
from .files import FileDataset, Say, WayFailed, read_raw
from .loading import unknown
from .places import data_dir
from .ways import ELSEWHERE

_ABANDONED = 24 * 3600.0  # seconds


def get(name: str, dest: Path | str | None = None, say: Say = lambda line: None) -> Path:
    """Make sure a dataset is on this machine and verified; returns the folder that holds it.

    Without `dest`, data found anywhere on the search path stays where it is, and fetched data goes to
    `$SAGEFL_DATA` or the user's cache. With `dest`, a folder used like `$SAGEFL_DATA`, the files end up in
    `dest/NAME`. `say` gets a line of progress at a time.
    """
    if name not in datasets():
        raise DataError(unknown(name))
    spec, root = datasets()[name], None if dest is None else Path(dest)
    if not isinstance(spec, FileDataset):
        return spec.where
    here = spec.find(root)
    if here is not None and _intact(spec, here, say):
        return here
    return _fetch(spec, root or data_dir(), say)


def _intact(spec: FileDataset, folder: Path, say: Say) -> bool:
    try:
        for file in spec.files:
            read_raw(folder, file)
    except DataError as error:
        say(f"{error}; fetching it again")
        return False
    return True


def _fetch(spec: FileDataset, root: Path, say: Say) -> Path:
    target, failures = root / spec.folders[0], []
    with _explain_disk(root, spec):
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root, spec)
        with tempfile.TemporaryDirectory(prefix=f".{spec.name}-", dir=root) as scratch:
            for way in (ELSEWHERE, *spec.ways):
                work = Path(tempfile.mkdtemp(dir=scratch))
                try:
                    for file, raw in way.collect(spec, target, work, say):
                        _write(work / "out" / file, raw)
                    for raw_file in spec.files:
                        read_raw(work / "out", raw_file)
                except (WayFailed, DataError) as error:
                    failures.append(f"  {way.label}: {error}")
                    shutil.rmtree(work)  # the next way needs the space
                    continue
                _install(spec, work / "out", target)
                return target
    raise DataError(
        "\n".join([f"could not fetch {spec.name}; tried:", *failures, "Ways to get it:", spec.ways_to_get(root)])
    )


def _sweep(root: Path, spec: FileDataset) -> None:
    """Remove scratch folders of fetches that were killed long ago; younger ones may be in use."""
    for scratch in root.glob(f".{spec.name}-*"):
        if time.time() - scratch.stat().st_mtime > _ABANDONED:
            shutil.rmtree(scratch, ignore_errors=True)


def _write(path: Path, raw: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _install(spec: FileDataset, source: Path, target: Path) -> None:
    """Move verified files into place; each replaces its predecessor in one step."""
    target.mkdir(exist_ok=True)
    for file in spec.files:
        (source / file.name).replace(target / file.name)


@contextmanager
def _explain_disk(root: Path, spec: FileDataset) -> Iterator[None]:
    # Network failures never get here: the ways turn them into WayFailed.
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {spec.name} under {root}: {error.strerror or error}. Fetching it needs up to "
            f"{3 * spec.size / 1e6:.0f} MB of free space for a moment and {spec.size / 1e6:.0f} MB in the end, in a "
            "folder you may write to; choose another one with the environment variable SAGEFL_DATA"
        ) from error
