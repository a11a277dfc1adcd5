"""The contract of a selector: requests of every kind, answered, checked and priced as what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from authored import Scripted, Shopper, ThriftyLeader

from sagefl import (
    ME,
    DecisionError,
    Draws,
    Exchange,
    Hood,
    Inspect,
    Probe,
    Read,
    Reason,
    SageEVanilla,
    Selector,
    replay,
)
from sagefl.selection.outcome import State
from sagefl.selection.scoring import LABEL_ERRORS, Scoring, scoring
from sagefl.selection.selector import Deciding

PEERS = ("a", "b", "c", "d")
LATENTS, LATENTS_CE = scoring("latents", "error"), scoring("latents", "ce")


def asks(*requests: Any) -> Scripted:
    return Scripted(lambda hood: list(requests))


# Masks ----------------------------------------------------------------------------------------------------------------


def test_a_masked_probe_is_asked_and_paid_as_masked() -> None:
    losses = (np.random.default_rng(1).random((4, 16)) < [[0.9], [0.1], [0.9], [0.9]]).astype(float)
    decision = ThriftyLeader().begin(PEERS, 16, seed=3)
    assert decision.request.mask is None
    decision.answer(losses[:, :8])
    probe = decision.request
    assert probe.shape == (4, 8)
    assert probe.mask[1].all()
    assert (probe.mask.sum(axis=0) == 2).all()
    assert probe.evaluations == 16
    decision.answer(losses[:, 8:])
    outcome = decision.outcome
    assert outcome.peers == ("b",)
    assert outcome.evaluations == 4 * 8 + 16
    assert outcome.anchors == 16
    more, mask = outcome.state["more"], outcome.state["mask"]
    assert (more[mask] == losses[:, 8:][mask]).all()
    assert np.isnan(more[~mask]).all()  # what was not asked is not seen, even if the driver sent it
    assert outcome == replay(ThriftyLeader(), losses, 3, peers=PEERS)


def test_a_masked_probe_in_pieces() -> None:
    """Columns that nobody answers are skipped; entries outside the mask may hold anything."""
    mask = np.zeros((2, 6), dtype=bool)
    mask[0, 1] = mask[1, 4] = mask[0, 4] = True
    decision = asks(Probe(("a", "b"), 0, 6, mask=mask)).begin(("a", "b"), 6)
    assert (decision.request.start, decision.request.stop) == (1, 6)
    assert decision.request.mask.tolist() == mask[:, 1:].tolist()
    assert decision.request.evaluations == 3
    decision.answer([[0.25, np.nan, -7.0], [np.nan, np.inf, 9.0]])
    assert (decision.request.start, decision.request.stop) == (4, 6)
    assert decision.ledger.evaluations == 1
    decision.answer([[0.5], [1.0]])
    assert decision.outcome.evaluations == 3  # the last column is asked of nobody
    heard = decision.outcome.state["heard"][0]
    assert heard[mask].tolist() == [0.25, 0.5, 1.0]
    assert np.isnan(heard[~mask]).all()


def test_a_mask_that_asks_nobody_costs_nothing() -> None:
    decision = asks(Probe(PEERS, 0, 3, mask=np.zeros((4, 3), dtype=bool))).begin(PEERS, 6)
    assert decision.outcome.evaluations == 0
    assert np.isnan(decision.outcome.state["heard"][0]).all()


def test_a_mask_over_what_is_partly_known() -> None:
    """Only what is in the mask and new is asked; only what is in the mask is answered, even if more is known."""
    mask = np.array([[True, False, True, False], [False, False, False, True]])
    losses = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])
    decision = asks(Probe(("a", "b"), 0, 2), Probe(("a", "b"), 0, 4, mask=mask)).begin(("a", "b"), 4)
    decision.answer(losses[:, :2])
    assert decision.request.start == 2
    assert decision.request.mask.tolist() == [[True, False], [False, True]]
    decision.answer(losses[:, 2:])
    assert decision.outcome.evaluations == 4 + 2
    heard = decision.outcome.state["heard"][1]
    assert heard[mask].tolist() == [0.1, 0.3, 0.8]
    assert np.isnan(heard[~mask]).all()


def test_masked_losses_are_still_checked() -> None:
    mask = np.array([[True, False], [False, True]])
    decision = asks(Probe(("a", "b"), 0, 2, mask=mask)).begin(("a", "b"), 2)
    with pytest.raises(ValueError, match=r"\[0, 1\], got 7"):
        decision.answer([[0.0, 0.0], [0.0, 7.0]])
    decision.answer([[0.0, 7.0], [7.0, 1.0]])
    assert decision.outcome.evaluations == 2


# Some peers, twice, in other kinds ------------------------------------------------------------------------------------


def test_a_probe_of_some_peers() -> None:
    losses = np.arange(16).reshape(4, 4) / 16
    rule = asks(Probe(("d", "b"), 1, 3), Probe(PEERS, 0, 4))
    decision = rule.begin(PEERS, 4)
    decision.answer(losses[[3, 1], 1:3])
    rest = decision.request  # the second probe asks only for what is new
    assert rest.mask.tolist() == [[True] * 4, [True, False, False, True], [True] * 4, [True, False, False, True]]
    assert rest.evaluations == 12
    decision.answer(losses)
    assert decision.outcome.evaluations == 16
    first, second = decision.outcome.state["heard"]
    assert (first == losses[[3, 1], 1:3]).all()
    assert (second == losses).all()
    assert replay(rule, losses, peers=PEERS) == decision.outcome


def test_asking_twice_is_paid_once() -> None:
    decision = asks(Probe(PEERS, 0, 4), Probe(PEERS, 0, 4), Probe(("c",), 2, 3)).begin(PEERS, 4)
    decision.answer(np.full((4, 4), 0.5))
    assert decision.request is None
    assert decision.outcome.evaluations == 16


class Careless(Selector):
    """Overwrites its answer, then asks for the same again."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        losses = yield Probe(hood.peers, 0, 4)
        losses[:] = 0
        again = yield Probe(hood.peers, 0, 4)
        return Exchange.gossip(hood.peers[0], Reason.COMMITTED, state={"again": again})


