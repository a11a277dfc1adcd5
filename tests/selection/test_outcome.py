"""An outcome is plain data: it goes to JSON and back unchanged, and equal means equal."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from authored import ThriftyLeader
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from sagefl import AnchorQuery, Outcome, Reason, SageNF, SageOS, Stage, VanillaSage, replay
from sagefl.errors import UsageError
from sagefl.selection.outcome import CONTINUE

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | finite | st.text()
peers = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
everything = st.floats()  # NaN and infinities too
some_arrays = st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_, np.dtype("U3")]).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
values = st.recursive(
    scalars | everything | some_arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
risks = st.lists(finite, max_size=4).map(tuple)
stages = st.builds(
    Stage,
    anchors=st.integers(0, 200),
    fired=st.sampled_from([Reason.CERTIFIED, Reason.COST, CONTINUE]),
    test=st.none() | st.just("advantage"),
    risks=st.none() | risks,
    radius=st.none() | finite,
    wealth=st.none() | risks,
    next_cost=st.none() | finite,
)
outcomes = st.builds(
    Outcome,
    peers=st.lists(peers, max_size=4).map(tuple),
    selected=st.booleans(),
    reason=st.sampled_from(Reason),
    weights=st.none() | st.dictionaries(peers, finite | st.just(np.float32(0.25)), max_size=3),
    direction=st.sampled_from(["pull", "push"]),
    anchors=st.integers(0, 500) | st.just(np.int64(7)),
    evaluations=st.integers(0, 10**7),
    inspected=st.lists(peers, max_size=3).map(tuple),
    reads=st.dictionaries(st.text(), st.integers(0, 99), max_size=3),
    trace=st.lists(stages, max_size=3).map(tuple),
    state=st.none() | st.dictionaries(st.text(), values, max_size=4),
)


def identical(a: Any, b: Any) -> bool:
    """Equal with types: 1 is not True, 1 is not 1.0, a list is no tuple, arrays have one dtype and shape."""
    if isinstance(a, np.ndarray):
        alike = isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)
        return alike and repr(a.tolist()) == repr(b.tolist())  # one NaN is as good as another
    if isinstance(a, np.generic):
        return identical(a.item(), b)
    if isinstance(a, dict):
        return isinstance(b, dict) and identical(list(a), list(b)) and all(identical(a[k], b[k]) for k in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(identical, a, b))
    if dataclasses.is_dataclass(a):
        return all(identical(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return bool(a == b) or (a != a and b != b)


@settings(max_examples=300, deadline=None)
@given(outcome=outcomes)
def test_json_and_back(outcome: Outcome) -> None:
    text = outcome.to_json()
    assert "\n" not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = Outcome.from_json(text)
    assert identical(outcome, back)
    assert back.to_json() == text


def test_real_outcomes_go_to_json_and_back() -> None:
    losses = (np.random.default_rng(1).random((5, 128)) < np.linspace(0.05, 0.95, 5)[:, None]).astype(float)
    for rule in (SageOS(), SageOS(probe_cost=1e9), VanillaSage(), SageNF(), AnchorQuery(), ThriftyLeader()):
        for names in (None, [("site", i) for i in range(5)]):
            outcome = replay(rule, losses, 1, peers=names)
            assert Outcome.from_json(outcome.to_json()) == outcome
            assert outcome.peers[0] in (names or range(5))


def test_the_trace_says_what_each_stage_saw() -> None:
    losses = np.ones((6, 128))
    losses[2] = 0
    outcome = replay(SageOS(), losses, 1)
    first, last = outcome.trace
    assert first == Stage(
        anchors=16,
        fired="continue",
        test="advantage",
        risks=(1, 1, 0, 1, 1, 1),
        radius=pytest.approx(0.43923, abs=1e-5),
        width=pytest.approx(0.87847, abs=1e-5),
        advantage=pytest.approx(5 / 6),
        gap=1.0,
        next_cost=pytest.approx(0.192),
    )
    assert (last.anchors, last.fired, last.next_cost) == (32, "certified", pytest.approx(0.384))
    assert outcome.reason == "certified"  # a string enum
    assert json.loads(outcome.to_json())["reason"] == "certified"


def test_reasons_are_the_closed_set() -> None:
    assert {r.value for r in Reason} == {
        "certified", "cost", "exhausted", "no-anchors", "committed", "uniform", "only", "gated", "open",
        "home", "failed", "none",
    }  # fmt: skip


def test_equality_looks_into_arrays() -> None:
    def made(**state: Any) -> Outcome:
        return Outcome(("a",), True, Reason.COMMITTED, state=state)

    assert made(x=np.array([1.0, np.nan])) == made(x=np.array([1.0, np.nan]))
    assert made(x=np.array([1.0, 2.0])) != made(x=np.array([1.0, 3.0]))
    assert made(x=np.array([1.0])) != made(x=np.array([1]))
    assert made(x=np.array([1.0])) != made(x=[1.0])
    assert made(x=[np.zeros(2), (1,)]) == made(x=[np.zeros(2), (1,)])
    assert made(x={"y": np.zeros(2)}) != made(x={"y": np.ones(2)})
    assert made(x=1) != made(y=1)
    assert made() != dataclasses.replace(made(), evaluations=1)
    assert made() != "made"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "not an outcome.*list"),
        ("{}", "these differ:.*'peers'"),
        ('{"peers": [], "colour": 1}', "'colour'"),
        ("nonsense", "Expecting value"),
    ],
)
def test_other_json_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Outcome.from_json(text)


def test_a_reason_that_does_not_exist_is_refused() -> None:
    text = Outcome((), False, Reason.NONE).to_json().replace('"none"', '"because"')
    with pytest.raises(ValueError, match="because"):
        Outcome.from_json(text)


def test_peers_that_json_cannot_carry() -> None:
    with pytest.raises(UsageError, match="peers are named by strings, numbers or tuples"):
        Outcome((frozenset(),), True, Reason.COMMITTED).to_json()
