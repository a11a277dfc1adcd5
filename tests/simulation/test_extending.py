"""More rounds for a finished run: the bytes of a run that was asked for all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import config, differing, files, mini, simulate, world

from sagefl.errors import UsageError
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.extending import extend


@pytest.mark.parametrize(
    ("short", "evaluation"),
    [
        (3, {"every": 2, "subset": 100}),  # the last round would not be evaluated on the way
        (4, {"every": 2, "subset": 100}),  # it would, on fewer images
        (4, {"every": 2, "subset": 0}),  # it would, on the same
        (3, {"every": 3, "subset": 100, "losses": "full"}),
    ],
)
@pytest.mark.parametrize("method", ["sage-os", "choco"])
def test_it_ends_as_a_straight_run_does(tmp_path: Path, short: int, evaluation: dict[str, Any], method: str) -> None:
    straight = config(method, rounds=6, evaluation=evaluation)
    simulate(tmp_path / "straight", straight)
    simulate(tmp_path / "longer", config(method, rounds=short, evaluation=evaluation))
    longer = extend(RunDirectory(tmp_path / "longer"), 6)
    assert longer.digest == straight.digest
    simulate(tmp_path / "longer", longer)
    assert not differing(files(tmp_path / "straight"), files(tmp_path / "longer"))


def test_twice_is_as_good_as_once(tmp_path: Path) -> None:
    simulate(tmp_path / "straight", config("sage-e", rounds=6))
    simulate(tmp_path / "longer", config("sage-e", rounds=2))
    for rounds in (3, 6):
        simulate(tmp_path / "longer", extend(RunDirectory(tmp_path / "longer"), rounds))
    assert not differing(files(tmp_path / "straight"), files(tmp_path / "longer"))


@pytest.mark.parametrize("method", ["pens", "dispfl", "da-dpfl"])
def test_rules_that_plan_by_the_number_of_rounds_are_refused(tmp_path: Path, method: str) -> None:
    simulate(tmp_path, config(method, rounds=2))
    before = files(tmp_path)
    with pytest.raises(UsageError, match=f"{method} plans by the number of rounds"):
        extend(RunDirectory(tmp_path), 3)
    assert files(tmp_path) == before


def test_fewer_rounds_and_unfinished_runs_are_refused(tmp_path: Path) -> None:
    simulate(tmp_path, config("rg", rounds=2))
    run = RunDirectory(tmp_path)
    with pytest.raises(UsageError, match="has 2 rounds already"):
        extend(run, 2)
    (tmp_path / "summary.json").unlink()
    with pytest.raises(UsageError, match="is not finished"):
        extend(run, 4)


def test_the_world_is_the_test_s_own() -> None:
    assert len(world(config()).test_sets(last=True)[0]) == len(mini().test_y) > 100