@pytest.mark.parametrize("width", [1, 4])
def test_a_rule_cannot_spoil_what_it_is_handed(width: int) -> None:
    decision, mine = Careless().begin(PEERS, 4), np.full((4, width), 0.5)
    while decision.request is not None:
        decision.answer(mine)
    assert (decision.outcome.state["again"] == 0.5).all()
    assert (mine == 0.5).all()  # nor the caller's array


def test_kinds_of_probes_are_kept_and_counted_apart() -> None:
    decision = asks(Probe(PEERS, 0, 2), Probe(PEERS, 0, 2, LATENTS_CE), Probe(PEERS, 0, 2, LATENTS))
    decision = decision.begin(PEERS, 4)
    for value in (0.0, 0.5, 1.0):
        decision.answer(np.full((4, 2), value))
    assert [h.mean() for h in decision.outcome.state["heard"]] == [0.0, 0.5, 1.0]
    assert decision.outcome.evaluations == 24
    assert decision.ledger.asked == {LABEL_ERRORS: 8, LATENTS_CE: 8, LATENTS: 8}


class Undeclared(Selector):
    """Says nothing of the latents it asks for."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        yield Probe(hood.peers, 0, 2, LATENTS)
        return Exchange.none()


class FarReaching(Selector):
    """Asks for more anchors than it says it can."""

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        return (LATENTS,)

    @property
    def reach(self) -> int:
        return 8

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        yield Probe(hood.peers, 0, 9, LATENTS)
        return Exchange.none()


def test_a_rule_asks_for_nothing_that_it_has_not_declared() -> None:
    """Privacy, recording and replay rely on what a rule declares, before it has asked for anything."""
    with pytest.raises(ValueError, match="Undeclared asked for latents scored by error, but declares labels scored by"):
        Undeclared().begin(PEERS, 16)
    with pytest.raises(ValueError, match=r"FarReaching asked for 9 anchors, but declares a `reach` of 8"):
        FarReaching().begin(PEERS, 16)


# Inspect and Read -----------------------------------------------------------------------------------------------------


def shop(decision: Any, values: dict[Any, float], mixed: dict[Any, float], heads: dict[Any, float]) -> list[Any]:
    """Answer a Shopper; returns what it asked."""
    asked = []
    while (request := decision.request) is not None:
        asked.append(request)
        if isinstance(request, Read):
            decision.answer([np.full(3, heads[p]) for p in request.peers])
        elif request.groups is not None:
            decision.answer([mixed[g[1]] for g in request.groups])
        else:
            decision.answer([values[p] for p in request.peers])
    return asked


HEADS = {ME: 0.0, "a": 5.0, "b": 1.0, "c": 2.0, "d": 9.0}
VALUES = {ME: 1.0, "a": 0.1, "b": 0.9, "c": 0.8, "d": 0.1}
MIXED = {"a": 0.2, "b": 0.5, "c": 1.5, "d": 0.2}


def test_models_and_messages_are_priced() -> None:
    decision = Shopper().begin(PEERS, 0)
    asked = shop(decision, VALUES, MIXED, HEADS)
    assert asked[0] == Read((ME, *PEERS), "head")
    assert asked[1] == Inspect((ME, "b", "c"), "train", "ce")
    assert asked[1].models == ("b", "c")
    outcome = decision.outcome
    assert outcome.inspected == ("b", "c")  # twice looked at, once moved; oneself is free
    assert outcome.reads == {"head": 4}
    assert outcome.evaluations == outcome.anchors == 0
    assert outcome.peers == ("b",)
    assert outcome.weights == {"b": 0.25}
    assert outcome.state["values"].tolist() == [1.0, 0.9, 0.8]


def test_inspections_may_return_rows() -> None:
    decision = asks(Inspect(("b", ME), "anchor", "losses")).begin(PEERS, 3)
    decision.answer([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert decision.outcome.state["heard"][0].shape == (2, 3)
    assert decision.outcome.inspected == ("b",)


def test_what_is_read_may_differ_in_shape() -> None:
    decision = asks(Read(("a", "b", "c"), "mask")).begin(PEERS, 3)
    decision.answer([1, [2, 3], np.ones((2, 2))])
    assert [h.shape for h in decision.outcome.state["heard"][0]] == [(), (2,), (2, 2)]
    assert decision.outcome.reads == {"mask": 3}


@pytest.mark.parametrize(
    ("request_", "answer", "says"),
    [
        (Inspect(("a", "b")), [1.0], r"per inspected model \(2\), got shape \(1,\)"),
        (Inspect(("a", "b")), 3.0, r"per inspected model \(2\), got shape \(\)"),
        (Inspect(("a", "b")), [1.0, np.nan], "got nan"),
        (Inspect(("a", "b")), ["x", "y"], "expected one finite number"),
        (Inspect(("a", "b")), [[1.0], [1.0, 2.0]], "expected one finite number"),
        (Inspect(("a", "b")), [[1.0], [2.0]], r"one finite number per inspected model \(2\), got shape \(2, 1\)"),
        (Inspect(("a", "b"), groups=(("a", ME),)), [1.0, 2.0], r"per inspected model \(1\), got shape \(2,\)"),
        (Read(("a", "b"), "loss"), [1.0], r"per peer read \(2\), got 1"),
        (Read(("a", "b"), "loss"), 1.0, "expected one finite number"),
        (Read(("a", "b"), "loss"), [1.0, np.inf], "not"),
        (Read(("a", "b"), "loss"), [1.0, "x"], "expected one finite number"),
    ],
)
def test_bad_answers_leave_it_open(request_: Any, answer: Any, says: str) -> None:
    decision = asks(request_).begin(PEERS, 3)
    with pytest.raises(ValueError, match=says):
        decision.answer(answer)
    assert decision.request == request_
    assert decision.ledger.inspected == {}
    assert decision.ledger.reads == {}
    decision.answer([0.5] * len(request_.entries))
    assert decision.outcome.reason is Reason.COMMITTED


def test_losses_by_sample_are_rows() -> None:
    """One mean per model would be broadcast along the wrong axis."""
    decision = asks(Inspect(("a", "b"), metric="losses")).begin(PEERS, 3)
    with pytest.raises(DecisionError, match=r"one finite row of losses per inspected model \(2\), got shape \(2,\)"):
        decision.answer([0.1, 0.2])
    decision.answer([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert decision.outcome.reason is Reason.COMMITTED


def test_recorded_losses_answer_probes_only() -> None:
    with pytest.raises(ValueError, match="Scripted asks for Inspect: recorded losses answer probes only"):
        replay(asks(Inspect((0,))), np.zeros((2, 4)))


# State ----------------------------------------------------------------------------------------------------------------


def test_state_travels_from_round_to_round() -> None:
    losses = np.zeros((4, 16))
    first = replay(ThriftyLeader(), losses, 1)
    second = replay(ThriftyLeader(), losses, 2, state=first.state)
    assert (first.state["rounds"], second.state["rounds"]) == (1, 2)


def test_the_neighbourhood_says_round_length_and_receiver() -> None:
    seen: list[Hood] = []
    rule = Scripted(lambda hood: seen.append(hood) or [])
    rule.begin(PEERS, 7, round=3, rounds=250, me="k")
    assert seen == [Hood(PEERS, 7, 3, 250, "k")]


# Mistakes of selector authors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ("please", "yielded 'please'; a selector yields Probe, Inspect or Read"),
        (Probe(("a", "x"), 0, 1), r"not in the neighbourhood: \[\"'x'\"\]"),
        (Probe((ME,), 0, 1), "probes ME, itself: probes go to neighbours"),
        (Inspect(("a",), "anchr"), "inspects the split 'anchr'; expected one of anchor, train"),  # type: ignore[arg-type]
        (Inspect(("a",), metric="cee"), "inspects the metric 'cee'; expected one of ce, error"),  # type: ignore[arg-type]
        (Read(("a",), "last_layer"), "reads 'last_layer', did you mean 'last-layer'"),
        (Inspect(("x",)), "not in the neighbourhood"),
        (Read(("x",), "head"), "not in the neighbourhood"),
        (Probe(("a", "a"), 0, 1), "asked a peer twice"),
        (Probe(PEERS, 0, 4), r"asked for anchors 0\.\.4 of a pool of 3"),
        (Probe(PEERS, 2, 2), r"asked for anchors 2\.\.2"),
        (Probe(PEERS, -1, 2), r"asked for anchors -1\.\.2"),
        (Probe(PEERS, 0, 2, mask=np.ones((2, 2), dtype=bool)), r"a boolean array of shape \(4, 2\), got \(2, 2\)"),
        (Probe(PEERS, 0, 2, mask=np.ones((4, 2))), "a boolean array"),
        (Inspect(("a",), groups=(("a", "b"),)), "averages models it did not ask for"),
    ],
)
def test_impossible_requests_name_the_selector(request_: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"Scripted.*{says}"):
        asks(request_).begin(PEERS, 3)


class Returns(Selector):
    def __init__(self, make: Callable[[], Any]) -> None:
        object.__setattr__(self, "make", make)

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        yield from ()
        return self.make()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: "a", "returned 'a', not an Exchange"),
        (lambda: None, "returned None, not an Exchange"),
        (lambda: Exchange.select("x", Reason.COMMITTED), "chose 'x', which is not in the neighbourhood"),
        (lambda: Exchange.merge(["a"], Reason.COMMITTED, {"a": 0.1, "x": 0.1}), "chose 'x'"),
        (lambda: Exchange.merge(["a", "b"], Reason.COMMITTED, {"a": 0.1}), "weighs .*'a'.*, but chose .*'b'"),
        (lambda: Exchange.merge(["a", "b"], Reason.COMMITTED, {"a": 0.9, "b": 0.9}), "sum to at most 1"),
        (lambda: Exchange.merge(["a", "b"], Reason.COMMITTED, {"a": -0.1, "b": 0.9}), "not negative"),
        (lambda: Exchange.merge(["a"], Reason.COMMITTED, {"a": math.nan}), "finite"),
        (lambda: Exchange(("a", "b"), True, Reason.COMMITTED), "pulls 2 models without saying their weights"),
        (lambda: Exchange.push(["a", "a"], Reason.COMMITTED), "chose a peer twice"),
    ],
)
def test_impossible_exchanges_name_the_selector(make: Callable[[], Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"Returns.*{says}"):
        Returns(make).begin(PEERS, 3)


def test_a_rule_that_fails_ends_its_decision() -> None:
    """Nothing is charged twice, and the error stays the one that counts."""
    losses = np.zeros((4, 16))
    losses[1, 3] = 0.5
    decision = SageEVanilla().begin(PEERS, 64)
    with pytest.raises(ValueError, match="use sage-e instead"):
        decision.answer(losses)
    assert decision.request is None
    for further in (lambda: decision.answer(np.zeros((4, 16))), lambda: decision.outcome):
        with pytest.raises(DecisionError, match=r"the rule failed .*use sage-e instead.*begin anew"):
            further()
    assert decision.ledger.evaluations == 64
    again = decision.restart([PEERS[0], PEERS[2], PEERS[3]])
    assert again.request.start == 16  # what the others had answered is not asked again


def test_kinds_of_exchange() -> None:
    assert Exchange.merge(["a", "b"], Reason.COMMITTED).weights == {"a": 1 / 3, "b": 1 / 3}
    assert Exchange.merge([], Reason.COMMITTED) == Exchange.none()
    pushed = Returns(lambda: Exchange.push(["a", "c"], Reason.COMMITTED)).begin(PEERS, 3).outcome
    assert (pushed.peers, pushed.direction, pushed.selected) == (("a", "c"), "push", True)
