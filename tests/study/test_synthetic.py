"""The synthetic world is the one described, and the rules do on it what was measured."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from sagefl import SageE, SageOS, replay
from sagefl.streams import stream
from sagefl.study.synthetic import SyntheticHood, cells, neighbourhoods


def test_every_kind_of_world_in_some_fresh_ones() -> None:
    found = list(cells(2))
    assert len(found) == len(set(found)) == 48
    assert len({c.seed for c in found}) == 48
    assert {(c.alpha, c.graph, c.per_class) for c in found} >= {(0.05, "er", 6000), (0.3, "ba", 5000)}
    assert {(c.a_max, c.eta) for c in found} == {(0.95, 0.05), (0.70, 0.15)}


def test_receivers_have_a_stage_of_anchors_and_true_risks() -> None:
    cell = next(cells(1))
    hoods = neighbourhoods(cell)
    assert 20 < len(hoods) <= 50
    assert {h.pool for h in hoods} <= {16, 32, 64, 128}
    for hood in hoods:
        assert hood.mix.sum() == pytest.approx(1)
        assert (hood.error >= 1 - cell.a_max / (1 + cell.eta) - 1e-12).all()
        assert (hood.error <= 1).all()
        assert hood.draw(stream(1, "losses")).shape == (len(hood.error), hood.pool)


def test_losses_follow_the_risks_and_share_their_difficulty() -> None:
    error = np.array([[0.2, 0.9], [0.5, 0.5], [0.8, 0.1]])
    hood = SyntheticHood(np.array([0.7, 0.3]), np.hstack([error, np.zeros((3, 8))]), 128)
    hood = SyntheticHood(np.r_[hood.mix, np.zeros(8)], hood.error, 128)
    rng = np.random.default_rng(1)
    drawn = np.concatenate([hood.draw(rng) for _ in range(200)], axis=1)
    assert drawn.mean(axis=1) == pytest.approx(hood.risks, abs=0.015)
    assert hood.risks == pytest.approx(error @ [0.7, 0.3])
    # Given the class, two peers of error 1/2 err together as two normals of correlation .5 do: 1/4 + asin(.5)/(2 pi).
    even = SyntheticHood(np.r_[1.0, np.zeros(9)], np.full((2, 10), 0.5), 128)
    both = np.concatenate([even.draw(rng) for _ in range(200)], axis=1).min(axis=0).mean()
    assert both == pytest.approx(1 / 4 + np.arcsin(0.5) / (2 * np.pi), abs=0.015)


def test_the_same_cell_is_the_same_world() -> None:
    one, two = (neighbourhoods(next(cells(1))) for _ in range(2))
    assert all(np.array_equal(a.error, b.error) and a.pool == b.pool for a, b in zip(one, two, strict=True))
    other = neighbourhoods(list(islice(cells(2), 2))[1])
    assert len(other) != len(one) or any(not np.array_equal(a.mix, b.mix) for a, b in zip(one, other, strict=True))


def test_a_fraction_of_the_evidence_at_a_lower_cost() -> None:
    """A small piece of the benchmark (benchmarks/synthetic.py has the intervals)."""
    spent, cost, certified = np.zeros(2), np.zeros(2), np.zeros(2)
    for cell in list(cells(1))[::5]:
        for index, hood in enumerate(neighbourhoods(cell)[:20]):
            losses, risks = hood.draw(stream(cell.seed, "losses", index, 0)), hood.risks
            for i, (priced, free) in enumerate([(SageOS(), SageOS(probe_cost=0)), (SageE(), SageE(stop="none"))]):
                outcome = replay(priced, losses, index)
                spent[i] += outcome.evaluations
                cost[i] += 2e-3 * outcome.evaluations
                cost[i] += float(risks[list(outcome.peers)].mean() - risks.mean()) if outcome.selected else 0.0
                certified[i] += replay(free, losses, index).reason == "certified"
    assert spent[1] < 0.25 * spent[0]
    assert cost[1] < cost[0]
    assert certified[1] > 3 * certified[0]
