"""Columns are declared once: what follows from them, and a metric from outside the package that is everywhere."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from starlette.testclient import TestClient
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.data import Dataset, load
from sagefl.node.config import NodeConfig
from sagefl.node.loop import Node
from sagefl.node.swarm import merge_runs
from sagefl.runs import columns as declared
from sagefl.runs.columns import LAST_LOOK, TABLES, Column, Evaluation, columns, every_column, register, schema
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.recording import Recorder
from sagefl.runs.rundir import RunDirectory
from sagefl.selection.outcome import Stage
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World
from sagefl.view.server import application
from sagefl.view.shelf import Shelf

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "clients": 4,
    "rounds": 2,
    "model": {"name": "mlp", "options": {"hidden": 8}},
    "training": {"max_batches": 2, "batch_size": 16},
    "evaluation": {"every": 1, "subset": 50},
    "method": {"id": "rg"},
}
BEST: Column[Evaluation] = Column(
    "best", "the best client's accuracy on its own data", lambda e: e.client.max(), combine="max", title="best"
)
"""All it takes. No metric of the package is combined by a maximum."""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which metrics are known beside those of the package, for one test."""

    def know(*metrics: Column[Evaluation]) -> None:
        monkeypatch.setattr(declared, "METRICS", dict(built_in))
        for metric in metrics:
            register(metric)

    built_in = dict(declared.METRICS)
    know(BEST)
    return know


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Crash:
    """A follower that brings the run down in a round."""

    def __init__(self, round: int) -> None:
        self.last = round

    def start(self, config: RunConfig, first_round: int) -> None:
        pass

    def round(self, record: Mapping[str, Any]) -> None:
        if record["round"] == self.last:
            raise KeyboardInterrupt

    def end(self, summary: Mapping[str, Any] | None) -> None:
        pass


def images() -> Dataset:
    whole = load("fmnist-mini")
    return Dataset("fmnist-mini", whole.train_x, whole.train_y, whole.test_x[:100], whole.test_y[:100], whole.classes)


def simulated(path: Path, *callbacks: Crash, **settings: Any) -> RunDirectory:
    config, directory = RunConfig.parse(SMALL | settings), RunDirectory(path)
    execution, world = Execution(engine="sequential", checkpoint_every=1), World.build(config, images())
    Simulator(config, directory, execution, world=world, callbacks=callbacks).run()
    return directory


def node(path: Path, number: int) -> RunDirectory:
    """The run of a node without neighbours."""
    settings = {"name": f"node-{number}", "number": number, "listen": "127.0.0.1:0", "neighbours": {}}
    settings |= {"directory": str(path), "exchange": {"linger": 0.0}}
    made = Node(NodeConfig.parse(SMALL | settings), insecure=True, dataset=images())
    assert made.run() is not None
    return made.recorder.directory


