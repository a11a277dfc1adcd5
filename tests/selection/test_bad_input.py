"""Bad input gets an error that says what was wrong and what to do, and leaves the decision as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sagefl import AnchorQuery, DecisionError, Probe, RandomGossip, SageNF, SageOS, VanillaSage, replay

PEERS = ("a", "b", "c")
LOSSES = (np.random.default_rng(1).random((3, 128)) < [[0.1], [0.9], [0.9]]).astype(float)


def spoiled(value: float) -> np.ndarray:
    """The first stage's losses with one bad entry."""
    losses = LOSSES[:, :16].copy()
    losses[1, 3] = value
    return losses


BAD_ANSWERS = {
    "nan": (spoiled(np.nan), "losses must be finite, got nan: drop the peer and restart"),
    "infinite": (spoiled(np.inf), "losses must be finite, got inf"),
    "minus infinity": (spoiled(-np.inf), "losses must be finite, got -inf"),
    "negative": (spoiled(-0.25), r"losses must lie in \[0, 1\], got -0.25: clip or scale them, or set loss_bound"),
    "too large": (spoiled(1.5), r"losses must lie in \[0, 1\], got 1.5"),
    "transposed": (LOSSES[:, :16].T, r"shape \(3 peers, 1 to 16 anchors\), got \(16, 3\): one row per peer"),
    "a peer missing": (LOSSES[:2, :16], r"shape \(3 peers, 1 to 16 anchors\), got \(2, 16\)"),
    "too many anchors": (LOSSES[:, :17], r"1 to 16 anchors\), got \(3, 17\)"),
    "no anchors": (LOSSES[:, :0], r"1 to 16 anchors\), got \(3, 0\)"),
    "one dimension": (LOSSES[:, 0], r"got \(3,\)"),
    "three dimensions": (LOSSES[None], r"got \(1, 3, 128\)"),
    "a scalar": (0.5, r"got \(\)"),
    "nothing": (None, r"got \(\)"),
    "ragged": ([[0.0], [0.0, 1.0], [0.0]], "losses must be numbers"),
    "words": ([["x"], ["y"], ["z"]], "losses must be numbers"),
    "objects": ([[object()]] * 3, "losses must be numbers"),
}


@pytest.mark.parametrize("rule", [SageOS(), VanillaSage(), SageNF(), AnchorQuery(schedule=(16,))], ids=lambda r: r.id)
@pytest.mark.parametrize("bad", BAD_ANSWERS)
def test_bad_answers_leave_the_decision_usable(rule: Any, bad: str) -> None:
    answer, says = BAD_ANSWERS[bad]
    decision = rule.begin(PEERS, 128, seed=4)
    with pytest.raises(DecisionError, match=says):
        decision.answer(answer)
    assert decision.request == Probe(PEERS, 0, 16)
    assert decision.ledger.evaluations == 0
    while (probe := decision.request) is not None:
        decision.answer(LOSSES[:, probe.start : probe.stop])
    assert decision.outcome == replay(rule, LOSSES, 4, peers=PEERS)


def test_a_bad_piece_in_the_middle_keeps_the_pieces_before_it() -> None:
    decision = SageOS().begin(PEERS, 128, seed=4)
    decision.answer(LOSSES[:, :10])
    with pytest.raises(DecisionError, match=r"1 to 6 anchors.*from 10 on"):
        decision.answer(LOSSES[:, 10:17])
    with pytest.raises(DecisionError, match="finite"):
        decision.answer(np.full((3, 6), np.nan))
    assert decision.request == Probe(PEERS, 10, 16)
    assert decision.ledger.evaluations == 30
    while (probe := decision.request) is not None:
        decision.answer(LOSSES[:, probe.start : probe.stop])
    assert decision.outcome == replay(SageOS(), LOSSES, 4, peers=PEERS)


def test_a_finished_decision_takes_no_answer() -> None:
    decision = RandomGossip().begin(PEERS, 128)
    before = decision.outcome
    with pytest.raises(DecisionError, match=r"the decision is finished.*read \.outcome"):
        decision.answer(LOSSES[:, :16])
    assert decision.request is None
    assert decision.outcome is before


