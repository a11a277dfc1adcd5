"""Real data for the tests that need it, a tiny stand-in for those that must damage it, and an empty machine."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sagefl.data import DataMissing, Dataset, catalogue, load, places
from sagefl.data.files import FileDataset, RawFile


def real(name: str) -> Dataset:
    try:
        return load(name)
    except DataMissing:
        pytest.skip(f"{name} is not on this machine; `sagefl data get {name}` fetches it")


@pytest.fixture(scope="session")
def fmnist() -> Dataset:
    return real("fmnist")


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    return real("mnist")


@pytest.fixture(scope="session")
def cifar10() -> Dataset:
    return real("cifar10")


@pytest.fixture(scope="session")
def mini() -> Dataset:
    return load("fmnist-mini")


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No dataset anywhere, and `$SAGEFL_DATA` set to the folder returned (not yet made)."""
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "no-debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setenv("SAGEFL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


CONTENT = {"x.bin": bytes(range(200)), "y.bin": b"labels" * 5}


@pytest.fixture
def content() -> dict[str, bytes]:
    """The files of `tiny`, as they should be."""
    return dict(CONTENT)


@pytest.fixture
def tiny(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> FileDataset:
    """A dataset of two small files, known to the catalogue as `tiny`."""

    def decode(name: str, raw: dict[str, bytes]) -> Dataset:
        x = np.frombuffer(raw["x.bin"], np.uint8).reshape(2, 1, 10, 10).copy()
        return Dataset(name, x, np.array([0, 1]), x, np.array([1, 0]), classes=2)

    spec = FileDataset(
        name="tiny",
        title="Tiny",
        files=tuple(RawFile(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in CONTENT.items()),
        folders=("tiny", "tiny-elsewhere"),
        decode=decode,
        hints=("sagefl data get tiny", "put x.bin and y.bin into {folder}"),
    )
    monkeypatch.setitem(catalogue.CATALOGUE, "tiny", spec)
    return spec


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """Install a distribution: a module `plugin` and its entry points; returns the environment that sees it."""

    def install(module: str, points: str) -> dict[str, str]:
        site = tmp_path / "site"
        metadata = site / "plugin-1.0.dist-info"
        metadata.mkdir(parents=True)
        (site / "plugin.py").write_text(module)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(points)
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    return install


@pytest.fixture
def put() -> Callable[..., Path]:
    """Write files into a folder, gzipped if asked."""

    def write(folder: Path, content: dict[str, bytes] | None = None, *, zipped: bool = False) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, raw in (CONTENT if content is None else content).items():
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
            else:
                (folder / name).write_bytes(raw)
        return folder

    return write
