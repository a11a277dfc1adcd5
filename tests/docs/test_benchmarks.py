"""Every benchmark that takes seconds still runs; what it measures is for an idle machine to say."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from doc_pages import ROOT

QUICK = {
    "decision.py": (),
    "importing.py": (),
    "knowing.py": (),
    "memory.py": (),
    "node.py": ("--seconds", "2", "--rounds", "1"),
    "starting.py": ("--quick",),
    "precision.py": ("--quick",),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", QUICK)
def test_a_benchmark_runs(script: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *QUICK[script]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert any(character.isdigit() for character in done.stdout)


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    """The script of the race; beside it lies a package of the same name."""
    spec = spec_from_file_location("peers_script", ROOT / "benchmarks" / "peers.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


def laps(**speeds: float) -> dict[str, list[dict[str, float]]]:
    return {name.replace("_", "-"): [{"speed": speed}] * 3 for name, speed in speeds.items()}


def test_the_race_is_judged_against_the_fastest_loop_at_equal_precision(peers: ModuleType) -> None:
    found = laps(sagefl=15.0, plain=7.0, plain_fused=10.0, fluke=8.0, sagefl_bf16=25.0, plain_fused_bf16=12.5)
    assert peers.verdicts(found) == [
        "In float32 against the fastest alternative (plain-fused): 1.50 x; target 2 x: missed.",
        "In bfloat16 against the fastest alternative (plain-fused-bf16): 2.00 x; target 2 x: met.",
    ]
    assert peers.verdicts(laps(sagefl=15.0)) == ["No alternative took part."]


def test_sagefl_runs_at_every_precision_that_somebody_chosen_has(peers: ModuleType) -> None:
    assert peers.entrants(peers.NAMES) == list(peers.NAMES)
    assert peers.entrants(["gossipy"]) == ["sagefl", "gossipy"]
    assert peers.entrants(["plain-fused-bf16"]) == ["sagefl-bf16", "plain-fused-bf16"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sagefl", "plain-fused", "sagefl-bf16", "plain-fused-bf16"])
def test_a_contestant_runs(name: str, tmp_path: Path) -> None:
    track = ["--dataset", "fmnist-mini", "--clients", "3", "--rounds", "1", "--cores", "1"]
    command = [sys.executable, "-m", "peers.contestants", name, *track, "--out", str(tmp_path / "lap.json")]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lap = json.loads((tmp_path / "lap.json").read_text())
    assert (lap["epochs"], lap["all_epochs"]) == (3, 6)
    assert lap["accuracy"] > 0.3


@pytest.mark.slow
def test_the_profile_measures_inside_workers(tmp_path: Path) -> None:
    track = ["--dataset", "fmnist-mini", "--model", "perceptron", "--clients", "3", "--rounds", "1", "--cores", "1"]
    command = [sys.executable, "-m", "peers.inside", *track, "--out", str(tmp_path / "inside.json")]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for found in json.loads((tmp_path / "inside.json").read_text()).values():
        shares = found["shares"]
        assert 0.2 < shares["inside"] < 1
        assert shares["inside"] + shares["around"] + shares["waiting"] == pytest.approx(1)


def test_the_page_of_the_race_has_the_figures_that_were_measured() -> None:
    """Row by row, whatever the page calls the versions of others."""

    def rows(text: str) -> list[tuple[str, ...]]:
        cells = [tuple(cell.strip() for cell in line.split("|")[2:-1]) for line in text.splitlines() if "4." in line]
        return [row for row in cells if len(row) == 4 and " to " in row[0]]

    measured = (ROOT / "benchmarks/RESULTS.md").read_text(encoding="utf-8").split("## The race")[1].split("\n## ")[0]
    page = (ROOT / "docs/race.md").read_text(encoding="utf-8").split("## Measured")[1].split("\n## ")[0]
    assert len(rows(measured)) == 14
    assert rows(page) == rows(measured)
