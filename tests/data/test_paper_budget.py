"""AQ-128's evidence budget, which needs no training: it follows from partition and graph alone.

AQ-128 probes every neighbour with the largest stage its pool allows, so its budget in percent of the nominal
128 anchors per neighbour is sum(d m) / (128 sum(d)) over clients with degree d and stage m. If our partitions,
pools and graphs are the paper's, so is that number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from sagefl.data import Dataset, Dirichlet, Federation

CLIENTS, PARTITIONS = 50, 40
STAGES = np.array([0, 16, 32, 64, 128])

# Column aq128_budget of the paper's evidence table, Fashion-MNIST at alpha = .3.
PUBLISHED = {"er": 62.11, "ba": 62.77}
GRAPHS: dict[str, Callable[[int], Any]] = {
    "er": lambda seed: nx.erdos_renyi_graph(CLIENTS, 0.15, seed=seed),
    "ba": lambda seed: nx.barabasi_albert_graph(CLIENTS, 3, seed=seed),
}


def degrees(topology: str) -> np.ndarray:
    seed = 1
    while not nx.is_connected(graph := GRAPHS[topology](seed)):
        seed += 1000
    return np.array([graph.degree(client) for client in range(CLIENTS)])


def budget(pools: np.ndarray, degree: np.ndarray) -> float:
    stage = STAGES[np.searchsorted(STAGES, pools, side="right") - 1]
    return float(degree @ stage / (128 * degree.sum()) * 100)


def test_the_budget_formula_on_a_case_done_by_hand() -> None:
    pools, degree = np.array([15, 16, 127, 128, 500]), np.array([1, 2, 3, 4, 5])
    assert budget(pools, degree) == pytest.approx((2 * 16 + 3 * 64 + 4 * 128 + 5 * 128) / (128 * 15) * 100)


@pytest.mark.parametrize("topology", ["er", "ba"])
def test_mean_budget_is_the_papers(topology: str, fmnist: Dataset) -> None:
    degree = degrees(topology)
    worlds = (Federation.build(fmnist, Dirichlet(0.3), CLIENTS, seed) for seed in range(1, PARTITIONS + 1))
    mean = np.mean([budget(np.array([len(roles.anchor) for roles in world.roles]), degree) for world in worlds])
    assert mean == pytest.approx(PUBLISHED[topology], abs=2.5)
