"""The examples of the how-tos themselves: engines agree on them, killed runs go on, decisions replay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from small_runs import differing, files
from task_runs import begin_and_kill, simulate

from sagefl.runs.config import Execution, RunConfig, merged, method_config
from sagefl.runs.replaying import replay_run
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import make
from sagefl.simulation.simulator import Simulator

if TYPE_CHECKING:
    from conftest import Nodes

HOWTO = Path(__file__).parents[2] / "examples" / "howto"
METHOD = "sage-vanilla"
BASE: dict[str, Any] = {
    "rounds": 3,
    "method": method_config(METHOD),
    "data": {"partition": "owners", "anchor": 0.3},
    "topology": {"kind": "complete"},
    "training": {"max_batches": 2, "learning_rate": 0.01},
    "evaluation": {"every": 2, "subset": 100, "losses": "full"},
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "text": {"clients": 12, "data": {"dataset": "sotu-mini"}, "model": {"name": "text:Reader"}},
    "adapters": {"clients": 10, "data": {"dataset": "text:speakers"}, "model": {"name": "text:Adapted"}},
    "houses": {
        "clients": 8,
        "data": {"dataset": "houses.csv?label=price&owner=region"},
        "model": {"name": "mlp"},
    },
    "residual": {"clients": 8, "data": {"dataset": "residual:tinted"}, "model": {"name": "residual:Residual"}},
}


@pytest.fixture(scope="module")
def howto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of their own, with what the pages have made first: a table, and a base that has seen little."""
    folder, before = tmp_path_factory.mktemp("howto"), Path.cwd()
    for file in HOWTO.glob("*.py"):
        shutil.copy(file, folder)
    for command in (["houses.py"], ["-c", "import text; text.train_base(steps=5)"]):
        subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    os.chdir(before)
    for module in ("text", "residual"):
        sys.modules.pop(module, None)


@pytest.mark.slow
@pytest.mark.usefixtures("howto")
@pytest.mark.parametrize("example", EXAMPLES)
def test_workers_and_a_killed_run_come_to_the_same_and_decisions_replay(example: str, tmp_path: Path) -> None:
    settings = RunConfig.parse(merged(BASE, EXAMPLES[example]))
    summary = simulate(tmp_path / "whole", settings)
    assert ("mae" in summary) == (example == "houses")
    assert summary["evaluations"] > 0
    simulate(tmp_path / "workers", settings, "processes")
    begin_and_kill(tmp_path / "killed", settings)
    simulate(tmp_path / "killed", settings)
    for other in ("workers", "killed"):
        assert differing(files(tmp_path / other), files(tmp_path / "whole")) == [], other
    run = RunDirectory(tmp_path / "whole")
    (again,) = replay_run(run, [("again", make(METHOD))])
    assert again.covered == 1.0
    assert again.certified == pytest.approx((run.table("decisions")["reason"] == "certified").mean())
    assert again.evaluations == pytest.approx(run.table("decisions")["evaluations"].mean())


@pytest.mark.slow
@pytest.mark.usefixtures("howto")
@pytest.mark.parametrize("example", EXAMPLES)
def test_stacked_comes_to_the_same(example: str, tmp_path: Path) -> None:
    settings = RunConfig.parse(merged(merged(BASE, EXAMPLES[example]), {"method": method_config("rg")}))
    one, many = simulate(tmp_path / "one", settings), simulate(tmp_path / "many", settings, "stacked")
    lead = "mae" if example == "houses" else "accuracy"
    assert many[lead] == pytest.approx(one[lead], rel=0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("howto")
@pytest.mark.parametrize("example", EXAMPLES)
def test_shards_on_two_raylets_come_to_the_same(example: str, nodes: Nodes, tmp_path: Path) -> None:
    settings = RunConfig.parse(merged(BASE, EXAMPLES[example]))
    simulate(tmp_path / "whole", settings)
    ray = Execution(engine="ray", ray_address=nodes.address, checkpoint_every=10)
    Simulator(settings, RunDirectory(tmp_path / "ray"), ray).run()
    assert differing(files(tmp_path / "ray"), files(tmp_path / "whole")) == []
