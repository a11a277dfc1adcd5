"""The Bellman reference against a literal recursion, and every rule against it."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest

from sagefl import SageE, SageOS, replay
from sagefl.selection.bellman import Prior, sample_losses, solve

BETS = (0.25, 0.5, 0.75, 0.95)
PRIORS = [Prior(1, 1, 2), Prior(3, 1, 0.5), Prior(0.2, 0.2, 0.2)]
LAMBDAS = [0.0, 1e-3, 5e-3, 2e-2, 0.2]


def gain(prior: Prior, path: tuple[int, ...]) -> float:
    """Posterior mean gain of peer 1 over gossip after a path of +1 (win), -1 (loss), 0 (concordant)."""
    counts = prior.win + path.count(1), prior.loss + path.count(-1)
    return (counts[0] - counts[1]) / (prior.total + len(path)) / 2


def chances(prior: Prior, path: tuple[int, ...]) -> dict[int, float]:
    total = prior.total + len(path)
    win, loss = (prior.win + path.count(1)) / total, (prior.loss + path.count(-1)) / total
    return {1: win, -1: loss, 0: 1 - win - loss}


def ever_certified(path: tuple[int, ...], sign: int, delta: float) -> bool:
    prefixes = [path[: n + 1] for n in range(len(path))]
    return any(np.mean([prod(1 + g * sign * y for y in p) for g in BETS]) >= 2 / delta for p in prefixes)


def literal(prior: Prior, cost: float, anchors: int, delta: float | None, path: tuple[int, ...] = ()) -> float:
    """Backward induction on whole paths: stop (gossip, or a peer that may be taken), or buy one more anchor."""
    free = delta is None
    options = [0.0]
    if free or ever_certified(path, 1, delta):
        options.append(gain(prior, path))
    if free or ever_certified(path, -1, delta):
        options.append(-gain(prior, path))
    if len(path) < anchors:
        onward = sum(p * literal(prior, cost, anchors, delta, (*path, y)) for y, p in chances(prior, path).items())
        options.append(onward - 2 * cost)
    return max(options)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("anchors", [2, 3, 4])
def test_the_optima_are_those_of_the_literal_recursion(prior: Prior, anchors: int) -> None:
    for cost in LAMBDAS:
        assert solve(prior, cost, anchors=anchors).unconstrained == pytest.approx(literal(prior, cost, anchors, None))
        for delta in (0.45, 0.6):  # so large that a few anchors can certify
            found = solve(prior, cost, delta, anchors).certified
            assert found == pytest.approx(literal(prior, cost, anchors, delta))


def test_the_certificate_is_path_dependent() -> None:
    """Certified after two wins, not any more after two wins and two losses: the flag must be remembered."""
    delta = 0.9
    assert ever_certified((1, 1), 1, delta)
    assert ever_certified((1, 1, -1, -1), 1, delta)
    assert not ever_certified((-1, -1, 1, 1), 1, delta)
    prior = Prior(1.5, 1, 0.1)
    forgetful = literal_without_memory(prior, 0.0, 8, delta)
    assert solve(prior, 0.0, delta, 8).certified > forgetful + 1e-3


def literal_without_memory(prior: Prior, cost: float, anchors: int, delta: float) -> float:
    """As `literal`, but with the wealth of now instead of the largest so far."""

    @cache
    def value(wins: int, losses: int, n: int) -> float:
        path = (1,) * wins + (-1,) * losses + (0,) * (n - wins - losses)
        options = [0.0]
        for sign in (1, -1):
            if np.mean([prod(1 + g * sign * y for y in path) for g in BETS]) >= 2 / delta:
                options.append(sign * gain(prior, path))
        if n < anchors:
            p = chances(prior, path)
            onward = p[1] * value(wins + 1, losses, n + 1) + p[-1] * value(wins, losses + 1, n + 1)
            options.append(onward + p[0] * value(wins, losses, n + 1) - 2 * cost)
        return max(options)

    return value(0, 0, 0)


@pytest.mark.parametrize("prior", [Prior(1, 1, 2), Prior(0.3, 0.3, 5), Prior(6, 6, 1)])
@pytest.mark.parametrize("cost", LAMBDAS)
def test_under_an_exchangeable_prior_gossip_is_never_strictly_better(prior: Prior, cost: float) -> None:
    """Forbid gossip: take a peer or go on. The unconstrained optimum loses nothing by it."""

    @cache
    def value(wins: int, losses: int, n: int) -> float:
        path = (1,) * wins + (-1,) * losses + (0,) * (n - wins - losses)
        best = abs(gain(prior, path))
        if n < 12:
            p = chances(prior, path)
            onward = p[1] * value(wins + 1, losses, n + 1) + p[-1] * value(wins, losses + 1, n + 1)
            best = max(best, onward + p[0] * value(wins, losses, n + 1) - 2 * cost)
        return best

    assert solve(prior, cost, anchors=12).unconstrained == pytest.approx(value(0, 0, 0))


@pytest.mark.parametrize("prior", PRIORS)
def test_certified_is_at_most_unconstrained_and_both_fall_with_the_price(prior: Prior) -> None:
    free = [solve(prior, cost, anchors=48).unconstrained for cost in LAMBDAS]
    safe = [solve(prior, cost, 0.1, 48).certified for cost in LAMBDAS]
    assert all(0 <= s <= f for s, f in zip(safe, free, strict=True))
    assert free == sorted(free, reverse=True)
    assert safe == sorted(safe, reverse=True)
    assert safe[0] > safe[-1]
    assert safe[-1] == 0  # at this price no certificate can pay
    assert free[-1] == pytest.approx(abs(gain(prior, ())))  # nor any evidence at all


def test_more_anchors_and_a_laxer_delta_are_worth_no_less() -> None:
    prior = Prior(1, 1, 2)
    by_anchors = [solve(prior, 1e-3, 0.1, n).certified for n in (4, 8, 16, 32)]
    by_delta = [solve(prior, 1e-3, delta, 32).certified for delta in (0.01, 0.05, 0.1, 0.3)]
    assert by_anchors == sorted(by_anchors)
    assert by_delta == sorted(by_delta)
    assert by_anchors[0] == 0  # fewer than five anchors cannot certify


def test_worlds_are_drawn_from_the_prior() -> None:
    prior = Prior(3, 1, 2)
    losses, gains = sample_losses(prior, 20_000, np.random.default_rng(1), anchors=1)
    win = (losses[:, 0, 0] == 0) & (losses[:, 1, 0] == 1)
    loss = (losses[:, 0, 0] == 1) & (losses[:, 1, 0] == 0)
    assert win.mean() == pytest.approx(3 / 6, abs=0.015)
    assert loss.mean() == pytest.approx(1 / 6, abs=0.015)
    assert gains.mean() == pytest.approx((3 - 1) / 6 / 2, abs=0.01)
    assert np.corrcoef(gains, win.astype(float) - loss)[0, 1] > 0.2


def assert_below_the_optimum(prior: Prior, cost: float, rules: list[SageE | SageOS], decisions: int) -> None:
    losses, gains = sample_losses(prior, decisions, np.random.default_rng(2))
    safe = solve(prior, cost).certified
    for rule in rules:
        values = np.array([value_of(replay(rule, x, i), gains[i], cost) for i, x in enumerate(losses)])
        error = 3.3 * values.std(ddof=1) / len(values) ** 0.5
        assert values.mean() <= safe + error
        if cost == 0 and rule == SageE(probe_cost=0.0, stop="none"):
            assert values.mean() > 0.7 * safe - error  # and the bound is not idle


def respecting(cost: float) -> list[SageE | SageOS]:
    """Rules that take certified peers only; with two peers SAGE-OS's certificate implies the betting one."""
    stops = [SageE(probe_cost=cost, stop=stop) for stop in ("predictive", "voi", "none")]  # type: ignore[arg-type]
    return [*stops, SageE(probe_cost=cost, looks="stages"), SageOS(probe_cost=cost)]


