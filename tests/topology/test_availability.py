"""Availability: repeatable, independent of the method, and strict about traces."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagefl.topology import Always, Availability, Bernoulli, Churn, TopologyError, Trace

Interval = Callable[[float, int, float], tuple[float, float]]


def test_always() -> None:
    assert Always().active(3, 4, 1).tolist() == [True] * 4


@given(share=st.floats(0, 1), clients=st.integers(1, 40), rounds=st.integers(2, 30), seed=st.integers(0, 10**6))
def test_churn_is_an_interval_of_rounds_for_exactly_the_share(
    share: float, clients: int, rounds: int, seed: int
) -> None:
    there = np.stack([Churn(share, rounds).active(t, clients, seed) for t in range(rounds)])
    changes = np.abs(np.diff(there.astype(int), axis=0)).sum(0)
    assert changes.max(initial=0) <= 1  # who has joined stays, who has left stays away
    assert changes.sum() == round(share * clients)
    joined = there[-1] & ~there[0]
    assert joined.sum() == -(-changes.sum() // 2)
    more = np.stack([Churn((1 + share) / 2, rounds).active(t, clients, seed) for t in range(rounds)])
    assert (more[:, changes == 1] == there[:, changes == 1]).all()


def test_between_joining_and_leaving_the_others_rule() -> None:
    others = Bernoulli(0.5)
    assert (Churn(0.0, 9, others).active(3, 50, 1) == others.active(3, 50, 1)).all()
    assert (Churn(0.6, 9, others).active(3, 50, 1) <= others.active(3, 50, 1)).all()
    with pytest.raises(TopologyError, match="churn must be a number between 0 and 1"):
        Churn(1.5, 9)


@given(p=st.floats(0, 1), round=st.integers(0, 10**6), clients=st.integers(1, 50), seed=st.integers(0, 2**40))
def test_bernoulli_is_a_function_of_its_arguments(p: float, round: int, clients: int, seed: int) -> None:
    once, again = (Bernoulli(p).active(round, clients, seed) for _ in range(2))
    assert once.dtype == np.bool_
    assert once.shape == (clients,)
    assert (once == again).all()
    # Coupled: a higher probability only adds clients.
    assert (once <= Bernoulli((1 + p) / 2).active(round, clients, seed)).all()


def test_bernoulli_frequency_and_independence(interval: Interval) -> None:
    rounds = np.stack([Bernoulli(0.7).active(t, 200, seed=1) for t in range(200)])
    # 40,000 client-rounds in the 99.999 % binomial interval; also both of two clients or two rounds at once.
    low, high = interval(0.99999, rounds.size, 0.7)
    assert low <= rounds.sum() <= high
    for both in (rounds[1:] & rounds[:-1], rounds[:, 1:] & rounds[:, :-1]):
        # Neighbouring pairs overlap, which at most triples the variance; hence the wider sqrt(3) interval.
        sd = np.sqrt(3 * both.size * 0.49 * 0.51)
        assert abs(both.sum() - 0.49 * both.size) < 4.5 * sd


def test_bernoulli_extremes_rounds_and_seeds() -> None:
    assert not Bernoulli(0).active(0, 100, 1).any()
    assert Bernoulli(1).active(0, 100, 1).all()
    half = Bernoulli(0.5)
    assert (half.active(0, 100, 1) != half.active(1, 100, 1)).any()
    assert (half.active(0, 100, 1) != half.active(0, 100, 2)).any()
    assert half.active(0, 3, seed=(1, 2)).shape == (3,)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), "often", None, True])
def test_a_bad_probability_is_refused(p: float) -> None:
    with pytest.raises(TopologyError, match="availability p must be a number between 0 and 1"):
        Bernoulli(p)


@pytest.mark.parametrize("who", [Always(), Bernoulli(0.5)])
def test_bad_rounds_and_clients_are_refused(who: Availability) -> None:
    with pytest.raises(TopologyError, match="round must be a whole number of at least 0"):
        who.active(-1, 3, 1)
    with pytest.raises(TopologyError, match="clients must be a whole number of at least 1"):
        who.active(0, 0, 1)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("# three rounds, four clients\n1,1,0,1\n\n0 0 0 0\n1, 0, 1, 1 # the last\n")
    return path


def test_a_trace_cycles_or_holds(trace: Path) -> None:
    cycle, hold = Trace(trace), Trace(str(trace), beyond="hold")
    expected = [[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]]
    for t in range(9):
        assert cycle.active(t, 4, 1).tolist() == [bool(x) for x in expected[t % 3]]
        assert hold.active(t, 4, 1).tolist() == [bool(x) for x in expected[min(t, 2)]]


def test_a_trace_is_a_plain_value(trace: Path) -> None:
    who = Trace(trace)
    assert pickle.loads(pickle.dumps(who)) == who
    assert repr(who) == f"Trace(path={trace!r}, beyond='cycle')"
    who.active(0, 4, 1)[:] = False  # a copy: the trace itself stays
    assert who.active(0, 4, 1).any()


def test_a_trace_of_another_size_is_refused(trace: Path) -> None:
    with pytest.raises(TopologyError, match="describes 4 clients, the run has 5"):
        Trace(trace).active(0, 5, 1)
    with pytest.raises(TopologyError, match="round must be"):
        Trace(trace).active(-1, 4, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0\n1 2\n", r"bad\.csv', line 2: expected one 0 or 1 per client, got '2'"),
        ("a,b\n1,0\n", "line 1: expected one 0 or 1 per client, got 'a'"),
        ("1 0\n\n1\n", "line 3: 1 values, but the first line has 2"),
        ("# nothing\n", "has no rounds"),
    ],
)
def test_a_bad_trace_is_refused_when_it_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(TopologyError, match=message):
        Trace(path)


def test_a_missing_trace_and_a_bad_option(tmp_path: Path, trace: Path) -> None:
    with pytest.raises(TopologyError, match="cannot read the availability trace"):
        Trace(tmp_path / "absent.csv")
    with pytest.raises(TopologyError, match="beyond must be 'cycle' or 'hold', got 'stop'"):
        Trace(trace, beyond="stop")  # type: ignore[arg-type]
