"""The page's picture of time: who did what when; and the rounds that a report keeps of it."""

from __future__ import annotations

from typing import Any

import pytest

from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.files import RunError
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.view import tables
from sagefl.view.report import _frozen
from sagefl.view.shelf import Run
from sagefl.view.tables import timeline
from sagefl.view.unfolding import unfold


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    found = {}
    for schedule in ("rounds", "async", "none"):
        clock: dict[str, Any] = {} if schedule == "none" else {"network": "phones", "schedule": schedule}
        settings = RunConfig.parse(
            {
                "clients": 5,
                "rounds": 3,
                "clock": clock,
                "topology": {"kind": "complete"},
                "model": {"name": "mlp", "options": {"hidden": 8}},
                "training": {"max_batches": 1},
                "evaluation": {"every": 1, "subset": 50},
            }
        )
        place = tmp_path_factory.mktemp(schedule) / "run"
        Simulator(settings, RunDirectory(place), Execution(engine="sequential")).run()
        found[schedule] = Run(place)
    return found


def test_a_round_shows_everybody_from_training_to_the_exchange(timed: dict[str, Run]) -> None:
    shown = timeline(timed["rounds"], 1)
    assert [turn["client"] for turn in shown["turns"]] == [0, 1, 2, 3, 4]
    for turn in shown["turns"]:
        assert turn["began_at"] < turn["trained_at"] <= turn["decided_at"] <= turn["ended_at"]
    assert any(turn["awaited"] is not None for turn in shown["turns"])


def test_clients_at_their_own_pace_may_have_several_turns_or_none(timed: dict[str, Run]) -> None:
    run = timed["async"]
    assert [len(timeline(run, n)["turns"]) for n in range(3)] == [5, 5, 5]
    had = {(n, turn["client"]) for n in range(3) for turn in timeline(run, n)["turns"]}
    for number, client in ((n, k) for n in range(3) for k in range(5)):
        none = "No exchange of this client ended" in unfold(run, number, client).get("note", "")
        assert none == ((number, client) not in had)


def test_a_run_without_a_clock_has_no_timeline(timed: dict[str, Run]) -> None:
    with pytest.raises(RunError, match=r"set clock\.network"):
        timeline(timed["none"], 0)
    assert "timelines" not in _frozen(timed["none"], 2)
    assert "minutes" not in tables.rounds(timed["none"])["columns"]


def test_a_report_keeps_minutes_and_some_timelines(timed: dict[str, Run]) -> None:
    kept = _frozen(timed["rounds"], 2)
    assert list(kept["timelines"]) == ["0", "2"]
    minutes = kept["rounds"]["columns"]["minutes"]
    assert minutes == sorted(minutes)
    assert len(minutes) == 3


def test_own_decisions_replay_stage_by_stage(timed: dict[str, Run]) -> None:
    run = timed["async"]
    asked = [row for row in run.table("decisions").iter_rows(named=True) if row["stages"]]
    last = {(row["round"], row["client"]): row for row in asked}
    assert last
    assert all(unfold(run, *key).get("replayed") for key in last)
