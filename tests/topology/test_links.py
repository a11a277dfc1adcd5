"""Links: drop and delay at their stated rates, the same for every method, and neighbourhoods that follow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.topology import Bernoulli, Graph, Links, TopologyError, build, neighbourhoods

Interval = Callable[[float, int, float], tuple[float, float]]

GRAPH = build("regular", 500, 1, k=10)  # 5,000 directed links


def test_perfect_links_change_nothing() -> None:
    state = Links().sample(GRAPH, 7, seed=1)
    assert state.ok.all()
    assert not state.age.any()
    view = neighbourhoods(GRAPH, np.ones(500, dtype=bool), Links(), 7, seed=1)
    for k in (0, 250, 499):
        assert view.peers(k).tolist() == GRAPH.neighbours(k).tolist()
        assert view.ages(k).tolist() == [0] * 10
    assert (view.degrees == GRAPH.degrees).all()


def test_drop_and_delay_rates(interval: Interval) -> None:
    links, rounds = Links(drop=0.2, delay=0.3, max_delay=4), range(10, 20)
    states = [links.sample(GRAPH, t, seed=1) for t in rounds]
    ok, age = (np.concatenate([getattr(s, name) for s in states]) for name in ("ok", "age"))
    # 50,000 link-rounds; each count in its 99.999 % binomial interval.
    expected = [(~ok, 0.2), (age > 0, 0.3), (~ok & (age > 0), 0.06), *((age == a, 0.075) for a in (1, 2, 3, 4))]
    for happened, rate in expected:
        low, high = interval(0.99999, ok.size, rate)
        assert low <= happened.sum() <= high
    assert age.max() == 4


def test_links_are_directed(interval: Interval) -> None:
    ok = Links(drop=0.5).sample(GRAPH, 0, seed=1).ok
    working = set(zip(GRAPH.receivers[ok].tolist(), GRAPH.indices[ok].tolist(), strict=True))
    both_ways = sum((b, a) in working for a, b in working) // 2
    # 2,500 undirected edges, each open both ways with probability 1/4: the 99.999 % binomial interval.
    low, high = interval(0.99999, 2_500, 0.25)
    assert low <= both_ways <= high


@given(round=st.integers(0, 8), max_delay=st.integers(1, 6), seed=st.integers(0, 1000))
def test_no_snapshot_is_older_than_the_run_or_the_limit(round: int, max_delay: int, seed: int) -> None:
    age = Links(delay=1.0, max_delay=max_delay).sample(GRAPH, round, seed).age
    assert age.max() == min(max_delay, round)
    assert age.min() == min(1, round)


def test_draws_are_keyed_by_seed_and_round_and_drop_leaves_delay_alone() -> None:
    both = Links(drop=0.3, delay=0.4, max_delay=3)
    state = both.sample(GRAPH, 9, seed=5)
    again = both.sample(GRAPH, 9, seed=5)
    assert (state.ok == again.ok).all()
    assert (state.age == again.age).all()
    assert (state.ok != both.sample(GRAPH, 10, seed=5).ok).any()
    assert (state.ok != both.sample(GRAPH, 9, seed=6).ok).any()
    assert (state.age == Links(delay=0.4, max_delay=3).sample(GRAPH, 9, seed=5).age).all()
    assert (state.ok == Links(drop=0.3).sample(GRAPH, 9, seed=5).ok).all()
    assert (state.ok >= Links(drop=0.6).sample(GRAPH, 9, seed=5).ok).all()  # coupled in the drop rate


def test_total_loss() -> None:
    view = neighbourhoods(GRAPH, np.ones(500, dtype=bool), Links(drop=1.0), 0, seed=1)
    assert not view.degrees.any()
    assert view.peers(0).size == view.ages(0).size == 0


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 25),
    seed=st.integers(0, 1000),
    p=st.floats(0, 1),
    drop=st.floats(0, 1),
    delay=st.floats(0, 1),
    round=st.integers(0, 5),
)
def test_neighbourhoods_agree_with_the_obvious_loop(
    clients: int, seed: int, p: float, drop: float, delay: float, round: int
) -> None:
    graph = build("er", clients, seed, p=0.3, connected=False)
    active, links = Bernoulli(p).active(round, clients, seed), Links(drop, delay, max_delay=3)
    view, state = neighbourhoods(graph, active, links, round, seed), links.sample(graph, round, seed)
    for k in range(clients):
        entries = [
            (j, state.age[e])
            for e, j in enumerate(graph.indices.tolist())
            if graph.receivers[e] == k and active[k] and active[j] and state.ok[e]
        ]
        assert view.peers(k).tolist() == [j for j, _ in entries]
        assert view.ages(k).tolist() == [age for _, age in entries]
        assert view.degrees[k] == len(entries)


def test_an_inactive_client_neither_asks_nor_answers() -> None:
    view = neighbourhoods(build("ring", 5, 1), np.array([True, False, True, True, True]), Links(), 0, 1)
    assert view.peers(1).size == 0
    assert [view.peers(k).tolist() for k in (0, 2, 3, 4)] == [[4], [3], [2, 4], [0, 3]]


def test_a_peer_that_is_behind_is_so_on_every_link_on_top_of_its_delay() -> None:
    graph, behind = build("complete", 6, 1), np.array([0, 4, 0, 0, 2, 0])
    links = Links(delay=0.5, max_delay=3)
    for round in (0, 3, 20):
        plain = neighbourhoods(graph, np.ones(6, bool), links, round, 1)
        found = neighbourhoods(graph, np.ones(6, bool), links, round, 1, behind)
        assert (found.staleness == np.minimum(plain.staleness + behind[found.indices], round)).all()


@pytest.mark.parametrize("clients", [1, 3])
def test_isolated_clients(clients: int) -> None:
    graph = Graph.from_edges(clients, [])
    view = neighbourhoods(graph, np.ones(clients, dtype=bool), Links(0.5, 0.5, 2), 4, 1)
    assert view.degrees.tolist() == [0] * clients
    assert view.peers(clients - 1).size == 0


def test_a_view_is_read_only_and_knows_its_clients() -> None:
    view = neighbourhoods(build("ring", 5, 1), np.ones(5, dtype=bool), Links(), 0, 1)
    with pytest.raises(ValueError, match="read-only"):
        view.peers(0)[0] = 3
    for ask in (view.peers, view.ages):
        for client in (-1, 5):
            with pytest.raises(TopologyError, match="numbered 0 to 4"):
                ask(client)


def test_snapshots_to_keep() -> None:
    assert Links(delay=0.1, max_delay=5).history == 5
    assert Links(max_delay=5).history == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop": 1.1}, "drop must be a number between 0 and 1, got 1.1"),
        ({"delay": -0.1}, "delay must be a number between 0 and 1"),
        ({"max_delay": 0}, "max_delay must be a whole number of at least 1"),
        ({"max_delay": 1.5}, "max_delay must be a whole number"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Links(**options)  # type: ignore[arg-type]


def test_bad_arguments_are_refused() -> None:
    ring = build("ring", 5, 1)
    with pytest.raises(TopologyError, match="round must be"):
        Links().sample(ring, -1, 1)
    for active in (np.ones(4, dtype=bool), np.ones(5), np.array([0, 1, 2])):
        with pytest.raises(TopologyError, match="one truth value for each of the 5 clients"):
            neighbourhoods(ring, active, Links(), 0, 1)
