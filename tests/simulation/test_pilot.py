"""A pilot: small, repeatable, blind to the truth; and `sagefl scout` on top of it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sagefl
from sagefl.cli import app
from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig, merged
from sagefl.runs.scouting import Pilot
from sagefl.simulation.engines import make_engine
from sagefl.simulation.pilot import pilot_rounds, run_pilot
from sagefl.simulation.world import World

SMALL: dict[str, Any] = {
    "clients": 8,
    "rounds": 60,
    "seed": 101,
    "data": {"partition": "iid"},
    "topology": {"kind": "complete"},
    "model": {"name": "mlp", "options": {"hidden": 32}, "shared": ["body", "head"]},
    "training": {"max_batches": 8, "learning_rate": 0.004},
    "world": {"shift": "labels", "groups": 2},
}
ROUGH = {"network": {"available": 0.8, "drop": 0.1, "delay": 0.5, "misbehaviour": "free-noise", "misbehaving": 0.25}}


def piloted(document: dict[str, Any], engine: str = "sequential") -> Pilot:
    world = World.build(RunConfig.parse(document))
    worker = make_engine(engine, world, LocalTraining(), workers=2)
    try:
        return run_pilot(world, worker)
    finally:
        worker.close()


def test_it_finds_the_groups_that_it_is_not_told() -> None:
    world = World.build(RunConfig.parse(SMALL))
    found = piloted(SMALL)
    assert len(set(zip(found.kinship.groups, world.truth.groups, strict=True))) == 2
    assert found.within.mean() > found.gossip.mean() + 0.05


def test_it_finds_who_publishes_noise() -> None:
    """They err no more than others with the model they keep; what they show to others is what tells them apart."""
    alike = {key: value for key, value in SMALL.items() if key != "world"}
    bad = merged(alike, {"network": {"misbehaviour": "free-noise", "misbehaving": 0.25}})
    culprits = World.build(RunConfig.parse(bad)).culprits
    groups = np.array(piloted(bad).kinship.groups)
    assert culprits.sum() == 2
    assert len(set(groups[~culprits])) == 1
    assert not set(groups[culprits]) & set(groups[~culprits])


def test_the_truth_makes_no_difference_to_it() -> None:
    """Who is in whose group, and who is a culprit, are not read anywhere but where the world itself is made."""
    world = World.build(RunConfig.parse(SMALL))
    told = {"grouping": replace(world.grouping, groups=1 - world.grouping.groups)}  # type: ignore[type-var, union-attr]
    engine = make_engine("sequential", world, LocalTraining())
    same = run_pilot(replace(world, **told), engine)
    assert same.gossip.tolist() == piloted(SMALL).gossip.tolist()
    engine.close()


@pytest.mark.slow
def test_processes_find_the_same_to_the_last_bit() -> None:
    rough = merged(SMALL, ROUGH)
    one, two = piloted(rough), piloted(rough, "processes")
    for name in ("answers", "neighbours", "local", "within", "gossip"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.kinship == two.kinship
    assert (one.cost.bytes, one.cost.samples) == (two.cost.bytes, two.cost.samples)


def test_it_trains_for_less_than_a_tenth_of_a_run() -> None:
    for rounds in (60, 100, 250, 1000):
        assert (2 * pilot_rounds(rounds) - 1) / rounds < 0.1
    found = piloted(SMALL)
    assert found.cost.samples == 8 * 8 * 64 * 5  # clients, batches of 64, rounds


# On the command line


def scouted(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["scout", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_gives_the_verdict_first_and_the_figures_as_json(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(RunConfig.parse(SMALL).to_toml())
    common = ("--config", str(tmp_path / "world.toml"), "--engine", "sequential")
    document = json.loads(scouted(*common, "--json"))
    assert document["verdict"] == "choose"
    assert document["headroom"]["low"] < document["headroom"]["expected"] < document["headroom"]["high"]
    assert document["cost"]["seconds"] > 0
    assert document["cost"]["bytes"] > 0
    assert document["cost"]["samples"] > 0
    page, picture = tmp_path / "scout.html", tmp_path / "map.svg"
    printed = scouted(*common, "--map", str(picture), "--report", str(page)).splitlines()
    assert printed[0] == document["sentence"]
    assert "<svg" in picture.read_text()
    assert document["sentence"] in page.read_text()
    assert "<svg" in page.read_text()
    from_python = sagefl.scout(config=tmp_path / "world.toml", engine="sequential")
    assert from_python.sentence == document["sentence"]
    assert repr(from_python).startswith(document["sentence"])
    assert document["sentence"] in from_python._repr_html_()


def test_it_reads_what_a_run_recorded(tmp_path: Path) -> None:
    short = merged(SMALL, {"rounds": 3, "evaluation": {"every": 3, "losses": "full"}, "method": {"id": "rg"}})
    sagefl.run(method="rg", config=short, out=tmp_path / "runs", engine="sequential", progress=False)
    said = json.loads(scouted("--run", str(tmp_path / "runs"), "--json"))
    assert said["verdict"] == "unsure"
    assert "look like groups" in said["sentence"]
    assert said["group_sizes"] == [4, 4]
    assert said["headroom"] is None
    assert "makes no pilot" in scouted("--run", str(tmp_path / "runs"), "--clients", "5", code=2)
    assert "no run in" in scouted("--run", str(tmp_path / "nothing"), code=2)
    twice = scouted("--run", str(tmp_path / "runs"), "--run", str(tmp_path / "runs"), code=2)
    assert "name one run, or the folders of different nodes" in twice


def test_a_pilot_longer_than_the_run_is_refused() -> None:
    assert "a pilot has 2 to 4 rounds here" in scouted("--rounds", "4", "--pilot", "5", code=2)


def test_a_single_client_stays_at_home() -> None:
    alone = (
        "--dataset",
        "fmnist-mini",
        "--clients",
        "1",
        "--rounds",
        "4",
        "--max-batches",
        "1",
        "--set",
        "model.name=mlp",
    )
    printed = scouted(*alone, "--engine", "sequential")
    assert printed.startswith("Nobody has a neighbour")
    assert " 1 client on " in printed
    assert "nan" not in printed


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_pilot(tmp_path: Path) -> None:
    path = tmp_path / "map.xyz"
    assert "a picture is a file that ends in .png, .svg or .pdf" in scouted(
        "--map", str(path), "--clients", "0", code=2
    )


# The tool that judges it


def tool() -> Any:
    path = Path(__file__).parent.parent.parent / "tools" / "judge_scout.py"
    spec = importlib.util.spec_from_file_location("judge_scout", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("local", "rg", "oracle", "wanted"),
    [
        (0.70, 0.60, 0.75, "choose"),
        (0.70, 0.60, 0.69, "choose"),
        (0.70, 0.60, 0.60, "home"),
        (0.70, 0.75, 0.755, "gossip"),
        (0.70, 0.75, 0.765, None),
    ],
)
def test_what_is_right_follows_from_the_references(local: float, rg: float, oracle: float, wanted: str | None) -> None:
    assert tool().right({"local": local, "rg": rg, "oracle": oracle}) == wanted


def test_verdicts_are_counted_with_intervals() -> None:
    said = [
        {"world": "a", "seed": "1", "verdict": "choose", "low": "0.1", "high": "0.2", "seconds": "2"},
        {"world": "b", "seed": "1", "verdict": "choose", "low": "0.1", "high": "0.2", "seconds": "2"},
        {"world": "c", "seed": "1", "verdict": "unsure", "low": "0.0", "high": "0.2", "seconds": "2"},
    ]
    measured = {
        ("a", 1): {"local": 0.6, "rg": 0.5, "oracle": 0.65},
        ("b", 1): {"local": 0.6, "rg": 0.7, "oracle": 0.7},
        ("c", 1): {"local": 0.6, "rg": 0.5, "oracle": 0.5},
        ("d", 1): {"local": 0.6, "rg": 0.5, "oracle": 0.5},
    }
    lines = list(tool().scored(said, measured))
    assert lines[0].startswith("right  a, seed 1: said choose, choose is right; +15.0 covered")
    assert lines[1].startswith("WRONG  b")
    assert "NOT covered" in lines[1]
    assert "right: 1 of 3 = 33.3% [0.8%, 90.6%]" in lines
    assert any(line.startswith('"choose" where there is nothing to choose: 1 of 1') for line in lines)
    assert any(line.startswith("headroom within its interval: 2 of 3") for line in lines)
