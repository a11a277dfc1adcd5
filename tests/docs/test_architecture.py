"""What the page about the house says is so: its files exist, its rooms are the map that is enforced."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from test_foundation import FOUNDATION, MAY_USE  # noqa: E402 (beside the tests, in no package)

HOUSE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHANGES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROOMS = re.findall(
    r"^\| `(\w+)` \| .* \| (.+) \|$", HOUSE.partition("## Rooms")[2].partition("## A round")[0], flags=re.M
)
WALKS = {"A round of the simulator": 16, "A probe between two nodes": 14, "A cell of a study": 22}  # files before


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", HOUSE))))
def test_files_of_the_house_exist(name: str) -> None:
    assert (ROOT / "src" / "sagefl" / name).is_file() or (ROOT / name).is_file()


def test_rooms_are_those_of_the_map_and_may_use_what_it_says() -> None:
    named = {room: set(re.findall(r"`(\w+)`", uses)) for room, uses in ROOMS}
    assert named.keys() - {"cli"} == MAY_USE.keys() - FOUNDATION
    for room, uses in named.items():
        if room != "cli" and "all above" not in dict(ROOMS)[room]:
            assert uses - FOUNDATION == MAY_USE[room] - FOUNDATION, room
        elif room != "cli":
            assert uses <= MAY_USE[room], room


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_passes_fewer_files_than_it_did(walk: str) -> None:
    passed = HOUSE.partition(f"\n## {walk}\n")[2].partition("\n##")[0]
    files = re.findall(r"`([\w/]+\.py)`", passed)  # every file named there, not only the first of a row
    assert len(files) == len(set(files))
    assert 5 < len(files) < WALKS[walk]


def test_a_round_really_passes_the_files_of_its_walk(tmp_path: Path) -> None:
    """Traced in the second round of a small run, whose rule and engine are those that the page names."""
    passed: set[str] = set()

    class Watch:
        """Watches from the end of one round to the end of the next."""

        def start(self, config: RunConfig, first_round: int) -> None:
            pass

        def round(self, record: Mapping[str, Any]) -> None:
            sys.setprofile(self.call if record["round"] == 0 else None)

        def end(self, summary: Mapping[str, Any] | None) -> None:
            sys.setprofile(None)

        def call(self, frame: FrameType, event: str, argument: object) -> None:
            passed.add(frame.f_code.co_filename)

    config = RunConfig.parse(
        {
            "clients": 4,
            "rounds": 3,
            "model": {"name": "mlp", "options": {"hidden": 8}},
            "training": {"max_batches": 1},
            "topology": {"kind": "ring"},
            "evaluation": {"every": 1, "subset": 50},
            "method": {"id": "sage-os"},
        }
    )
    Simulator(config, RunDirectory(tmp_path / "run"), Execution(engine="sequential"), callbacks=[Watch()]).run()
    walk = HOUSE.partition("\n## A round of the simulator\n")[2].partition("\n##")[0]
    named = re.findall(r"^\| `([\w/]+\.py)`", walk, flags=re.M)
    assert len(named) > 10
    assert not [name for name in named if str(ROOT / "src" / "sagefl" / name) not in passed]


def test_the_table_of_changes_names_files_and_tests_that_exist() -> None:
    table = CHANGES.partition("## What to touch")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| an? (.+?) \| (.+?) \|.*?\| `(.+?)` \|$", table, flags=re.M)
    assert len(rows) == 10
    for what, touched, shown in rows:
        for name in re.findall(r"`([\w/.]+/[\w/.]*)`", f"{touched} `{shown}`"):
            assert (ROOT / name).exists(), f"{what}: {name}"
