"""Timelines of three clients computed by hand, and what holds for any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sagefl.clock import Call, Clockwork, Ended, Network, Script, TimedLook, play

NETWORK = Network([1] * 3, [10, 20, 10], [100] * 3, [1000] * 3, [0.1] * 3)  # a link takes 0.2 s
ASKING = Script((TimedLook((Call(1, 50, 10, 10), Call(2, 50, 10, 10))),), TimedLook((Call(1, 0, 200),)))


def played(network: Network, trained: dict[int, float], scripts: dict[int, Script]) -> dict[int, Ended]:
    return play(network, trained, trained, {k: scripts.get(k, Script()) for k in trained})


def test_a_look_at_two_peers_and_then_a_pull() -> None:
    """Both inputs share the uplink until 2.0 and arrive at 2.2; the slower peer answers at 3.2, which is here at 3.5.

    The model is asked for at 3.7, needs two seconds on the peer's uplink and arrives at 5.9.
    """
    ended = played(NETWORK, {0: 1.0, 1: 2.0, 2: 1.0}, {0: ASKING})[0]
    assert ended == pytest.approx((0, 1.0, 3.5, 5.9, 0.0, None))


def test_who_asks_a_peer_that_still_trains_waits_for_it() -> None:
    """The call arrives at 2.2, the peer has trained at 4.0 and answers at 4.5, which is here at 4.8."""
    ended = played(NETWORK, {0: 1.0, 1: 4.0, 2: 1.0}, {0: ASKING})[0]
    assert ended == pytest.approx((0, 1.0, 4.8, 7.2, 1.8, 1))


def test_who_asks_for_an_older_model_does_not_wait() -> None:
    calls = tuple(replace(call, fresh=False) for call in ASKING.looks[0].calls)
    old = Script((TimedLook(calls),), TimedLook((Call(1, 0, 200, fresh=False),)))
    assert played(NETWORK, {0: 1.0, 1: 40.0, 2: 1.0}, {0: old})[0].at == pytest.approx(5.9)


def test_two_pulls_from_one_peer_share_its_uplink() -> None:
    """The first has 100 of 300 bytes when the second begins at 2.2; both get half the uplink until 6.2."""
    pull = Script((), TimedLook((Call(1, 0, 300),)))
    ended = played(NETWORK, {0: 1.0, 1: 0.0, 2: 2.0}, {0: pull, 2: pull})
    assert (ended[0].at, ended[2].at) == pytest.approx((6.4, 7.4))


def test_two_pulls_by_one_client_share_its_downlink() -> None:
    narrow = replace(NETWORK, down=[50, 1000, 1000])
    pull = Script((), TimedLook((Call(1, 0, 100), Call(2, 0, 100))))
    assert played(narrow, dict.fromkeys(range(3), 0.0), {0: pull})[0].at == pytest.approx(0.2 + 4.0 + 0.2)


def test_a_peer_answers_one_call_after_another() -> None:
    """Both calls arrive at 0.2; the second waits until the first is answered at 0.7."""
    ask = Script((TimedLook((Call(1, 0, 0, 10),)),))
    ended = played(NETWORK, dict.fromkeys(range(3), 0.0), {0: ask, 2: ask})
    assert sorted((ended[0].at, ended[2].at)) == pytest.approx([0.9, 1.4])


def test_each_look_costs_a_round_trip() -> None:
    one = Script((TimedLook((Call(1, 0, 0),)),))
    four = Script(one.looks * 4)
    times = [played(NETWORK, dict.fromkeys(range(3), 0.0), {0: s})[0].at for s in (one, four)]
    assert times == pytest.approx([0.4, 1.6])


def test_models_that_were_moved_are_judged_at_home() -> None:
    look = Script((TimedLook((Call(1, 0, 100),), home=20),))
    assert played(NETWORK, dict.fromkeys(range(3), 0.0), {0: look})[0].at == pytest.approx(0.2 + 1 + 0.2 + 2)


# Whatever the scripts -------------------------------------------------------------------------------------------------


def random_case(seed: int) -> tuple[Network, dict[int, float], dict[int, Script]]:
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(3, 8))
    network = Network(*rng.uniform(10, 200, (4, clients)), rng.uniform(0, 0.3, clients))

    def look() -> TimedLook:
        others = rng.permutation(clients)[: rng.integers(1, clients)]
        return TimedLook(
            tuple(Call(int(p), *rng.integers(0, 200, 3).tolist(), bool(rng.random() < 0.8)) for p in others),
            float(rng.integers(0, 30)),
        )

    scripts = {k: Script(tuple(look() for _ in range(rng.integers(0, 4))), look()) for k in range(clients)}
    return network, {k: float(t) for k, t in enumerate(rng.uniform(0, 5, clients))}, scripts


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_faster_than_links_and_machines_allow(seed: int) -> None:
    network, trained, scripts = random_case(seed)
    ended = played(network, trained, scripts)
    assert ended.keys() == scripts.keys()
    end, start = max(e.at for e in ended.values()), min(trained.values())
    calls = [(k, c) for k, s in scripts.items() for look in s.steps for c in look.calls]
    for k in scripts:
        sent = sum(c.there for j, c in calls if j == k) + sum(c.back for _, c in calls if c.peer == k)
        got = sum(c.back for j, c in calls if j == k) + sum(c.there for _, c in calls if c.peer == k)
        work = sum(c.work for _, c in calls if c.peer == k)
        assert end - start >= max(sent / network.up[k], got / network.down[k], work / network.infer[k]) - 1e-9
        alone = sum(
            max((2 * network.between(k, c.peer) for c in look.calls), default=0) + look.home / network.infer[k]
            for look in scripts[k].steps
        )
        assert ended[k].at >= trained[k] + alone - 1e-9
        assert trained[k] <= ended[k].decided <= ended[k].at


@pytest.mark.parametrize("seed", range(5))
def test_twice_as_fast_takes_half_the_time(seed: int) -> None:
    network, trained, scripts = random_case(seed)
    fast = Network(network.train * 2, network.infer * 2, network.up * 2, network.down * 2, network.latency / 2)
    slow = played(network, trained, scripts)
    quick = played(fast, {k: t / 2 for k, t in trained.items()}, scripts)
    assert [quick[k].at for k in slow] == pytest.approx([slow[k].at / 2 for k in slow])


@pytest.mark.parametrize("seed", range(5))
def test_a_clockwork_goes_on_from_any_moment_as_if_it_had_never_stopped(seed: int) -> None:
    network, trained, scripts = random_case(seed)

    def begun() -> Clockwork:
        works = Clockwork(network)
        for k, script in scripts.items():
            works.promise(k, trained[k])
            works.train(k, trained[k])
            works.act(k, script, trained[k])
        return works

    def rest(works: Clockwork) -> list[Any]:
        found = []
        while (event := works.advance()) is not None:
            found.append(event)
        return found

    whole = rest(begun())
    for stop in range(len(whole)):
        works = begun()
        for _ in range(stop):
            works.advance()
        again = Clockwork(network)
        again.load(works.state())
        assert rest(again) == whole[stop:]
