from __future__ import annotations

import numpy as np
import pytest
from clusters import run_clusters
from driving import Given, drive

from sagefl.exchange import resolve
from sagefl.selection import Reason
from sagefl.selection.d_psgd import DPSGD
from sagefl.topology import Bernoulli, Graph, Links, build, neighbourhoods


def mixing_matrix(graph: Graph, available: float, round: int) -> np.ndarray:
    """The round's matrix, as the simulator resolves it."""
    clients = graph.clients
    view = neighbourhoods(graph, Bernoulli(available).active(round, clients, 3), Links(), round, 3)
    degrees = dict(enumerate(view.degrees.tolist()))
    outcomes = {}
    for k in range(clients):
        decision = DPSGD().begin([int(j) for j in view.peers(k)], 0, me=k)
        outcomes[k] = drive(decision, Given(readings={"degree": degrees}))
    matrix = np.eye(clients)
    for k, mix in resolve(outcomes, {}, 0.5).items():
        matrix[k, k] = mix.own
        for j, _, weight in mix.pulls:
            matrix[k, j] = weight
    return matrix


def test_metropolis_hastings_weights_by_hand():
    # A star: the hub 0 has degree 3, the others 1. Every weight is 1/4, leaves keep 3/4.
    outcome = drive(DPSGD().begin([1, 2, 3], 0), Given(readings={"degree": {1: 1, 2: 1, 3: 1}}))
    assert outcome.weights == {1: 1 / 4, 2: 1 / 4, 3: 1 / 4}
    leaf = drive(DPSGD().begin([0], 0), Given(readings={"degree": {0: 3}}))
    assert leaf.weights == {0: 1 / 4}
    assert leaf.reads == {"degree": 1}


def test_no_neighbour_no_exchange():
    assert drive(DPSGD().begin((), 0), Given()).reason is Reason.NONE


@pytest.mark.parametrize("kind", ["er", "ba", "ring"])
@pytest.mark.parametrize("available", [1.0, 0.6])
def test_the_mixing_matrix_is_doubly_stochastic_also_when_clients_come_and_go(kind, available):
    graph = build(kind, 30, 1)
    for round in range(3):
        matrix = mixing_matrix(graph, available, round)
        assert matrix.min() >= 0
        assert np.allclose(matrix, matrix.T)
        assert np.allclose(matrix.sum(axis=0), 1)
        assert np.allclose(matrix.sum(axis=1), 1)
        assert np.count_nonzero(matrix) > 30  # it does mix


def test_the_simulator_mixes_doubly_stochastically_under_availability(tmp_path):
    decisions = run_clusters(
        "d-psgd", tmp_path / "run", rounds=3, network={"available": 0.6}, topology={"kind": "er", "p": 0.4}
    )
    uneven = 0
    for round in range(3):
        matrix = np.eye(12)
        for row in decisions.filter(decisions["round"] == round).iter_rows(named=True):
            assert sorted(row["chosen"]) == sorted(row["peers"])
            for peer, weight in zip(row["chosen"], row["weights"] or (), strict=True):
                matrix[row["client"], peer] = weight
                matrix[row["client"], row["client"]] -= weight
        assert matrix.min() >= -1e-12
        assert np.allclose(matrix.sum(axis=0), 1)
        uneven += len(set(decisions.filter(decisions["round"] == round)["degree"])) > 1
    assert uneven  # degrees differed, or uniform weights would have passed
