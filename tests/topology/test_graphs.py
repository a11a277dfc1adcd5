"""Graphs: networkx's own where promised, simple, connected, and cheap when large."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sagefl
from sagefl.streams import stream
from sagefl.topology import Graph, GraphKind, TopologyError, build
from sagefl.topology.graphs import ATTEMPTS, EXACT_ER_CLIENTS, _sparse_er

Interval = Callable[[float, int, float], tuple[float, float]]

DRAWN = ("er", "ba", "regular", "ws")
BUILT = tuple(kind for kind in get_args(GraphKind) if kind != "file")


def to_networkx(graph: Graph) -> nx.Graph:
    other = nx.empty_graph(graph.clients)
    other.add_edges_from(graph.edges.tolist())
    return other


def as_sets(edges: object) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in edges}  # type: ignore[attr-defined]


# The facts of the paper's setting


@pytest.mark.parametrize("kind", ["er", "ba"])
def test_seed_1_has_exactly_one_client_of_degree_1(kind: str) -> None:
    graph = build(kind, 50, seed=1)
    assert (graph.degrees == 1).sum() == 1
    assert graph.degrees.min() == 1
    assert graph.seed_used == 1


def test_er_and_ba_are_networkx_graphs_of_the_same_seed() -> None:
    assert as_sets(build("er", 50, 1).edges) == as_sets(nx.erdos_renyi_graph(50, 0.15, seed=1).edges)
    assert as_sets(build("ba", 50, 1).edges) == as_sets(nx.barabasi_albert_graph(50, 3, seed=1).edges)


def test_er_is_networkx_graph_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import would be a good part of the start of a small run."""
    monkeypatch.setitem(sys.modules, "networkx", None)
    for p in (0.0, 0.3, 1.0):
        drawn = build("er", 20, 3, p=p, connected=False)
        assert as_sets(drawn.edges) == as_sets(nx.erdos_renyi_graph(20, p, seed=3).edges)


def test_mean_degrees_of_the_paper(interval: Interval) -> None:
    # 30 graphs of 1,225 pairs: the number of edges lies in the 99.999 % binomial interval around p = .15.
    edges = sum(len(build("er", 50, seed, connected=False).edges) for seed in range(30))
    low, high = interval(0.99999, 30 * 1225, 0.15)
    assert low <= edges <= high
    assert 2 * edges / (30 * 50) == pytest.approx(7.35, abs=0.35)
    assert build("ba", 50, 1).degrees.mean() == pytest.approx(5.64)


def test_a_disconnected_draw_moves_on_by_1000() -> None:
    assert not nx.is_connected(nx.erdos_renyi_graph(50, 0.15, seed=4))
    graph = build("er", 50, seed=4)
    assert graph.seed_used == 1004
    assert as_sets(graph.edges) == as_sets(nx.erdos_renyi_graph(50, 0.15, seed=1004).edges)
    as_drawn = build("er", 50, seed=4, connected=False)
    assert as_drawn.seed_used == 4
    assert not as_drawn.connected


# What holds for every graph


@settings(max_examples=120, deadline=None)
@given(kind=st.sampled_from(BUILT), clients=st.integers(1, 60), seed=st.integers(0, 10_000))
def test_every_graph_is_simple_symmetric_sorted_connected_and_repeatable(kind: str, clients: int, seed: int) -> None:
    options: dict[str, Any] = {"p": 0.4} if kind == "er" else {}
    graph = build(kind, clients, seed, **options)
    assert graph.clients == clients
    assert graph.connected
    for k in range(clients):
        peers = graph.neighbours(k)
        assert (np.diff(peers) > 0).all()
        assert k not in peers
        assert all(k in graph.neighbours(int(j)) for j in peers)
        assert graph.degrees[k] == peers.size
    assert nx.is_connected(to_networkx(graph))
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert 2 * len(graph.edges) == graph.indices.size == graph.degrees.sum()
    again = build(kind, clients, seed, **options)
    assert again == graph
    assert hash(again) == hash(graph)
    assert again.seed_used == graph.seed_used


