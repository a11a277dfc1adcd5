"""Any task, any model: the engines agree, a crashed run goes on, and what peers answer is scored as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CrashAfter, CrashError, differing, files
from task_worlds import CLIENTS, WORLDS

from sagefl.runs.config import Execution, RunConfig, merged, method_config
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator

BASE: dict[str, Any] = {
    "clients": CLIENTS,
    "rounds": 3,
    "data": {"partition": "owners", "anchor": 0.4},
    "topology": {"kind": "complete"},
    "training": {"batch_size": 4, "learning_rate": 0.02},
    "evaluation": {"every": 2},
}


def config(world: str, method: str = "sage-vanilla", **sections: Any) -> RunConfig:
    return RunConfig.parse(merged(merged(merged(BASE, WORLDS[world]), {"method": method_config(method)}), sections))


def simulate(path: Path, settings: RunConfig, engine: str = "sequential", **options: Any) -> dict[str, Any]:
    return Simulator(settings, RunDirectory(path), Execution(engine=engine, workers=2), **options).run()


@pytest.mark.parametrize("kind", WORLDS)
def test_workers_and_a_crash_leave_the_same_files(kind: str, tmp_path: Path) -> None:
    settings = config(kind)
    summary = simulate(tmp_path / "whole", settings)
    with pytest.raises(CrashError):
        simulate(tmp_path / "other", settings, callbacks=[CrashAfter(1)])
    simulate(tmp_path / "other", settings, "processes")
    assert differing(files(tmp_path / "other"), files(tmp_path / "whole")) == []
    assert summary["evaluations"] > 0
    lead = "mae" if kind in ("regression", "adapters") else "accuracy"
    assert np.isfinite(summary[lead])
    assert ("accuracy" in summary) == (lead == "accuracy")


@pytest.mark.parametrize("kind", WORLDS)
def test_stacked_comes_to_the_same(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = config(kind, "rg")
    one, many = simulate(tmp_path / "one", settings), simulate(tmp_path / "many", settings, "stacked")
    lead = "mae" if "mae" in one else "accuracy"
    assert many[lead] == pytest.approx(one[lead], rel=0.02)
    by_client = [r.message for r in caplog.records if "client by client" in r.message]
    assert bool(by_client) == (kind == "text"), by_client  # vmap has no GRU
