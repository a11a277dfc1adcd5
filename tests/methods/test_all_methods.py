"""Every registered method in the simulator: it runs, and neither the engine nor a stop on the way changes a bit.

The graph has a client without neighbours, one with a single neighbour, and fewer neighbours than most methods sample.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from clusters import clustered_world, config

from sagefl.methods import methods
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import InterruptedRunError, Simulator
from sagefl.simulation.world import World
from sagefl.topology import Graph

CLIENTS, ROUNDS, STOP = 6, 4, 3
EDGES = [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4), (1, 4)]  # client 5 is alone, client 0 has one neighbour
IDS = list(methods())


def run_config(id: str) -> RunConfig:
    training = {"batch_size": 32, "learning_rate": 0.01, "max_batches": 3}
    evaluation = {"every": ROUNDS, "mechanisms": False, "losses": "asked"}
    return config(id, rounds=ROUNDS, clients=CLIENTS, training=training, evaluation=evaluation)


@cache
def world() -> World:
    return dataclasses.replace(clustered_world(run_config("rg")), graph=Graph.from_edges(CLIENTS, EDGES))


class StopAfter:
    """Ctrl-C after some rounds."""

    def start(self, config: RunConfig, first_round: int) -> None: ...

    def round(self, record: Mapping[str, Any]) -> None:
        if record["round"] + 1 == STOP:
            signal.raise_signal(signal.SIGINT)

    def end(self, summary: Mapping[str, Any]) -> None: ...


def simulator(id: str, path: Path, engine: str, *callbacks: StopAfter) -> Simulator:
    chosen = run_config(id)
    here = dataclasses.replace(world(), config=chosen)
    how = Execution(engine=engine, workers=2, checkpoint_every=STOP)
    return Simulator(chosen, RunDirectory(path), how, world=here, callbacks=callbacks)


def written(directory: RunDirectory) -> dict[str, bytes]:
    """Everything a run leaves, byte by byte, but times and under what circumstances it ran."""
    apart = ("timings.parquet", "events.log", "environment.json", ".lock")
    files = (p for p in directory.path.rglob("*") if p.is_file() and p.name not in apart)
    return {str(p.relative_to(directory.path)): p.read_bytes() for p in sorted(files)}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The reference run of a method, made once."""
    made: dict[str, RunDirectory] = {}

    def reference(id: str) -> RunDirectory:
        if id not in made:
            path = tmp_path_factory.mktemp("straight") / "run"
            simulator(id, path, "sequential").run()
            made[id] = RunDirectory(path)
        return made[id]

    return reference


@pytest.mark.parametrize("id", IDS)
def test_it_runs_and_the_lonely_client_exchanges_nothing(id, straight):
    decisions = straight(id).table("decisions")
    assert decisions.height == CLIENTS * ROUNDS
    alone = decisions.filter(pl.col("client") == 5)
    assert alone["degree"].to_list() == [0] * ROUNDS
    if id != "average-all":  # which ignores the graph
        assert alone.select("merged", "transferred", "model_bytes", "evaluations").sum().row(0) == (0, 0, 0, 0)
    others = decisions.filter(pl.col("client") != 5)
    assert (others["merged"].sum() > 0) == (id != "local")
    assert (others["model_bytes"] > 0).equals(others["transferred"] > 0)
    assert (others["merged"] <= others["transferred"]).all()


@pytest.mark.parametrize("id", IDS)
def test_neither_the_engine_nor_a_stop_on_the_way_changes_a_bit(id, straight, tmp_path):
    """Three rounds in worker processes, then Ctrl-C; the last one in this process, from the checkpoint."""
    path = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        simulator(id, path, "processes", StopAfter()).run()
    assert not (path / "summary.json").exists()
    simulator(id, path, "sequential").run()
    assert written(RunDirectory(path)) == written(straight(id))