@pytest.mark.parametrize(("prior", "cost"), [(Prior(1, 1, 2), 2e-3), (Prior(0.2, 0.2, 0.2), 0.0)])
def test_no_rule_that_respects_the_certificate_beats_its_optimum(prior: Prior, cost: float) -> None:
    assert_below_the_optimum(prior, cost, respecting(cost), 120)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.0, 5e-4, 2e-3])
@pytest.mark.parametrize("prior", [Prior(1, 1, 2), Prior(0.2, 0.2, 0.2), Prior(3, 1, 4)])
def test_no_rule_beats_its_optimum_at_length(prior: Prior, cost: float) -> None:
    every_anchor = SageE(probe_cost=cost, first=1, step=1, stop="none")
    assert_below_the_optimum(prior, cost, [*respecting(cost), every_anchor], 600)


def value_of(outcome, gain: float, cost: float) -> float:  # type: ignore[no-untyped-def]
    taken = 0.0 if not outcome.selected else gain if outcome.peers == (0,) else -gain
    return float(taken - cost * outcome.evaluations)


@pytest.mark.parametrize("cost", [0.0, 5e-4, 2e-3])
@pytest.mark.parametrize("prior", PRIORS)
def test_following_a_policy_costs_what_it_is_worth(prior: Prior, cost: float) -> None:
    optima = solve(prior, cost, 0.1, 64)
    losses, gains = sample_losses(prior, 20_000, np.random.default_rng(3), anchors=64)
    for certified, exact in ((True, optima.certified), (False, optima.unconstrained)):
        taken, bought = optima.follow(losses, certified=certified)
        values = np.select([taken == 0, taken == 1], [gains, -gains], 0.0) - 2 * cost * bought
        assert abs(values.mean() - exact) < 3.5 * values.std(ddof=1) / 20_000**0.5 + 1e-12


def test_a_certified_policy_takes_certified_peers_only() -> None:
    optima = solve(Prior(1, 1, 2), 5e-4, 0.1, 40)
    losses, _ = sample_losses(Prior(1, 1, 2), 300, np.random.default_rng(4), anchors=40)
    taken, bought = optima.follow(losses, certified=True)
    assert (taken >= 0).any()
    for x, peer, n in zip(losses, taken, bought, strict=True):
        if peer >= 0:
            path = tuple(int(y) for y in (x[1] - x[0])[:n])
            assert ever_certified(path, 1 if peer == 0 else -1, 0.1)


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, -1, 1), (1, 1, float("nan")), (float("inf"), 1, 1)])
def test_priors_that_make_no_sense(counts: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="pseudo-counts must be positive"):
        Prior(*counts)


def test_every_path_counts_once() -> None:
    """The literal recursion covers all 3^n paths; their chances add up to one."""
    prior = Prior(1, 2, 3)
    total = sum(prod(chances(prior, path[:n])[path[n]] for n in range(3)) for path in product((1, -1, 0), repeat=3))
    assert total == pytest.approx(1)
