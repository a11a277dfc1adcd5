"""What the certificates promise, by Monte Carlo with stated intervals, and proof that these tests can fail.

Two promises (thm:correct and thm:noharm): at most a share delta of decisions certifies something false, and
``E[R] <= R_RG + delta M``. The first is tested where it is hardest, at *boundary* worlds in which the claim is only
just false: peers of equal risk, so that every certificate is wrong.

Hoeffding is so loose that the true error is far below delta, and a wrong radius would pass unseen in most worlds. So
the worlds are chosen such that a radius a third as wide does break the bound: for SAGE-OS many peers, and peers whose
losses balance on every anchor; for Vanilla two peers that are never wrong together, the widest gap that equal risks
allow.

Every statement is made with confidence 99.9 %: Clopper-Pearson for shares, Hoeffding's interval for mean risks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
import pytest
from scipy.special import betaincinv

from sagefl import AnchorQuery, Draws, Exchange, Hood, Reason, SageOS, Selector, VanillaSage, replay
from sagefl.selection.outcome import State
from sagefl.selection.selector import Deciding
from sagefl.selection.staged import Look

DELTA = 0.1
CONFIDENCE = 0.999
Draw = Callable[[np.random.Generator], np.ndarray]


# Worlds ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """True risks, and how the losses of one decision are drawn."""

    risks: tuple[float, ...]
    draw: Draw

    @property
    def gossip(self) -> float:
        return sum(self.risks) / len(self.risks)

    def beats_gossip(self, peer: int) -> bool:
        """What SAGE-OS certifies."""
        return self.risks[peer] < self.gossip - 1e-12

    def beats_everybody(self, peer: int) -> bool:
        """What Vanilla certifies."""
        return all(self.risks[peer] < risk for other, risk in enumerate(self.risks) if other != peer)


def independent(*risks: float) -> World:
    column = np.array(risks)[:, None]
    return World(risks, lambda rng: (rng.random((len(risks), 128)) < column).astype(float))


def correlated(*risks: float) -> World:
    """Peers fail together on hard anchors: each anchor's difficulty is shared."""
    column = np.array(risks)[:, None]

    def draw(rng: np.random.Generator) -> np.ndarray:
        shared, own = rng.random((1, 128)), rng.random((len(risks), 128))
        return (np.where(rng.random((len(risks), 128)) < 0.5, shared, own) < column).astype(float)

    return World(risks, draw)


def balanced(degree: int) -> World:
    """On every anchor exactly half of the peers, drawn afresh, are wrong; with two they are never wrong together."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        return (rng.random((degree, 128)).argsort(axis=0) < degree // 2).astype(float)

    return World((0.5,) * degree, draw)


BOUNDARY = {
    "2 alike": independent(0.5, 0.5),
    "2 opposite": balanced(2),
    "6 alike": independent(*[0.5] * 6),
    "14 balanced": balanced(14),
    "50 alike": independent(*[0.5] * 50),
    "6 alike and correlated": correlated(*[0.5] * 6),
    "two best tie": independent(0.5, 0.5, 1.0, 1.0),
    "one at the mean": independent(0.3, 0.5, 0.7),
}
MANY_LOOKS = tuple(range(4, 129, 4))


# Statements -----------------------------------------------------------------------------------------------------------


def highest_share(count: int, decisions: int) -> float:
    """Upper end of the one-sided Clopper-Pearson interval."""
    return 1.0 if count == decisions else float(betaincinv(count + 1, decisions - count, CONFIDENCE))


def lowest_share(count: int, decisions: int) -> float:
    """Lower end of the one-sided Clopper-Pearson interval."""
    return 0.0 if count == 0 else float(betaincinv(count, decisions - count + 1, 1 - CONFIDENCE))


def false_certifications(rule: Selector, world: World, decisions: int, seed: int = 0) -> int:
    """How often `rule` selects a peer for which its claim is false."""
    claim = world.beats_everybody if isinstance(rule, VanillaSage) else world.beats_gossip
    rng = np.random.default_rng([17, seed])
    outcomes = (replay(rule, world.draw(rng), (seed, i)) for i in range(decisions))
    return sum(o.selected and not claim(o.peers[0]) for o in outcomes)


def assert_rarely_false(rule: Selector, world: World, decisions: int) -> None:
    """The share of false certificates is at most delta, even at the upper end of its interval."""
    wrong = false_certifications(rule, world, decisions)
    upper = highest_share(wrong, decisions)
    assert upper <= DELTA, (
        f"false certification: {wrong} of {decisions}, in [{lowest_share(wrong, decisions):.4f}, {upper:.4f}] "
        f"with confidence {CONFIDENCE:.1%}, allowed {DELTA}"
    )


def assert_no_worse_than_gossip(rule: Selector, world: World, decisions: int) -> None:
    """``E[R] <= R_RG + delta``, even at the upper end of Hoeffding's interval for the mean risk."""
    rng = np.random.default_rng(23)
    chosen = [world.risks[replay(rule, world.draw(rng), (1, i)).peers[0]] for i in range(decisions)]
    upper = float(np.mean(chosen)) + np.sqrt(np.log(1 / (1 - CONFIDENCE)) / (2 * decisions))
    assert upper <= world.gossip + DELTA, (
        f"expected risk: up to {upper:.4f} with confidence {CONFIDENCE:.1%}, allowed {world.gossip + DELTA:.4f}"
    )