@pytest.mark.parametrize("bound", [1.0, 0.1, 2.3, float(np.log(10))])
def test_the_bound_is_inclusive_also_in_float32(bound: float) -> None:
    """Losses clipped to M in float32 may lie a rounding above M; anything more is refused."""
    rule = SageOS(loss_bound=bound, schedule=(2,))
    decision = rule.begin(PEERS, 2)
    decision.answer(np.full((3, 2), np.float32(bound)))
    assert max(decision.outcome.trace[0].risks) <= bound
    for above in (np.nextafter(np.float32(bound), np.float32(9)), bound * 1.001):
        with pytest.raises(DecisionError, match=r"losses must lie in \[0,"):
            rule.begin(PEERS, 2).answer(np.full((3, 2), above, dtype=np.float64))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"peers": ["a", "b", "a"]}, "peers must be distinct, but 'a' stands more than once"),
        ({"peers": [["a"], ["b"]]}, "peers must be hashable"),
        ({"peers": ["a", "@me"]}, "names the receiver itself"),
        ({"anchors": -1}, "size of the anchor pool, a whole number >= 0, got -1"),
        ({"anchors": 12.5}, "whole number >= 0, got 12.5"),
        ({"anchors": "many"}, "whole number >= 0, got 'many'"),
        ({"seed": -3}, "seed must be a whole number >= 0"),
        ({"seed": 1.5}, "seed must be a whole number >= 0"),
        ({"seed": (1, "x")}, "seed must be a whole number >= 0"),
        ({"seed": ()}, "seed must be a whole number >= 0"),
        ({"seed": None}, "seed must be a whole number >= 0"),
    ],
)
def test_bad_beginnings(arguments: dict[str, Any], says: str) -> None:
    rule = SageOS()
    with pytest.raises(DecisionError, match=says):
        rule.begin(**({"peers": PEERS, "anchors": 128} | arguments))
    assert rule.begin(PEERS, 128).request == Probe(PEERS, 0, 16)


DELTAS = [0, 1, -0.1, 1.5, float("nan"), float("inf"), "x", None, True]


@pytest.mark.parametrize("cls", [SageOS, VanillaSage, SageNF], ids=lambda c: c.id)
@pytest.mark.parametrize("delta", DELTAS)
def test_delta_outside_0_1(cls: Any, delta: Any) -> None:
    with pytest.raises(ValueError, match="delta must be a number strictly between 0 and 1, got"):
        cls(delta=delta)


@pytest.mark.parametrize("cost", [-1e-9, -1, float("nan"), float("inf"), "x", None])
def test_negative_or_missing_cost(cost: Any) -> None:
    with pytest.raises(ValueError, match=r"probe_cost \(lambda\) must be a finite number of at least 0, got"):
        SageOS(probe_cost=cost)
    assert SageOS(probe_cost=0).probe_cost == 0


@pytest.mark.parametrize("cls", [SageOS, VanillaSage, SageNF, AnchorQuery], ids=lambda c: c.id)
@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ((), "one or more whole numbers of at least 1, got \\(\\)"),
        ((32, 16), r"strictly increasing, got \(32, 16\)"),
        ((16, 16), "strictly increasing"),
        ((0, 16), "one or more whole numbers of at least 1"),
        ((-4, 16), "one or more whole numbers of at least 1"),
        ((16, 32.5), "one or more whole numbers of at least 1"),
        ("16,32", "one or more whole numbers of at least 1, got '16,32'"),
        (None, "one or more whole numbers of at least 1, got None"),
        (True, "one or more whole numbers of at least 1"),
    ],
)
def test_unsorted_or_empty_schedule(cls: Any, schedule: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cls(schedule=schedule)
    assert cls(schedule=[16, np.int64(32)]).schedule == (16, 32)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss_bound": 0}, r"loss_bound \(M\) must be a finite number above 0, got 0"),
        ({"loss_bound": float("inf")}, r"loss_bound \(M\) must be a finite number above 0, got inf"),
        ({"loss_bound": "1"}, r"loss_bound \(M\) must be a finite number above 0, got '1'"),
        ({"ties": "first"}, "ties must be one of random, lowest-index, got 'first'"),
        ({"stages": "all"}, "stages must be one of nominal, feasible, got 'all'"),
        ({"radius": "wide"}, "radius must be one of printed, tight, got 'wide'"),
        ({"cost": "free"}, "cost must be one of incremental, cumulative, got 'free'"),
        ({"kind": "images"}, "kind must be one of labels, latents, probs, values, got 'images'"),
        ({"loss": "mse"}, "loss must be one of error, ce, absolute, squared, got 'mse'"),
        ({"loss": "ce"}, "labels cannot be scored by ce; there are labels scored by error, latents"),
    ],
)
def test_options_outside_their_choices(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SageOS(**options)


@pytest.mark.parametrize(
    ("losses", "peers", "says"),
    [
        (np.zeros(5), None, r"expected a \(peers x anchors\) matrix, got shape \(5,\)"),
        (np.zeros((2, 20)), ["a"], "1 peer names for 2 rows of losses"),
        (np.full((2, 20), 2.0), None, r"losses must lie in \[0, 1\], got 2"),
    ],
)
def test_bad_recordings(losses: np.ndarray, peers: Any, says: str) -> None:
    with pytest.raises(DecisionError, match=says):
        replay(SageOS(), losses, peers=peers)
