"""A world where the right answer is known: two clusters of clients with different label maps.

Six blobs in sixteen dimensions, dealt evenly to twelve clients. Even clients call a blob by its number,
odd clients by the next one, so a model of the other cluster is wrong about everything while one's own cluster has
learnt the same task. Whoever looks for compatible peers must pick within the cluster; on the complete graph a blind
draw does so 5 times out of 11.

Used as::

    decisions = run_clusters("pens:n_sampled=4", tmp_path, rounds=8)
    assert finds_cluster(decisions)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binomtest

from sagefl.data import Dataset, Federation
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.comparing import method_config
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

CLIENTS = 12
CLASSES = 6
SAMPLES = 200  # per client
LEVEL = 1e-3  # of every binomial test: a blind rule passes `finds_cluster` once in a thousand worlds


def cluster(client: int) -> int:
    """Which of the two clusters a client is in."""
    return client % 2


def config(method: str = "rg", *, rounds: int = 8, seed: int = 1, **sections: Any) -> RunConfig:
    """A small, quick run on the clustered world; `sections` override whole sections or plain keys."""
    document: dict[str, Any] = {
        "clients": CLIENTS,
        "rounds": rounds,
        "seed": seed,
        "data": {"partition": "iid", "anchor": 0.35, "eval": 0.1},
        "topology": {"kind": "complete"},
        "model": {"name": "mlp", "options": {"hidden": 24}},
        "training": {"batch_size": 32, "learning_rate": 0.01},
        "evaluation": {"every": rounds, "mechanisms": False, "losses": "none"},
        "method": method_config(method),
    }
    return RunConfig.parse(document | sections)


@cache
def blobs(seed: int = 0) -> Dataset:
    """Six well separated Gaussian blobs."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, 16)) * 1.5

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % CLASSES
        return (centres[y] + rng.normal(size=(count, 16))).astype(np.float32), y.astype(np.int64)

    (train_x, train_y), (test_x, test_y) = draw(CLIENTS * SAMPLES), draw(120)
    return Dataset("blobs", train_x, train_y, test_x, test_y, classes=CLASSES)


def clustered_world(config: RunConfig) -> World:
    """The world of `config` with the labels of every odd client shifted by one, in all of its roles."""
    world = World.build(config, dataset=blobs())
    labels = world.dataset.train_y.copy()
    for client, roles in enumerate(world.federation.roles):
        labels[roles.all] = (labels[roles.all] + cluster(client)) % CLASSES
    dataset = dataclasses.replace(world.dataset, train_y=labels)
    federation = Federation(dataset, world.federation.roles, world.federation.seed)
    return dataclasses.replace(world, federation=federation)


def simulate(config: RunConfig, directory: Path, **execution: Any) -> RunDirectory:
    """Run `config` on the clustered world in this process."""
    run = RunDirectory(directory)
    how = Execution(**({"engine": "sequential"} | execution))
    Simulator(config, run, how, world=clustered_world(config)).run()
    return run


def run_clusters(method: str, directory: Path, *, rounds: int = 8, seed: int = 1, **sections: Any) -> pl.DataFrame:
    """The decisions of a run of `method` on the clustered world."""
    return simulate(config(method, rounds=rounds, seed=seed, **sections), directory).table("decisions")


def picks(decisions: pl.DataFrame, since: int = 0) -> tuple[int, int, float]:
    """(picks within the cluster, all picks, the share a blind rule expects) from round `since` on."""
    within = total = 0
    expected = 0.0
    for row in decisions.filter(pl.col("round") >= since).iter_rows(named=True):
        mine = cluster(row["client"])
        within += _inside(row["chosen"], mine)
        total += len(row["chosen"])
        expected += len(row["chosen"]) * _inside(row["peers"], mine) / max(len(row["peers"]), 1)
    return within, total, expected / max(total, 1)


def _inside(clients: Iterable[int], which: int) -> int:
    return sum(cluster(c) == which for c in clients)


def finds_cluster(decisions: pl.DataFrame, since: int = 0, *, level: float = LEVEL) -> bool:
    """Whether picks fall within the cluster more often than blind ones would (one-sided binomial test at `level`).

    Peers picked together are drawn without replacement, which only makes the binomial test conservative.
    """
    within, total, chance = picks(decisions, since)
    return total > 0 and bool(binomtest(within, total, chance, alternative="greater").pvalue < level)


def is_blind(decisions: pl.DataFrame, since: int = 0, *, level: float = 0.05) -> bool:
    """Whether picks cannot be told from blind ones (two-sided binomial test; here a large level is the strict one)."""
    within, total, chance = picks(decisions, since)
    return total > 0 and bool(binomtest(within, total, chance).pvalue > level)