def test_the_intervals_are_the_textbook_ones() -> None:
    """0 of n: 1 - .001^(1/n); and each end is where the binomial tail is .1 %."""
    assert highest_share(0, 1000) == pytest.approx(1 - 0.001 ** (1 / 1000))
    assert lowest_share(1000, 1000) == pytest.approx(0.001 ** (1 / 1000))

    def at_most(count: int, p: float) -> float:
        return sum(comb(20, k) * p**k * (1 - p) ** (20 - k) for k in range(count + 1))

    assert at_most(5, highest_share(5, 20)) == pytest.approx(0.001)
    assert 1 - at_most(4, lowest_share(5, 20)) == pytest.approx(0.001)


# The promises hold ----------------------------------------------------------------------------------------------------

CERTIFIERS: dict[str, Selector] = {
    "sage-os": SageOS(probe_cost=0.0),  # free probes: it looks at every stage
    "sage-os tight": SageOS(probe_cost=0.0, radius="tight"),
    "sage-os many looks": SageOS(probe_cost=0.0, schedule=MANY_LOOKS),
    "sage-vanilla": VanillaSage(),
    "sage-vanilla many looks": VanillaSage(schedule=MANY_LOOKS),
}


@pytest.mark.parametrize("world", BOUNDARY)
@pytest.mark.parametrize("rule", ["sage-os", "sage-os tight", "sage-vanilla"])
def test_false_certification_at_the_boundary(rule: str, world: str) -> None:
    assert_rarely_false(CERTIFIERS[rule], BOUNDARY[world], decisions=1000)


@pytest.mark.slow
@pytest.mark.parametrize("world", BOUNDARY)
@pytest.mark.parametrize("rule", CERTIFIERS)
def test_false_certification_at_the_boundary_at_length(rule: str, world: str) -> None:
    assert_rarely_false(CERTIFIERS[rule], BOUNDARY[world], decisions=5_000)


SPREAD = {
    "wide": independent(0.1, 0.3, 0.5, 0.7, 0.9),
    "one good": independent(0.1, 0.8, 0.8, 0.8, 0.8, 0.8),
    "one bad": independent(0.3, 0.3, 0.3, 0.3, 0.95),
    "close": correlated(0.48, 0.5, 0.52, 0.54),
    "alike": balanced(6),
}


@pytest.mark.parametrize("world", SPREAD)
@pytest.mark.parametrize("rule", [SageOS(), SageOS(probe_cost=0.0, radius="tight"), VanillaSage()], ids=lambda r: r.id)
def test_expected_risk_is_at_most_gossips_plus_delta(rule: Selector, world: str) -> None:
    assert_no_worse_than_gossip(rule, SPREAD[world], decisions=1000)


@pytest.mark.slow
@pytest.mark.parametrize("world", SPREAD)
@pytest.mark.parametrize("rule", CERTIFIERS)
def test_expected_risk_at_length(rule: str, world: str) -> None:
    assert_no_worse_than_gossip(CERTIFIERS[rule], SPREAD[world], decisions=5_000)


