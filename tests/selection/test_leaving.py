"""Peers that leave when it suits them, through real decisions with default options: leaving never helps.

Everybody is exactly tied in every round, so every certificate is false. Whoever leaves knows the coin: it sees first
which anchors were drawn and what everybody would answer. The controls show what leaving wins if a rule goes by those
who are left, and forgets the round when nobody is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from real_runs import false_runs, proven
from run_nulls import NAN, Null, Play, Seen, limits, tied

from sagefl import Draws, Hood, Inspect, Reason, SageM, Selector
from sagefl.selection.outcome import State
from sagefl.selection.selector import Deciding

DELTA = 0.1
PEERS = ("ada", "bob", "cyd", "dan")
PATIENCE = SageM().patience


# Who leaves when ------------------------------------------------------------------------------------------------------


def ahead(play: Play, asked: np.ndarray) -> np.ndarray:
    """Runs x peers: who is ahead of the mean of the others on the anchors of this round."""
    wrong = asked[:, :, : play.null.each].sum(axis=-1)
    return wrong * play.null.degree < wrong.sum(axis=1, keepdims=True)


def leaving(who: Callable[[np.ndarray], np.ndarray], after: int = 0) -> Seen:
    """`who` says who leaves, after an answer to the first anchor, given who is ahead; peer 0 comes `after` rounds."""

    def seen(play: Play, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        silent = np.zeros(asked.shape, dtype=bool)
        silent[:, :, 1:] = who(ahead(play, asked))[:, :, None]
        if play.round < after:
            silent[:, 0] = True  # not there yet
        return np.where(silent, NAN, asked), silent

    return seen


def only(*peers: int) -> Callable[[np.ndarray], np.ndarray]:
    """These leave, each when it is not ahead."""
    return lambda ahead: ~ahead & np.isin(np.arange(ahead.shape[1]), peers)


def together(*peers: int) -> Callable[[np.ndarray], np.ndarray]:
    """These leave together, whenever peer 0 is not ahead."""
    return lambda ahead: ~ahead[:, :1] & np.isin(np.arange(ahead.shape[1]), peers)


def against(*peers: int) -> Callable[[np.ndarray], np.ndarray]:
    """These leave together, whenever peer 0 is ahead: so that it looks bad."""
    return lambda ahead: ahead[:, :1] & np.isin(np.arange(ahead.shape[1]), peers)


WORLDS: dict[str, Null] = {
    "a newcomer leaves when behind": Null(4, 40, tied(), leaving(only(0), after=PATIENCE)),
    "each leaves when behind": Null(4, 40, tied(), leaving(only(0, 1, 2, 3))),
    "two collude": Null(2, 40, tied(), leaving(together(0, 1))),
    "all leave": Null(4, 40, tied(), leaving(together(0, 1, 2, 3))),
    "colluders leave one alone": Null(4, 40, tied(), leaving(together(1, 2, 3))),
    "all leave to make one look bad": Null(4, 40, tied(), leaving(against(0, 1, 2, 3))),
    "all but one leave to make it look bad": Null(4, 40, tied(), leaving(against(1, 2, 3))),
    "a small pool": Null(3, 8, tied(), leaving(together(0, 1, 2)), each=4),
    "above nobody's line": Null(3, 40, tied(), leaving(only(0, 1, 2)), line=lambda round: 0.5),
}


@dataclass(frozen=True)
class Forgiving(SageM):
    """A control: goes by those who are left, as if the others had never been there."""

    remembers: ClassVar[bool] = False  # nobody left: what was remembered before the round

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        return (yield from super().decide(replace(hood, silent=()), state, rng))


def default(null: Null) -> SageM:
    return SageM(block=null.each)


def sharp(null: Null) -> SageM:
    """It asks seldom, and is played with for long: newcomers alone are asked about."""
    return SageM(block=null.each, recheck=0.0)


def forgiving(null: Null) -> Selector:
    return Forgiving(block=null.each)


def share(rule: Callable[[Null], Selector], name: str, runs: int, rounds: int) -> tuple[float, float]:
    """The 95 % limits of the share of receivers that ever hold a certificate."""
    null = WORLDS[name]
    false = false_runs(rule, null, runs, rounds, proven(null))
    return limits(int(false.any(axis=1).sum()), runs)


ALONE = "a newcomer leaves when behind"
EXPLOITS = (ALONE, "two collude", "all leave", "all leave to make one look bad", "a small pool")


@pytest.mark.parametrize("name", ["two collude", ALONE])
def test_leaving_in_short(name: str) -> None:
    assert share(default, name, 40, 40)[1] <= DELTA


@pytest.mark.slow
@pytest.mark.parametrize("rule", [default, sharp])
@pytest.mark.parametrize("name", WORLDS)
def test_leaving_never_helps(name: str, rule: Callable[[Null], Selector]) -> None:
    """Over 250 rounds, with and without rechecks: at most delta, with room to spare."""
    low, high = share(rule, name, 100, 250)
    assert low <= DELTA, f"{name}: at least {low:.4f}"
    assert high <= DELTA, f"{name}: up to {high:.4f}"


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPLOITS)
def test_forgetting_who_left_shows(name: str) -> None:
    low, _ = share(forgiving, name, 100, 100)
    assert low > DELTA, f"{name}: only {low:.4f}"


def test_forgetting_who_left_shows_in_short() -> None:
    assert share(forgiving, "two collude", 40, 40)[0] > DELTA


# What is booked -------------------------------------------------------------------------------------------------------


def settled() -> State:
    """Everybody has been asked for as long as patience lasts, and nothing is proven: nobody is asked any more."""
    state: State = {}
    for t in range(PATIENCE):
        decision = SageM(recheck=0).begin(PEERS, 8, (1, t), state=state, round=t, ever=5, price=1e-4)
        decision.answer(np.full(decision.request.shape, 0.5))
        state = decision.outcome.state or {}
    return state


def capital(state: State | None) -> dict[str, list[float]]:
    assert state is not None
    found: dict[str, list[float]] = state["capital"]
    return found


def newcomer(state: State) -> tuple[State, State]:
    """The states after a round in which eve answers as everybody does, and after one in which she leaves."""
    begun = SageM(recheck=0).begin((*PEERS, "eve"), 8, 1, state=state, round=PATIENCE, ever=5, price=1e-4)
    assert begun.request.peers == (*PEERS, "eve")
    left = begun.restart(PEERS)
    assert left.request.peers == PEERS  # the others are asked all the same
    for decision in (begun, left):
        decision.answer(np.full(decision.request.shape, 0.5))
    assert begun.outcome.state is not None
    assert left.outcome.state is not None
    return begun.outcome.state, left.outcome.state


def test_a_newcomer_who_leaves_is_bet_on_and_grows_old() -> None:
    stayed, left = newcomer(settled())
    better, worse, _, bets, useless = capital(left)["eve"]
    assert max(better, worse) < 0
    assert bets == 1
    assert useless <= 0
    assert capital(stayed).keys() == capital(left).keys()
    for peer, held in capital(left).items():
        assert all(now <= then + 1e-12 for now, then in zip(held[:2], capital(stayed)[peer][:2], strict=True))
    state = left
    for t in range(1, PATIENCE):
        _, state = newcomer(state)
        assert capital(state)["eve"][3] == t + 1
    assert SageM(recheck=0).begin((*PEERS, "eve"), 8, 1, state=state, round=99, ever=5).request is None


def test_a_round_is_paid_for_whoever_leaves() -> None:
    before = settled()
    stayed, left = newcomer(before)
    assert left["spent"] == stayed["spent"] == pytest.approx(before["spent"] + 5 * 8 * 1e-4)
    gone = SageM(recheck=0).begin((*PEERS, "eve"), 8, 1, state=before, round=PATIENCE, ever=5, price=1e-4).restart([])
    assert gone.outcome.state["spent"] == stayed["spent"]


def test_where_all_leave_bets_are_lost_and_nobody_is_pulled() -> None:
    outcome = SageM().begin(PEERS, 8, ever=4).restart([]).outcome
    assert (outcome.reason, outcome.peers, outcome.evaluations) == (Reason.FAILED, (), 0)
    for better, worse, *_ in capital(outcome.state).values():
        assert max(better, worse) < 0
    one_by_one = SageM().begin(PEERS, 8, ever=4).restart(PEERS[2:]).restart([]).outcome
    assert one_by_one.state == outcome.state


def test_a_peer_that_answered_and_then_leaves_is_silent_too() -> None:
    """When its model is tried, or fetched: what it had answered does not count for it, nor against the others."""
    told = {"ada": 0.0, "bob": 1.0}
    decision = SageM(outside="home").begin(("ada", "bob"), 8, 3, ever=2)
    decision.answer([[told[p]] * 8 for p in decision.request.peers])
    assert isinstance(decision.request, Inspect)
    (tried,) = decision.request.peers
    (other,) = {"ada", "bob"} - {tried}
    again = decision.restart((other,))
    assert isinstance(again.request, Inspect)  # what the other had answered is not asked again
    again.answer([0.2, 0.2])
    silent = SageM(outside="home").begin(("ada", "bob"), 8, 3, ever=2).restart((other,))
    silent.answer([[told[other]] * 8])
    silent.answer([0.2, 0.2])
    assert again.outcome.peers == (other,)
    assert capital(again.outcome.state) == capital(silent.outcome.state)


def test_half_an_answer_is_none() -> None:
    decision = SageM().begin(PEERS, 8, ever=4)
    decision.answer(np.zeros((4, 5)))
    some, none = decision.restart(PEERS[:3]), SageM().begin(PEERS, 8, ever=4).restart(PEERS[:3])
    some.answer(np.zeros((3, 3)))
    none.answer(np.zeros((3, 8)))
    assert capital(some.outcome.state) == capital(none.outcome.state)


def test_with_one_other_neighbour_left_both_are_bet_on() -> None:
    decision = SageM().begin(("ada", "bob"), 8, ever=2).restart(("ada",))
    decision.answer([[1.0] * 8])
    held = capital(decision.outcome.state)
    assert decision.outcome.peers == ("ada",)
    lost = held["ada"][0]
    assert lost < 0
    assert held["ada"][:2] == [lost, 0]  # always wrong: bob counts as never wrong, then as always wrong
    assert held["bob"][:2] == [0, lost]


def test_whoever_was_not_asked_may_leave() -> None:
    state = settled()
    decision = SageM(recheck=0).begin(PEERS, 8, 1, state=state, round=PATIENCE, ever=5).restart(PEERS[:2])
    assert capital(decision.outcome.state) == capital(state)
