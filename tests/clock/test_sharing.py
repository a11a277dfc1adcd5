"""Transfers that share links, against a reference that knows nothing of the clockwork.

The reference goes from one moment to the next in which anything begins or ends and gives every transfer under way its
pace anew. It keeps no queue of events, and nothing of one moment is carried over to the next but bytes and clocks.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf, isinf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.clock import Call, Network, Script, TimedLook, play

CLIENTS = 4
Wish = tuple[str, float, int, int]  # "wait": seconds; "move": bytes from a client to another
Course = Generator[list[Wish], None, None]


def legs(network: Network, client: int, call: Call) -> list[Wish]:
    """A message, the way, the answer, the way: what is done for one call, one after another."""
    way = network.between(client, call.peer)
    made: list[Wish] = []
    for size, source, target in ((call.there, client, call.peer), (call.back, call.peer, client)):
        free = isinf(network.up[source]) and isinf(network.down[target])
        made += [] if not size or free else [("move", size, source, target)]
        made.append(("wait", way, 0, 0))
    return made


def shared(network: Network, starts: dict[int, float], scripts: dict[int, Script]) -> tuple[dict[int, float], float]:
    """When everybody is through, and the bytes that were moved."""
    now, moved, ends = 0.0, 0.0, dict[int, float]()
    looks = {k: [[legs(network, k, call) for call in look.calls] for look in s.steps] for k, s in scripts.items()}
    waits = {k: [[("wait", starts[k], 0, 0)]] for k in scripts}
    under_way: dict[int, list[list[Wish]]] = waits
    while under_way:
        flows = [w[0] for calls in under_way.values() for w in calls if w and w[0][0] == "move"]

        def pace(wish: Wish, flows: list[Wish] = flows) -> float:
            kind, _, source, target = wish
            if kind == "wait":
                return 1.0
            out, into = sum(f[2] == source for f in flows), sum(f[3] == target for f in flows)
            return min(network.up[source] / out, network.down[target] / into)

        active = [(k, i) for k, calls in under_way.items() for i, wishes in enumerate(calls) if wishes]
        paces = {at: pace(under_way[at[0]][at[1]][0]) for at in active}
        step = min((under_way[k][i][0][1] / paces[k, i] for k, i in active), default=0.0)
        now += step
        for k, i in active:
            kind, left, source, target = under_way[k][i][0]
            done = paces[k, i] * step
            moved += done if kind == "move" else 0.0
            rest = left - done
            over = rest <= 1e-9 * max(left, 1.0) or left / paces[k, i] == step
            moved += rest if over and kind == "move" else 0.0
            under_way[k][i] = under_way[k][i][1:] if over else [(kind, rest, source, target), *under_way[k][i][1:]]
        for k in [k for k, calls in under_way.items() if not any(calls)]:
            if looks[k]:
                under_way[k] = looks[k].pop(0)
            else:
                del under_way[k]
                ends[k] = now
    return ends, moved


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Network, dict[int, float], dict[int, Script]]:
    rate = st.sampled_from([5.0, 10.0, 30.0, 100.0])
    up = [draw(rate) for _ in range(CLIENTS)]
    down = [draw(st.sampled_from([8.0, 20.0, 100.0, inf])) for _ in range(CLIENTS)]
    latency = [draw(st.sampled_from([0.0, 0.05, 0.3])) for _ in range(CLIENTS)]
    network = Network([1.0] * CLIENTS, [10.0] * CLIENTS, up, down, latency)
    size = st.sampled_from([0.0, 1.0, 7.0, 50.0, 200.0])
    starts, scripts = {}, {}
    for k in range(CLIENTS):
        others = [p for p in range(CLIENTS) if p != k]
        call = st.builds(Call, st.sampled_from(others), size, size, st.just(0.0), st.just(False))
        look = st.builds(TimedLook, st.lists(call, min_size=1, max_size=3).map(tuple))
        scripts[k] = Script(tuple(draw(st.lists(look, max_size=2))), draw(st.none() | look))
        starts[k] = draw(st.sampled_from([0.0, 0.5, 1.0, 3.7]))
    return network, starts, scripts


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_transfers_share_links_as_in_the_reference(world: tuple[Network, dict[int, float], dict[int, Script]]) -> None:
    network, starts, scripts = world
    expected, moved = shared(network, starts, scripts)
    ended = play(network, dict.fromkeys(range(CLIENTS), 0.0), starts, scripts)
    assert {k: e.at for k, e in ended.items()} == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert moved == pytest.approx(sum(script.bytes for script in scripts.values()))  # no byte is lost or made


def test_the_reference_by_hand() -> None:
    """Two pulls from one peer at 100 a second: 100 bytes each are through at 2 s, then 300 more alone at 5 s."""
    network = Network([1.0] * 3, [1.0] * 3, [100.0] * 3, [inf] * 3, [0.0] * 3)
    pulls = {0: Script((TimedLook((Call(2, 0, 100),)),)), 1: Script((TimedLook((Call(2, 0, 400),)),))}
    ends, moved = shared(network, {0: 0.0, 1: 0.0}, pulls)
    assert ends == pytest.approx({0: 2.0, 1: 5.0})
    assert moved == pytest.approx(500)
