"""What every method's rule keeps to, whoever drives it: any number of neighbours works, and state is plain data."""

from __future__ import annotations

import copy
import json

import pytest
from driving import Anything, drive

from sagefl.methods import method, methods
from sagefl.selection import ME, Outcome, State
from sagefl.selection.outcome import decode, encode

IDS = list(methods())
ROUNDS = 5
ANCHORS = 40


def rounds(id: str, peers: list[int], *, through_json: bool = False) -> list[Outcome]:
    """Some rounds of one client under `id`; evidence changes from round to round."""
    made, state, outcomes = method(id), None, []
    if made.needs_truth:
        made.tell(lambda me, peer: peer % 2 == 0)
    rule = made.selector
    for t in range(ROUNDS):
        given: State | None = copy.deepcopy(state)
        decision = rule.begin(peers, ANCHORS, (7, t, 0), state=state, round=t, rounds=ROUNDS, me=0)
        outcome = drive(decision, Anything(seed=t))
        assert state == given or str(state) == str(given)  # what was handed in is left alone
        state = outcome.state if outcome.state is not None else state
        if through_json:
            state = decode(json.loads(json.dumps(encode(state))))
        outcomes.append(outcome)
    return outcomes


@pytest.mark.parametrize("degree", [0, 1, 2, 12])
@pytest.mark.parametrize("id", IDS)
def test_any_number_of_neighbours_works(id, degree):
    peers = list(range(1, degree + 1))
    for outcome in rounds(id, peers):
        assert set(outcome.peers) <= set(peers)
        assert len(set(outcome.peers)) == len(outcome.peers)
        assert set(outcome.inspected) <= set(peers)
        assert ME not in outcome.inspected
        if outcome.weights is not None:
            assert set(outcome.weights) == set(outcome.peers)
            assert all(w >= 0 for w in outcome.weights.values())
            assert sum(outcome.weights.values()) <= 1 + 1e-12
        if not peers:
            assert (outcome.peers, outcome.evaluations) == ((), 0)


@pytest.mark.parametrize("id", IDS)
def test_state_survives_being_written_down(id):
    """A run whose state goes through JSON between rounds decides exactly as one that never stopped."""
    for straight, resumed in zip(rounds(id, [1, 2, 3, 4]), rounds(id, [1, 2, 3, 4], through_json=True), strict=True):
        assert straight.to_json() == resumed.to_json()


@pytest.mark.parametrize("id", IDS)
def test_every_method_says_what_it_is(id):
    found = methods()[id]
    assert found.description()
    assert found.evidence
    assert "/" in found.communication
    assert found.citation or found.needs_truth or id in ("rg", "local")
    assert all(help for _, help in found.fields().values())
