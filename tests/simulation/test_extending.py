"""More rounds for a finished run: the bytes of a run that was asked for all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import config, differing, files, mini, simulate, world

from sagefl.errors import UsageError
from sagefl.learning.devices import DeviceError
from sagefl.runs.checkpoint import CheckpointError, hand_over
from sagefl.runs.config import Execution
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.extending import longer
from sagefl.simulation.simulator import Simulator


@pytest.mark.parametrize(
    ("short", "evaluation"),
    [
        (3, {"every": 2, "subset": 100}),  # the last round would not be evaluated on the way
        (4, {"every": 2, "subset": 100}),  # it would, on fewer images
        (4, {"every": 2, "subset": 0}),  # it would, on the same
        (3, {"every": 3, "subset": 100, "losses": "full"}),
    ],
)
@pytest.mark.parametrize("method", ["sage-os", "choco", "federico"])
def test_it_ends_as_a_straight_run_does(tmp_path: Path, short: int, evaluation: dict[str, Any], method: str) -> None:
    straight = config(method, rounds=6, evaluation=evaluation)
    simulate(tmp_path / "straight", straight)
    simulate(tmp_path / "longer", config(method, rounds=short, evaluation=evaluation))
    settings = longer(RunDirectory(tmp_path / "longer"), 6)
    assert settings.digest == straight.digest
    simulate(tmp_path / "longer", settings, extends=True)
    assert not differing(files(tmp_path / "straight"), files(tmp_path / "longer"))


def test_twice_is_as_good_as_once(tmp_path: Path) -> None:
    simulate(tmp_path / "straight", config("sage-e", rounds=6))
    simulate(tmp_path / "longer", config("sage-e", rounds=2))
    for rounds in (3, 6):
        simulate(tmp_path / "longer", longer(RunDirectory(tmp_path / "longer"), rounds), extends=True)
    assert not differing(files(tmp_path / "straight"), files(tmp_path / "longer"))


@pytest.mark.parametrize("method", ["pens", "dispfl", "da-dpfl"])
def test_rules_that_plan_by_the_number_of_rounds_are_refused(tmp_path: Path, method: str) -> None:
    simulate(tmp_path, config(method, rounds=2))
    before = files(tmp_path)
    with pytest.raises(UsageError, match=f"{method} plans by the number of rounds"):
        longer(RunDirectory(tmp_path), 3)
    assert files(tmp_path) == before


def test_fewer_rounds_and_unfinished_runs_are_refused(tmp_path: Path) -> None:
    simulate(tmp_path, config("rg", rounds=2))
    run = RunDirectory(tmp_path)
    with pytest.raises(UsageError, match="has 2 rounds already"):
        longer(run, 2)
    (tmp_path / "summary.json").unlink()
    with pytest.raises(UsageError, match="is not finished"):
        longer(run, 4)


def test_a_run_that_cannot_go_on_is_left_as_it_was(tmp_path: Path) -> None:
    simulate(tmp_path, config("rg", rounds=2))
    run = RunDirectory(tmp_path)
    settings, before = longer(run, 4), files(tmp_path)
    with pytest.raises(DeviceError, match="no device 'meta'"):
        Simulator(
            settings, run, Execution(engine="sequential", device="meta"), world=world(settings), extends=True
        ).run()
    assert files(tmp_path) == before
    rows = next((tmp_path / "checkpoint").rglob("*.safetensors"))
    rows.write_bytes(rows.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is torn"):
        longer(run, 4)
    assert {**files(tmp_path), str(rows.relative_to(tmp_path)): b""} == {**before, str(rows.relative_to(tmp_path)): b""}


def test_one_that_was_killed_while_it_was_extended_can_be_extended(tmp_path: Path) -> None:
    simulate(tmp_path / "straight", config("rg", rounds=4))
    simulate(tmp_path / "longer", config("rg", rounds=2))
    run = RunDirectory(tmp_path / "longer")
    hand_over(run.path, run.config.digest, longer(run, 4).digest)  # and no more
    simulate(tmp_path / "longer", longer(run, 4), extends=True)
    assert not differing(files(tmp_path / "straight"), files(tmp_path / "longer"))


def test_the_world_is_the_test_s_own() -> None:
    assert len(world(config()).test_sets(last=True)[0]) == len(mini().test_y) > 100
