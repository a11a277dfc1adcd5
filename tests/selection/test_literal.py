"""The real rules against their literal transcriptions, on thousands of generated matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import literal
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sagefl import AnchorQuery, Outcome, RandomGossip, SageNF, SageOS, SageOSTable, Selector, VanillaSage, replay

PAIRS: dict[str, tuple[type[Selector], Callable[[literal.Setting], literal.Decided]]] = {
    "sage-os": (SageOS, literal.sage_os),
    "sage-vanilla": (VanillaSage, literal.vanilla),
    "sage-nf": (SageNF, literal.sage_nf),
    "aq-128": (AnchorQuery, literal.anchor_query),
    "rg": (RandomGossip, literal.random_gossip),
}
# Options of the rules and what they are called in the transcription.
NAMES = {"probe_cost": "lam", "loss_bound": "M", "schedule": "schedule", "delta": "delta"}
FLAGS = {"radius": "tight", "cost": "cumulative", "stages": "feasible", "ties": "lowest_index"}
VALUES = {"tight": "tight", "cumulative": "cumulative", "feasible": "feasible", "lowest_index": "lowest-index"}


def agree(id: str, losses: np.ndarray, seed: int, options: dict[str, Any]) -> Outcome:
    """Run both and compare everything a user can see."""
    cls, transcription = PAIRS[id]
    assert options.keys() <= SageOS.options().keys()  # an option that no rule has would be left out of both
    known = {k: v for k, v in options.items() if k in cls.options()}
    wanted = {NAMES[k]: v for k, v in known.items() if k in NAMES}
    wanted |= {FLAGS[k]: v == VALUES[FLAGS[k]] for k, v in known.items() if k in FLAGS}
    outcome = replay(cls(**known), losses, seed)
    expected = transcription(literal.Setting(losses.tolist(), losses.shape[1], seed, **wanted))
    assert outcome.peers == (() if expected.peer is None else (expected.peer,))
    assert outcome.selected == expected.selected
    assert outcome.reason == expected.reason
    assert outcome.anchors == expected.anchors
    assert outcome.evaluations == expected.anchors * len(losses)
    assert [s.fired for s in outcome.trace] == expected.fired
    return outcome


SCHEDULES = [(16, 32, 64, 128), (1,), (4,), (2, 4, 8), (1, 2, 3, 5, 8, 13, 21), (3, 10, 11, 30)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, int, dict[str, Any]]:
    """A matrix with few distinct values (so that risks tie), a pool that may truncate the schedule, all options."""
    bound = draw(st.sampled_from([1.0, 1.0, 0.5, 2.5, 3.0]))
    levels = draw(st.sampled_from([1, 1, 2, 8]))  # 1: 0-1 losses; dyadic fractions add up exactly
    degree, pool = draw(st.integers(0, 6)), draw(st.integers(0, 36))
    steps = draw(arrays(np.int8, (degree, pool), elements=st.integers(0, levels)))
    favourite = draw(st.integers(-1, degree - 1))  # often somebody really is better
    if favourite >= 0:
        steps[favourite] = 0
    options = {
        "schedule": draw(st.sampled_from(SCHEDULES)),
        "delta": draw(st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.99])),
        "probe_cost": draw(st.sampled_from([0.0, 2e-3, 0.01, 0.05, 0.3, 1e6])),
        "loss_bound": bound,
        "radius": draw(st.sampled_from(["printed", "tight"])),
        "cost": draw(st.sampled_from(["incremental", "cumulative"])),
        "stages": draw(st.sampled_from(["nominal", "feasible"])),
        "ties": draw(st.sampled_from(["random", "lowest-index"])),
    }
    return steps * (bound / levels), draw(st.integers(0, 2**32 - 1)), options


@settings(max_examples=2000, deadline=None)
@given(case=cases())
def test_generated_matrices(case: tuple[np.ndarray, int, dict[str, Any]]) -> None:
    losses, seed, options = case
    for id in PAIRS:
        try:
            agree(id, losses, seed, options)
        except literal.KnifeEdgeError:
            assume(False)


def worlds(count: int, seed: int) -> Any:
    """Matrices at the paper's schedule: all degrees and pools, near ties and clear winners, every option."""
    rng = np.random.default_rng(seed)
    for case in range(count):
        degree, pool = int(rng.choice([1, 2, 3, 4, 6, 9, 12])), int(rng.choice([10, 16, 40, 63, 100, 128, 150]))
        rates = rng.random(degree) if rng.random() < 0.7 else np.full(degree, 0.5)
        if rng.random() < 0.5:
            rates[0], rates[1:] = 0.02, rng.choice([0.4, 0.6, 0.98])
        losses = (rng.random((degree, pool)) < rates[:, None]).astype(float)
        if rng.random() < 0.3:
            losses[rng.integers(degree)] = losses[rng.integers(degree)]  # an exact tie
        options = {
            "probe_cost": float(rng.choice([0.0, 5e-4, 2e-3, 8e-3])),
            "radius": str(rng.choice(["printed", "tight"])),
            "cost": str(rng.choice(["incremental", "cumulative"])),
            "stages": str(rng.choice(["nominal", "feasible"])),
            "ties": str(rng.choice(["random", "lowest-index"])),
        }
        yield losses, case, options


def test_the_papers_schedule_reaches_every_branch() -> None:
    seen: Counter[tuple[str, str, int]] = Counter()
    for losses, seed, options in worlds(1500, seed=3):
        for id in PAIRS:
            outcome = agree(id, losses, seed, options)
            seen[id, outcome.reason.value, outcome.anchors] += 1
    for stage in (32, 64, 128):
        assert seen["sage-os", "certified", stage] > 10
        assert seen["sage-vanilla", "certified", stage] > 10
        assert seen["sage-nf", "committed", stage] > 10
        assert seen["aq-128", "committed", stage] > 10
    for stage in (16, 32, 64):
        assert seen["sage-os", "cost", stage] > 10
    assert seen["sage-os", "exhausted", 128] > 10
    assert seen["sage-os", "no-anchors", 0] > 10
    assert seen["rg", "uniform", 0] == 1500


def test_the_table_preset_is_the_cumulative_price() -> None:
    for losses, seed, _ in worlds(200, seed=5):
        assert replay(SageOSTable(), losses, seed) == replay(SageOS(cost="cumulative"), losses, seed)