def test_it_certifies_where_it_should() -> None:
    """A rule that never certifies would pass everything above."""
    world, rng = SPREAD["one good"], np.random.default_rng(5)
    for rule in (SageOS(probe_cost=0.0), VanillaSage()):
        outcomes = [replay(rule, world.draw(rng), i) for i in range(200)]
        right = sum(o.reason is Reason.CERTIFIED and o.peers == (0,) for o in outcomes)
        assert lowest_share(right, 200) > 0.9


def test_at_the_sufficient_sample_size_a_gap_is_found() -> None:
    """eq:samplecomplexity: with that many anchors Vanilla certifies with probability at least 1 - delta."""
    from sagefl.selection.theory import sufficient_anchors

    m = sufficient_anchors(0.5, degree=3, stages=1, delta=DELTA)
    rng, found = np.random.default_rng(6), 0
    for i in range(300):
        losses = (rng.random((3, m)) < np.array([[0.25], [0.75], [0.75]])).astype(float)
        found += replay(VanillaSage(schedule=(m,)), losses, i).peers == (0,)
    assert lowest_share(found, 300) >= 1 - DELTA


# These tests can fail -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NarrowSageOS(SageOS):
    """A mutant: the radius is a third as wide."""

    def stage_radius(self, anchors: int, hood: Hood) -> float:
        return super().stage_radius(anchors, hood) / 3


@dataclass(frozen=True)
class NarrowVanilla(VanillaSage):
    """A mutant: the radius is a third as wide."""

    def stage_radius(self, anchors: int, hood: Hood) -> float:
        return super().stage_radius(anchors, hood) / 3


@dataclass(frozen=True)
class PickTheWorst(AnchorQuery):
    """Commits to the highest empirical risk."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        look = Look.at(128, (yield self.probe(hood, None, 128)))
        return Exchange.select(hood.peers[look.sums.index(max(look.sums))], Reason.COMMITTED)


@pytest.mark.parametrize("world", ["14 balanced", "50 alike"])
def test_a_radius_a_third_as_wide_is_caught_in_sage_os(world: str) -> None:
    with pytest.raises(AssertionError, match="false certification"):
        assert_rarely_false(NarrowSageOS(probe_cost=0.0), BOUNDARY[world], decisions=500)
    assert lowest_share(false_certifications(NarrowSageOS(probe_cost=0.0), BOUNDARY[world], 500), 500) > DELTA


@pytest.mark.parametrize("world", ["2 alike", "2 opposite"])
def test_a_radius_a_third_as_wide_is_caught_in_vanilla(world: str) -> None:
    with pytest.raises(AssertionError, match="false certification"):
        assert_rarely_false(NarrowVanilla(), BOUNDARY[world], decisions=500)
    assert lowest_share(false_certifications(NarrowVanilla(), BOUNDARY[world], 500), 500) > DELTA


@pytest.mark.parametrize("world", ["2 alike", "6 alike", "50 alike", "6 alike and correlated"])
def test_aq_is_no_certifier(world: str) -> None:
    with pytest.raises(AssertionError, match="false certification"):
        assert_rarely_false(AnchorQuery(), BOUNDARY[world], decisions=300)


def test_aq_is_no_certifier_in_a_near_tie_either() -> None:
    """Not only at the exact boundary: among close peers it often takes one that is worse than gossip."""
    near = independent(0.49, 0.495, 0.5, 0.505, 0.51)
    assert lowest_share(false_certifications(AnchorQuery(), near, 500), 500) > 2 * DELTA
    assert_rarely_false(SageOS(probe_cost=0.0), near, decisions=500)


def test_picking_the_worst_breaks_the_expectation_bound() -> None:
    with pytest.raises(AssertionError, match="expected risk"):
        assert_no_worse_than_gossip(PickTheWorst(), SPREAD["wide"], decisions=300)


def test_aq_keeps_the_expectation_bound_in_practice() -> None:
    """The audit's point: what an always-commit rule breaks is certification, not this number."""
    for world in SPREAD.values():
        assert_no_worse_than_gossip(AnchorQuery(), world, decisions=1000)
