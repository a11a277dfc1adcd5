"""Methods with a memory of their own, while clients, links and snapshots come and go: resuming changes nothing.

`test_all_methods` resumes every method on a quiet network; here old snapshots, missed messages and absent peers are in
play, and the run is killed between checkpoints instead of being asked to stop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from clusters import clustered_world, config

from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

METHODS = [
    "ocd-fl:energy=distance",
    "dpfl:period=3",
    "dfedpgp",
    "choco",
    "choco:compression=sign",
    "dispfl:masks=own",
    "da-dpfl:wait=2",
    "dfedmq-lite:quality=progress",
    "cfns-lite",
]
NETWORK = {"available": 0.8, "drop": 0.2, "delay": 0.3, "max_delay": 2}


class KilledError(Exception):
    """The process dies."""


class KillIn:
    """Dies in the fourth round, after the checkpoint that follows the second."""

    def start(self, config: RunConfig, first_round: int) -> None: ...

    def round(self, record: Mapping[str, Any]) -> None:
        if record["round"] == 3:
            raise KilledError

    def end(self, summary: Mapping[str, Any] | None) -> None: ...


@cache
def world() -> World:
    return clustered_world(run_config("rg"))


def run_config(id: str) -> RunConfig:
    training = {"batch_size": 32, "learning_rate": 0.01, "max_batches": 2}
    return config(id, rounds=5, clients=8, training=training, network=NETWORK)


def run(id: str, path: Path, *, killed: bool) -> dict[str, bytes]:
    chosen = run_config(id)
    here = dataclasses.replace(world(), config=chosen)
    how, directory = Execution(engine="sequential", checkpoint_every=2), RunDirectory(path)
    if killed:
        with pytest.raises(KilledError):
            Simulator(chosen, directory, how, world=here, callbacks=[KillIn()]).run()
    Simulator(chosen, directory, how, world=here).run()
    apart = ("timings.parquet", "events.log", "environment.json", ".lock")
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name not in apart)
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


@pytest.mark.parametrize("id", METHODS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(id, tmp_path):
    straight = run(id, tmp_path / "straight", killed=False)
    resumed = run(id, tmp_path / "resumed", killed=True)
    assert resumed.keys() == straight.keys()
    assert [name for name in straight if straight[name] != resumed[name]] == []
    assert '"resumed"' in (tmp_path / "resumed" / "events.log").read_text()
