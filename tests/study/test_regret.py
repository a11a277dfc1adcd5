"""Regret: each rule's cost against exact optimal stopping."""

from __future__ import annotations

import numpy as np
import pytest

from sagefl import AnchorQuery, RandomGossip, SageE, SageOS
from sagefl.selection.bellman import Prior, solve
from sagefl.study.regret import controlled_mean, measure_regret, rules

PRIOR = Prior(1, 1, 2)
COMPARED = {"rg": RandomGossip(), "aq-128": AnchorQuery(), "sage-os": SageOS(), "sage-e": SageE()}


def test_the_report_names_exact_optima_and_every_rule() -> None:
    report = measure_regret(PRIOR, decisions=40, compared=COMPARED)
    assert report.certified_cost == pytest.approx(-solve(PRIOR, 2e-3).certified)
    assert report.unconstrained_cost == pytest.approx(-solve(PRIOR, 2e-3).unconstrained)
    assert [r.label for r in report.rules] == list(COMPARED)
    gossip, query, paper, betting = report.rules
    assert (gossip.cost, gossip.error, gossip.taken, gossip.evaluations) == (0, 0, 0, 0)
    assert (query.taken, query.evaluations) == (1, 256)
    # aq-128 pays 2 * 128 lambda and gains what perfect hindsight on 128 anchors gains: nearly the optimum at lambda 0.
    free = solve(PRIOR, 0.0).unconstrained
    assert query.cost == pytest.approx(256 * 2e-3 - free, abs=0.01 + query.error)
    assert betting.cost + betting.error < paper.cost - paper.error
    assert betting.cost - betting.error < 0
    for rule in (paper, betting):
        assert rule.cost + rule.error >= report.certified_cost


def test_the_compared_rules_take_the_price_and_delta() -> None:
    made = rules(probe_cost=5e-3, delta=0.02)
    assert len(made) == 11
    for rule in made.values():
        assert getattr(rule, "probe_cost", 5e-3) == 5e-3
        assert getattr(rule, "delta", 0.02) == 0.02


def test_the_same_seed_gives_the_same_report() -> None:
    one, two, other = (measure_regret(PRIOR, decisions=20, compared=COMPARED, seed=seed) for seed in (3, 3, 4))
    assert one == two
    assert one != other


def test_a_price_at_which_nothing_pays() -> None:
    report = measure_regret(PRIOR, probe_cost=0.5, decisions=20, compared={"rg": RandomGossip(), "sage-e": SageE()})
    assert report.certified_cost == 0
    assert report.rules[0].cost == pytest.approx(0, abs=1e-12)


def test_controls_of_known_mean_take_luck_out() -> None:
    """Intervals cover, are narrower with a good control and unharmed by a useless or constant one."""
    rng, covered, narrower, runs = np.random.default_rng(1), 0, 0, 400
    for _ in range(runs):
        luck = rng.standard_normal((50, 1))
        values = 2 + 3 * luck[:, 0] + rng.standard_normal(50)
        mean, error = controlled_mean(values, np.hstack([luck, np.zeros((50, 1))]))
        _, plain = controlled_mean(values, np.zeros((50, 1)))
        covered += abs(mean - 2) <= error
        narrower += error < 0.6 * plain
    assert 0.91 < covered / runs < 0.985
    assert narrower > 0.95 * runs
    values = rng.standard_normal(50)
    mean, error = controlled_mean(values, np.zeros((50, 0)))
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(2.0096 * values.std(ddof=1) / 50**0.5, rel=1e-3)


def test_too_few_decisions() -> None:
    with pytest.raises(ValueError, match="at least 10, got 3"):
        measure_regret(PRIOR, decisions=3)
