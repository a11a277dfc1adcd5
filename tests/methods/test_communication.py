"""The paper's communication overheads from the counters alone: K = 50, T = 250, networkx seed 1."""

from __future__ import annotations

import pytest
from driving import Anything, drive

from sagefl.exchange import Sizes, account
from sagefl.methods import method
from sagefl.selection import State
from sagefl.selection.scoring import Outputs
from sagefl.topology import build

CLIENTS, ROUNDS, SEED = 50, 250, 1
SIZES = Sizes(784, 4000, 4400, Outputs(10, 64), reads={"head": 400, "last-layer": 256})


def overheads(id: str, kind: str) -> tuple[float, float]:
    """Models (merged, transferred) per client-round, over a whole run with made-up evidence."""
    graph, rule, answers = build(kind, CLIENTS, SEED), method(id).selector, Anything()
    merged = transferred = 0
    for client in range(CLIENTS):
        peers = [int(j) for j in graph.neighbours(client)]
        state: State | None = None
        for round in range(ROUNDS):
            seed = (SEED, round, client)
            decision = rule.begin(peers, 1, seed, state=state, round=round, rounds=ROUNDS, me=client)
            outcome = drive(decision, answers)
            state = outcome.state
            traffic = account(outcome, decision.ledger.asked, SIZES)
            merged, transferred = merged + traffic.merged, transferred + traffic.transferred
    return merged / (CLIENTS * ROUNDS), transferred / (CLIENTS * ROUNDS)


@pytest.mark.parametrize("kind", ["er", "ba"])
def test_pfeddst_moves_1_980_models(kind):
    assert overheads("pfeddst", kind) == (pytest.approx(1.980), pytest.approx(1.980))


@pytest.mark.parametrize("kind", ["er", "ba"])
def test_pens_moves_1_784_models(kind):
    merged, transferred = overheads("pens", kind)
    assert transferred == pytest.approx(1.784)
    assert merged == pytest.approx((100 * (49 * 2 + 1) + 150 * 50) / (250 * 50))  # top 2 for 100 rounds, then 1
