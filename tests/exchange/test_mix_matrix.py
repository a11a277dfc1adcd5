"""Decisions become one sparse matrix over {self} + peers: rows sum to one, pulls and pushes alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagefl.exchange import delivered, resolve
from sagefl.selection import Exchange, Outcome, RandomGossip, Reason
from sagefl.topology import build


def outcome(exchange: Exchange) -> Outcome:
    return Outcome(exchange.peers, exchange.selected, exchange.reason, exchange.weights, exchange.direction)


def pull(*peers: int) -> Outcome:
    return outcome(Exchange.merge(peers, Reason.COMMITTED))


@st.composite
def rounds(draw: st.DrawFn) -> dict[int, Outcome]:
    """Everybody pulls one, pulls several, pushes or does nothing."""
    clients = draw(st.integers(1, 7))
    made = {}
    for k in range(clients):
        peers = draw(st.lists(st.sampled_from(range(clients)), unique=True, max_size=3))
        peers = [p for p in peers if p != k]
        if draw(st.booleans()):
            made[k] = outcome(Exchange.push(peers, Reason.COMMITTED))
        elif len(peers) == 1:
            made[k] = outcome(Exchange.select(peers[0], Reason.CERTIFIED))
        else:
            made[k] = pull(*peers)
    return made


@given(rounds(), st.floats(0, 1), st.randoms())
def test_every_row_sums_to_one_and_the_order_of_clients_does_not_matter(
    made: dict[int, Outcome], mixing: float, random: object
) -> None:
    mixes = resolve(made, {}, mixing)
    assert list(mixes) == sorted(mixes)
    for client, mix in mixes.items():
        assert mix.own + sum(w for _, _, w in mix.pulls) == pytest.approx(1)
        assert client not in mix.peers
        assert mix.own >= -1e-12
    shuffled = list(made.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert resolve(dict(shuffled), {}, mixing) == mixes


def test_one_pulled_peer_gets_the_mixing_coefficient() -> None:
    mixes = resolve({0: outcome(Exchange.gossip(2, Reason.UNIFORM)), 1: outcome(Exchange.none())}, {}, 0.3)
    assert {k: (m.own, m.pulls) for k, m in mixes.items()} == {0: (0.7, ((2, 0, 0.3),))}


def test_several_pulled_peers_are_averaged_with_oneself() -> None:
    mix = resolve({0: pull(1, 2, 3)}, {}, 0.9)[0]
    assert mix.own == pytest.approx(0.25)
    assert mix.pulls == ((1, 0, 0.25), (2, 0, 0.25), (3, 0, 0.25))


def test_given_weights_are_kept() -> None:
    mix = resolve({0: outcome(Exchange.merge([1, 2], Reason.COMMITTED, {1: 0.1, 2: 0.6}))}, {}, 0.5)[0]
    assert mix.pulls == ((1, 0, 0.1), (2, 0, 0.6))
    assert mix.own == pytest.approx(0.3)


def test_whoever_receives_pushed_models_averages_them_with_its_own() -> None:
    made = {k: outcome(Exchange.push([0], Reason.UNIFORM)) for k in (3, 1, 2)} | {0: outcome(Exchange.none())}
    mixes = resolve(made, {}, 0.5)
    assert list(mixes) == [0]
    assert mixes[0].peers == (1, 2, 3)
    assert mixes[0].own == pytest.approx(0.25)


def test_pushed_models_are_averaged_with_what_was_pulled() -> None:
    made = {0: outcome(Exchange.select(1, Reason.CERTIFIED)), 2: outcome(Exchange.push([0], Reason.UNIFORM))}
    mix = resolve(made, {}, 0.8)[0]
    assert mix.pulls == ((1, 0, pytest.approx(0.4)), (2, 0, 0.5))
    assert mix.own == pytest.approx(0.1)


def test_a_stale_link_hands_over_the_older_block_to_that_receiver_only() -> None:
    made = {0: outcome(Exchange.select(2, Reason.CERTIFIED)), 1: outcome(Exchange.select(2, Reason.CERTIFIED))}
    mixes = resolve(made, {(0, 2): 3}, 0.5)
    assert mixes[0].pulls == ((2, 3, 0.5),)
    assert mixes[1].pulls == ((2, 0, 0.5),)


def test_simulated_peers_are_numbers() -> None:
    with pytest.raises(TypeError, match="client numbers, got 'anna'"):
        resolve({0: outcome(Exchange.select("anna", Reason.CERTIFIED))}, {}, 0.5)


def test_a_push_arrives_iff_its_receiver_hears_the_sender() -> None:
    made = {0: outcome(Exchange.push([1, 2], Reason.COMMITTED)), 1: pull(0, 2), 2: outcome(Exchange.none())}
    told = delivered(made, [[1, 2], [2], [0, 1]])  # 1 does not hear 0
    assert (told[0].peers, told[0].direction) == ((2,), "push")
    assert (told[1], told[2]) == (made[1], made[2])
    assert resolve(told, {}, 0.5)[2].pulls == ((0, 0, 0.5),)


def test_the_neighbours_of_a_graph_are_client_numbers() -> None:
    neighbours = build("ring", 6, 1).neighbours(0)
    chosen = RandomGossip().begin(neighbours, 0, 1).outcome
    assert resolve({0: chosen}, {}, 0.5)[0].peers[0] in {1, 5}
    with pytest.raises(TypeError, match="client numbers"):
        resolve({0: outcome(Exchange.select("b", Reason.CERTIFIED))}, {}, 0.5)
