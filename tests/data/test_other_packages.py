"""A dataset is one entry: a package that names one in `sagefl.datasets` needs nothing else, and cannot break others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[[str, str], dict[str, str]]

PLUGIN = '''
import hashlib
import numpy as np
from sagefl.data import Dataset, FileDataset, RawFile

BYTES = bytes(range(200))

def decode(name, raw):
    x = np.frombuffer(raw["x.bin"], np.uint8).reshape(2, 1, 10, 10).copy()
    return Dataset(name, x, np.array([0, 1]), x, np.array([1, 0]), classes=2)

dots = FileDataset(
    name="dots",
    title="Dots",
    files=(RawFile("x.bin", 200, hashlib.sha256(BYTES).hexdigest()),),
    folders=("dots",),
    decode=decode,
    hints=("ask the author and put x.bin into {folder}",),
)

def noise():
    """Random numbers in two classes."""
    x = np.random.default_rng(0).random((60, 5))
    return x, np.arange(60) % 2, x[:10], np.arange(10) % 2

number = 7
'''
POINTS = "[sagefl.datasets]\ndots = plugin:dots\nnoise = plugin:noise\n"


def run(code: str, environment: dict[str, str]) -> str:
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_a_package_adds_a_dataset_by_one_entry(installed: Install, empty_machine: Path) -> None:
    environment = installed(PLUGIN, POINTS)
    listed = run("from sagefl.cli import app; app(['data', 'list'])", environment).splitlines()
    assert [line.split()[0] for line in listed[:-1]] == [
        "fmnist-mini", "sotu-mini", "fmnist", "mnist", "cifar10", "sotu", "dots", "noise",
    ]  # fmt: skip
    assert listed[6].split() == ["dots", "absent"]
    assert listed[7].split()[1:] == ["present:", str(empty_machine.parent / "site" / "plugin.py")]
    said = run(
        "from sagefl.data import DataError, get, load\n"
        "from sagefl.runs.sections import DataConfig\n"
        "print(load('noise').train_x.shape, load('noise').name, get('noise').name)\n"
        "print(DataConfig.model_fields['dataset'].description)\n"
        "for name in ('dots', 'dotz'):\n"
        "    try: load(name)\n"
        "    except DataError as error: print(error)\n",
        environment,
    )
    assert "(60, 5) noise plugin.py" in said
    assert "cifar10, sotu, dots, noise, FILE.npz" in said
    assert f"ask the author and put x.bin into {empty_machine / 'dots'}" in said
    assert "unknown dataset 'dotz', did you mean 'dots'?" in said
    assert "known: fmnist-mini, sotu-mini, fmnist, mnist, cifar10, sotu, dots" in said
    (empty_machine / "dots").mkdir(parents=True)
    (empty_machine / "dots" / "x.bin").write_bytes(bytes(range(200)))
    assert run("from sagefl.data import load; print(load('dots').train_x[1, 0, 9, 9])", environment) == "199\n"


def test_a_run_uses_it_by_its_name(installed: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = "data.partition=iid,model.name=mlp,topology.kind=ring"
    flags = [word for setting in settings.split(",") for word in ("--set", setting)]
    arguments = ["run", "--dataset", "noise", "--clients", "3", "--rounds", "1", "--method", "rg", "--out", "r", *flags]
    run(f"from sagefl.cli import app; app({arguments!r})", installed(PLUGIN, POINTS))
    assert 'dataset = "noise"' in Path("r/run.toml").read_text()


def test_a_broken_entry_is_left_out_with_a_warning(installed: Install) -> None:
    points = "[sagefl.datasets]\nabsent = plugin:nothing\nnumber = plugin:number\nmnist = plugin:noise\n"
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from sagefl.data import datasets\n"
        "    print(*datasets(), datasets()['mnist'].title)\n"
        "print(*sorted(str(w.message) for w in caught), sep='\\n')\n"
    )
    kept, *left_out = run(code, installed(PLUGIN, points)).splitlines()
    assert kept == "fmnist-mini sotu-mini fmnist mnist cifar10 sotu MNIST (LeCun et al. 1998)"
    assert left_out[0].startswith("dataset 'absent' of plugin:nothing is left out: module 'plugin' has no attribute")
    assert left_out[1].startswith("dataset 'mnist' of plugin:noise is left out: the name is taken")
    assert left_out[2].startswith("dataset 'number' of plugin:number is left out: 7 is neither")