@settings(max_examples=60, deadline=None)
@given(data=st.data(), clients=st.integers(1, 12))
def test_from_edges_keeps_every_edge_once_and_finds_components(data: st.DataObject, clients: int) -> None:
    node = st.integers(0, clients - 1)
    pairs = data.draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] != e[1]), max_size=20 * (clients > 1)))
    graph = Graph.from_edges(clients, pairs)
    assert as_sets(graph.edges) == as_sets(pairs)
    assert graph.connected == nx.is_connected(to_networkx(graph))


def test_different_seeds_give_different_graphs() -> None:
    for kind in DRAWN:
        assert build(kind, 30, 1) != build(kind, 30, 2)


def test_arrays_are_read_only_and_independent_of_the_caller() -> None:
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    graph = Graph(2, indptr, indices)
    indices[0] = 0
    assert graph.neighbours(0).tolist() == [1]
    for array in (graph.indptr, graph.indices, graph.degrees, graph.edges, graph.receivers, graph.neighbours(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_graph_survives_pickling_and_prints_shortly() -> None:
    graph = build("er", 50, 1)
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert repr(graph) == "Graph(clients=50, edges=177, seed_used=1)"
    assert graph != "graph"


# The shape of each kind


@pytest.mark.parametrize("kind", BUILT)
def test_one_client_is_one_isolated_node(kind: str) -> None:
    graph = build(kind, 1, 1)
    assert graph.neighbours(0).size == 0
    assert graph.edges.shape == (0, 2)
    assert graph.connected
    assert graph.seed_used is None


@pytest.mark.parametrize("kind", BUILT)
def test_two_clients_share_one_edge(kind: str) -> None:
    assert build(kind, 2, 1).edges.tolist() == [[0, 1]]


@pytest.mark.parametrize("kind", BUILT)
@pytest.mark.parametrize("clients", [3, 4, 5, 6, 7])
def test_defaults_shrink_to_few_clients(kind: str, clients: int) -> None:
    assert build(kind, clients, 1).connected


def test_ring_regular_complete_and_watts_strogatz() -> None:
    assert build("ring", 5, 1).neighbours(0).tolist() == [1, 4]
    assert (build("regular", 21, 3, k=6).degrees == 6).all()
    assert (build("regular", 30, 3, k=25).degrees == 25).all()  # through its complement
    assert (build("complete", 9, 1).degrees == 8).all()
    lattice = build("ws", 12, 1, k=4, p=0)
    assert lattice.neighbours(0).tolist() == [1, 2, 10, 11]
    assert len(build("ws", 40, 1, k=6, p=1.0).edges) == 40 * 3


def test_torus() -> None:
    graph = build("torus", 12, 1)  # 3 x 4
    assert (graph.degrees == 4).all()
    assert graph.neighbours(0).tolist() == [1, 3, 4, 8]
    assert nx.is_isomorphic(to_networkx(graph), nx.grid_2d_graph(3, 4, periodic=True))
    assert build("torus", 12, 1, rows=4) == build("torus", 12, 1, cols=3)
    assert build("torus", 7, 1) == build("ring", 7, 1)
    assert (build("torus", 8, 1, rows=2).degrees == 3).all()


def test_degree_is_another_way_to_say_p() -> None:
    assert build("er", 50, 1, degree=0.15 * 49) == build("er", 50, 1, p=0.15)


# Edge lists


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_edge_list_with_comments_both_separators_repeats_and_isolated_clients(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.txt", "\ufeff# a path\n0 1\n\n1,2  # and back\n2, 1\n4\t1\n")
    graph = build("file", 6, 1, path=path)
    assert graph.edges.tolist() == [[0, 1], [1, 2], [1, 4]]
    assert graph.degrees.tolist() == [1, 3, 1, 0, 1, 0]
    assert not graph.connected
    assert graph.seed_used is None
    with pytest.raises(TopologyError, match=r"not connected \(2 clients have no neighbour\)"):
        build("file", 6, 1, path=str(path), connected=True)


def test_an_empty_edge_list_leaves_everyone_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "none.txt", "# nobody\n")
    assert build("file", 3, 1, path=path).degrees.tolist() == [0, 0, 0]
    assert build("file", 1, 1, path=path).connected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3", "expected two client numbers"),
        ("1 2 0.5", "expected two client numbers.*'1 2 0.5'"),
        ("1 x", "expected two client numbers"),
        ("-1 2", "expected two client numbers"),
        ("1 2.0", "expected two client numbers"),
        ("1 5", "no client 5, they are numbered 0 to 4"),
        ("2 2", "client 2 is connected to itself"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "bad.txt", f"# header\n0 1\n{line}\n")
    with pytest.raises(TopologyError, match=rf"bad\.txt', line 3: {message}"):
        build("file", 5, 1, path=path)


def test_an_unreadable_edge_list(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"cannot read the edge list .*No such file.*check the path"):
        build("file", 5, 1, path=tmp_path / "absent.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TopologyError, match="not UTF-8 text"):
        build("file", 5, 1, path=tmp_path / "binary.txt")
    with pytest.raises(TopologyError, match="needs path"):
        build("file", 5, 1)


# Errors


@pytest.mark.parametrize(
    ("kind", "clients", "options", "message"),
    [
        ("erg", 5, {}, "unknown topology 'erg', did you mean 'er'"),
        ("er", 0, {}, "clients must be a whole number of at least 1, got 0"),
        ("er", 5.0, {}, "clients must be a whole number"),
        ("er", True, {}, "clients must be a whole number"),
        ("er", 5, {"p": 1.5}, "p must be a number between 0 and 1, got 1.5"),
        ("er", 5, {"p": float("nan")}, "p must be a number"),
        ("er", 5, {"p": "half"}, "p must be a number"),
        ("er", 5, {"p": 0.5, "degree": 3}, "p or degree, not both"),
        ("er", 5, {"degree": 5}, "degree must be a number between 0 and 4"),
        ("er", 5, {"degre": 3}, "no option 'degre', did you mean 'degree'"),
        ("ring", 5, {"k": 3}, "no option 'k'; it takes no options"),
        ("ba", 5, {"m": 5}, "m < clients, got m = 5 with 5 clients"),
        ("ba", 5, {"m": 0}, "m must be a whole number of at least 1"),
        ("regular", 5, {"k": 3}, r"k \* clients must be even"),
        ("regular", 4, {"k": 4}, "k < clients"),
        ("regular", 6, {"k": 1}, "no connected regular graph over 6 clients in 1 draws"),
        ("ws", 9, {"k": 3}, "even k .* use 2 or 4"),
        ("ws", 4, {"k": 4}, "k < clients"),
        ("torus", 12, {"rows": 5}, "5 x 2 has 10 clients, not 12"),
        ("torus", 12, {"cols": 0}, "cols must be a whole number of at least 1"),
        ("torus", 12, {"rows": 2, "cols": 5}, "2 x 5 has 10 clients"),
    ],
)
def test_what_cannot_be_built_is_explained(kind: str, clients: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        build(kind, clients, 1, **options)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(TopologyError, match="seed must be a whole number of at least 0"):
        build("er", 5, -1)


def test_too_sparse_to_connect() -> None:
    with pytest.raises(TopologyError, match=rf"in {ATTEMPTS} draws starting at seed 1 .*connected=False"):
        build("er", 12, 1, p=0.01)
    with pytest.raises(TopologyError, match=r"in 1 draws .*a mean degree of 9.9 is enough"):
        build("er", 1_000, 1, degree=1)  # told at once, not after 300 draws


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 1], [1, 0], "indptr must have clients"),
        ([0, 1, 1], [1, 0], "indptr must rise from 0 to the 2 entries"),
        ([1, 1, 2], [1, 0], "indptr must rise"),
        ([0, 3, 2], [1, 0], "indptr must rise"),
        ([0, 1, 2], [2, 0], "no client 2: they are numbered 0 to 1"),
        ([0, 1, 2], [0, 1], "client 0 is its own neighbour"),
        ([0, 2, 3], [1, 1, 0], "ascending order without repeats"),
        ([0, 1, 1], [1], "undirected"),
        ([0, 1, 2], [1.0, 0.0], "whole numbers"),
        ([0, 1, 2], [[1, 0]], "flat array"),
    ],
)
def test_malformed_rows_are_refused(indptr: list[int], indices: list[int], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Graph(2, np.array(indptr), np.array(indices))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 0)], "its own neighbour"),
        ([(0, 3)], "no client 3"),
        ([(0, -1)], "no client -1"),
        ([(0.0, 1.0)], "whole numbers"),
        ([(0, 1, 2)], "shape"),
    ],
)
def test_malformed_edges_are_refused(edges: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Graph.from_edges(3, edges)


def test_no_such_client() -> None:
    for client in (-1, 5):
        with pytest.raises(TopologyError, match="numbered 0 to 4"):
            build("ring", 5, 1).neighbours(client)


# Large graphs


@pytest.mark.parametrize(
    ("kind", "options"),
    [("er", {"degree": 12}), ("ba", {"m": 4}), ("regular", {"k": 8}), ("ws", {"k": 8}), ("torus", {}), ("ring", {})],
)
def test_what_is_stored_grows_with_the_clients_not_their_square(kind: str, options: dict[str, Any]) -> None:
    small, large = (build(kind, clients, 1, **options) for clients in (1_250, 10_000))
    assert small.connected
    assert large.connected
    # Eight times the clients, eight times the entries; 5 % for the randomness of er.
    assert large.indices.size / small.indices.size == pytest.approx(8, rel=0.05)
    assert large.indptr.size == 10_001


def test_a_large_sparse_er_connects_by_retrying() -> None:
    graph = build("er", 10_000, 1, degree=8)
    assert graph.connected
    assert graph.seed_used is not None
    assert graph.seed_used % 1000 == 1
    assert graph.degrees.mean() == pytest.approx(8, rel=0.05)


def test_a_large_er_needs_memory_for_its_edges_only() -> None:
    tracemalloc.start()
    try:
        build("er", 10_000, 1, degree=8, connected=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10e6  # one byte for each of the 50 million pairs would be 50 MB


def test_large_er_numbers_every_pair_once() -> None:
    edges = _sparse_er(60, 1.0, stream(1, "test"))
    assert len(edges) == 60 * 59 // 2
    assert as_sets(edges.tolist()) == {(a, b) for b in range(60) for a in range(b)}


def test_large_er_gives_every_pair_its_probability(interval: Interval) -> None:
    draws, p, pairs = 1_500, 0.3, 12 * 11 // 2
    rng, counts = stream(1, "test"), np.zeros((12, 12), dtype=int)
    for _ in range(draws):
        edges = _sparse_er(12, p, rng)
        counts[edges[:, 0], edges[:, 1]] += 1
    # Every pair in its binomial interval, all 66 together with 99.99 % confidence; so is the total.
    low, high = interval(1 - 1e-4 / pairs, draws, p)
    upper = counts[np.triu_indices(12, 1)]
    assert low <= upper.min() <= upper.max() <= high
    low, high = interval(0.9999, draws * pairs, p)
    assert low <= counts.sum() == upper.sum() <= high


@pytest.mark.parametrize("p", [0, 1e-300, 1e-17])
def test_a_vanishing_probability_gives_no_edges(p: float) -> None:
    assert len(build("er", EXACT_ER_CLIENTS + 1, 1, p=p, connected=False).edges) == 0


# networkx is only needed for random graphs


def test_importing_and_lattices_leave_networkx_alone() -> None:
    code = (
        "import sys; from sagefl.topology import build; build('ring', 5, 1); build('torus', 6, 1); "
        "sys.exit(any(name in sys.modules for name in ('networkx', 'torch', 'scipy')))"
    )
    source = str(Path(sagefl.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": source})


def test_without_networkx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"'\.\[sim\]"):
        build("ba", 5, 1)