def hooks() -> ModuleType:
    """What fills in the tables of the documentation."""
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("documentation_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A metric from outside ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("known")
class TestAMetricFromOutside:
    def test_is_in_the_tables_and_the_summary_of_a_run(self, tmp_path: Path) -> None:
        run = simulated(tmp_path)
        metrics, clients = run.table("metrics"), run.table("clients")
        for name, own in (("best", "own_accuracy"), ("before_best", "own_accuracy_before")):
            highest = clients.group_by("round", maintain_order=True).agg(pl.col(own).max())[own]
            assert metrics[name].to_list() == highest.to_list()
            assert run.summary[name] == highest[-1]

    def test_is_in_a_swarm_s_combined_as_it_says(self, tmp_path: Path) -> None:
        nodes = [node(tmp_path / f"node-{k}" / "run", k) for k in range(3)]
        summary = merge_runs([each.path for each in nodes], tmp_path / "run")
        of_nodes = np.array([each.table("metrics")["best"].to_list() for each in nodes])
        assert len(set(of_nodes[:, -1])) > 1
        assert RunDirectory(tmp_path / "run").table("metrics")["best"].to_list() == of_nodes.max(axis=0).tolist()
        assert summary["best"] == of_nodes[:, -1].max()

    def test_is_on_the_page(self, tmp_path: Path) -> None:
        run, token = simulated(tmp_path / "run"), "t" * 32
        with TestClient(application(Shelf([tmp_path]), token), base_url=f"http://127.0.0.1/{token}/") as page:
            (standing,) = page.get("api/state").json()["runs"]
            rounds = page.get("api/rounds", params={"run": standing["id"]}).json()
            html = page.get("").text
        assert rounds["columns"]["best"] == pytest.approx(run.table("metrics")["best"].to_list(), rel=1e-5)
        assert standing["last"]["best"] == pytest.approx(run.summary["best"], rel=1e-6)
        told = json.loads(html.split('id="columns">')[1].split("</script>")[0])
        assert {"name": "best", "title": "best", "meaning": BEST.meaning, "format": ".4f"} in told["measured"]

    def test_is_in_comparisons_also_with_runs_from_before(self, tmp_path: Path, known: Callable[..., None]) -> None:
        known()
        simulated(tmp_path / "old", training={"learning_rate": 2e-3})
        known(BEST)
        run = simulated(tmp_path / "new")
        printed = CliRunner().invoke(app, ["compare", str(tmp_path / "new"), str(tmp_path / "old")]).output
        (new,), (old,) = ([line for line in printed.splitlines() if name in line] for name in ("new)", "old)"))
        assert " weak best certify " in " ".join(printed.split())
        assert new.split()[-6] == f"{run.summary['best']:.4f}"
        assert old.split()[-6] == "-"
        assert f"best: {BEST.meaning}; certify" in " ".join(printed.split())

    def test_is_explained_by_the_command_and_in_the_documentation(self) -> None:
        printed = CliRunner().invoke(app, ["columns", "metrics"]).output
        assert f"best Float64 {BEST.meaning} before_accuracy" in " ".join(printed.split())
        tables = hooks().columns()
        assert f"| `best` | `Float64` |  | {BEST.meaning} |" in tables
        assert f"| `before_best` | `Float64` |  | {BEST.meaning}, before mixing |" in tables

    def test_begins_in_the_round_from_which_a_run_knows_it(self, tmp_path: Path, known: Callable[..., None]) -> None:
        known()
        with pytest.raises(KeyboardInterrupt):
            simulated(tmp_path, Crash(1))
        known(BEST)
        metrics = simulated(tmp_path).table("metrics")
        assert metrics["best"].is_null().to_list() == [True, False]
        assert metrics["accuracy"].null_count() == 0
        assert metrics.schema == schema("metrics")

    @pytest.mark.parametrize(
        ("metric", "said"),
        [
            (Column("weak", "taken", lambda e: 0.0, combine="mean"), "every run has a column 'weak' already"),
            (Column("before_weak", "taken", lambda e: 0.0, combine="mean"), "every run has a column 'before_weak'"),
            (Column("new", "of nothing", combine="mean"), "a metric is a Column with a value"),
            (
                Column("new", "for one node only", lambda e: 0.0),
                "a metric is a Column with a value and a way to combine",
            ),
        ],
    )
    def test_is_refused_where_it_could_not_be_kept(self, metric: Column[Evaluation], said: str) -> None:
        before = schema("metrics")
        with pytest.raises(ValueError, match=said):
            register(metric)
        assert schema("metrics") == before


PLUGIN = """
from sagefl.runs.columns import Column
best = Column("best", "the best client's accuracy", lambda e: e.client.max(), combine="max")
worse = Column("worse", "which no swarm could combine", lambda e: e.client.min())
"""
POINTS = "[sagefl.metrics]\nbest = outside:best\nbroken = nowhere:metric\nworse = outside:worse\n"
USE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from sagefl.runs.columns import known_metrics, schema
    print(*(metric.name for metric in known_metrics()), "before_best" in schema("metrics"))
print(*sorted(str(w.message) for w in caught), sep="\\n")
"""


def test_a_package_brings_a_metric_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(PLUGIN)
    metadata = tmp_path / "outside-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    run = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, env=environment, timeout=120)
    assert run.returncode == 0, run.stderr
    found, broken, worse = run.stdout.splitlines()
    assert found == "accuracy macro_f1 client weak client_ce best True"
    assert broken.startswith("metric 'broken' of nowhere:metric is left out: No module named 'nowhere'")
    assert worse.startswith("metric 'worse' of outside:worse is left out: a metric is a Column with")


# What follows from the declarations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_columns_of_a_table_have_names_of_their_own_and_say_what_they_mean(table: str) -> None:
    every = every_column(table)
    assert len({column.name for column in every}) == len(every)
    assert all(column.meaning for column in every)
    assert every[0].name == "round"


@pytest.mark.parametrize("table", ["metrics", "timings"])
def test_nodes_rows_of_a_round_combine_in_every_column(table: str) -> None:
    assert [column.name for column in every_column(table) if not column.combine] == ["round"]


def test_what_decisions_cost_is_added_up_in_their_round() -> None:
    summed = [column.name for column in columns("decisions") if column.combine == "sum"]
    assert {"evaluations", "model_bytes"} < set(summed) < set(schema("metrics"))
    record = Recorder(RunDirectory(Path("nowhere"))).enter(
        [dict.fromkeys(summed, 2) | {"reason": "cost"}, dict.fromkeys(summed, 3) | {"reason": "only"}],
        None,
        (),
        round=0,
    )
    assert {record[name] for name in summed} == {5}
    assert {name: count for name, count in record.items() if name.startswith("reason_") and count} == {
        "reason_cost": 1,
        "reason_only": 1,
    }
    assert record["accuracy"] is None


def test_the_audit_keeps_every_field_of_a_stage_that_is_declared_for_it() -> None:
    unkept = {"anchors", "fired", "scores"}  # the first two are the decision's own, the last few rules have
    assert {column.name for column in LAST_LOOK} == {f.name for f in fields(Stage)} - unkept
    assert {column.name for column in LAST_LOOK} < set(schema("decisions", "memory"))


def test_the_documentation_lists_every_column_of_every_table() -> None:
    listed = hooks().columns()
    for table in TABLES:
        section = listed.split(f"## {table}.parquet")[1].split("\n## ")[0]
        assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == [
            column.name for column in every_column(table)
        ]


def test_an_unknown_table_is_named() -> None:
    result = CliRunner().invoke(app, ["columns", "decision"])
    assert result.exit_code == 2
    assert "there is no table 'decision': metrics, decisions, clients, timings" in result.output
