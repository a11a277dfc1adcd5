"""SAGE-E: looks, the certified set, units, stops, screening and the gate."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
from nulls import PATTERNS, differences, lower_limit, upper_limit

from sagefl import Decision, Probe, Reason, SageE, SageETrim, make, replay
from sagefl.selection.betting import BETS, Wealth, paired_differences, upper_bounds
from sagefl.selection.predictive import Bet, _atoms, future_looks, more_evidence_pays
from sagefl.selection.sage_e import Payoff
from sagefl.selection.selector import Draws

LEVEL = 0.999


def coin(degree: int, anchors: int = 128, seed: int = 0) -> np.ndarray:
    """Interchangeable peers."""
    return (np.random.default_rng([seed, degree]).random((degree, anchors)) < 0.5).astype(float)


def skewed(degree: int, best: float = 0.2, rest: float = 0.6, anchors: int = 128, seed: int = 0) -> np.ndarray:
    """Peer 0 is better than the others."""
    risks = np.array([best, *[rest] * (degree - 1)])[:, None]
    return (np.random.default_rng([seed, degree, 1]).random((degree, anchors)) < risks).astype(float)


def clear(degree: int, best: int, anchors: int = 128) -> np.ndarray:
    losses = np.ones((degree, anchors))
    losses[best] = 0
    return losses


# Where it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "looks"),
    [
        (8, [8]),
        (9, [8, 9]),
        (12, [8, 12]),
        (15, [8, 12, 15]),
        (127, [*range(8, 125, 4), 127]),
        (128, [*range(8, 129, 4)]),
        (500, [*range(8, 129, 4)]),
    ],
)
@pytest.mark.parametrize("rule", [SageE(stop="none", delta=1e-12), SageETrim(stop="none", delta=1e-12)])
def test_looks(rule: SageE | SageETrim, pool: int, looks: list[int]) -> None:
    outcome = replay(rule, coin(4, pool))
    assert [s.anchors for s in outcome.trace] == looks
    assert outcome.reason == Reason.EXHAUSTED
    assert outcome.evaluations == 4 * looks[-1]
    assert [s.fired for s in outcome.trace] == ["continue"] * (len(looks) - 1) + ["exhausted"]


def test_looks_at_the_stages_only() -> None:
    rule = SageE(stop="none", delta=1e-12, looks="stages")
    assert [s.anchors for s in replay(rule, coin(4, 100)).trace] == [16, 32, 64]
    assert [s.anchors for s in replay(replace(rule, largest=32), coin(4, 100)).trace] == [16, 32]
    assert replay(rule, coin(4, 15)).reason == Reason.NO_ANCHORS


@pytest.mark.parametrize("rule", [SageE(gate=True), SageETrim()])
def test_nothing_to_ask(rule: SageE | SageETrim) -> None:
    few, alone, nobody = replay(rule, coin(4, 7)), replay(rule, coin(1)), replay(rule, np.zeros((0, 20)))
    assert (few.reason, few.evaluations, few.state) == (Reason.NO_ANCHORS, 0, None)
    assert (alone.reason, alone.peers, alone.evaluations, alone.state) == (Reason.ONLY, (0,), 0, None)
    assert (nobody.reason, nobody.peers) == (Reason.NONE, ())
    assert replay(rule, coin(1, 3)).reason == Reason.ONLY  # a single neighbour is taken whatever the pool
    assert few.peers == replay(make("rg"), coin(4, 7)).peers  # the draw all rules share


def test_only_new_anchors_are_asked_in_order() -> None:
    decision, seen = SageE(stop="none", kind="probs", loss="ce").begin(range(3), 20), []
    while isinstance(probe := decision.request, Probe):
        seen.append((probe.start, probe.stop, probe.scoring.kind, probe.scoring.loss, probe.mask))
        decision.answer(np.full(probe.shape, 0.5))
    assert seen == [(0, 8, "probs", "ce", None), (8, 12, "probs", "ce", None), (12, 16, "probs", "ce", None),
                    (16, 20, "probs", "ce", None)]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 0},
        {"delta": 1.0},
        {"delta": float("nan")},
        {"probe_cost": -1e-3},
        {"probe_cost": float("inf")},
        {"loss_bound": 0},
        {"first": 0},
        {"step": 0},
        {"first": 8, "largest": 4},
        {"step": 2.5},
        {"looks": "coarse"},
        {"largest": 15, "looks": "stages"},
        {"stop": "never"},
        {"pick": "worst"},
        {"margin": -0.1},
        {"margin": 1.0},
        {"screen": -1},
        {"screen": True},
        {"gate": "no"},
        {"gate": 1},
        {"step": True},
        {"kind": "logits"},
        {"loss": "mse"},
        {"kind": "labels", "loss": "ce"},
    ],
)
def test_options_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)) if len(wrong) == 1 else "first|label|largest"):
        SageE(**wrong)  # type: ignore[arg-type]


def test_the_word_none_from_the_command_line() -> None:
    assert make("sage-e", stop=None) == SageE(stop="none")


# What it certifies --------------------------------------------------------------------------------------------------


def test_it_certifies_the_better_peer_and_says_why() -> None:
    outcome = replay(SageE(), clear(6, 3))
    assert (outcome.peers, outcome.reason, outcome.selected) == ((3,), Reason.CERTIFIED, True)
    assert outcome.anchors == 8
    last = outcome.trace[-1]
    assert (last.test, last.threshold) == ("wealth", pytest.approx(log(60)))
    assert last.wealth is not None
    assert last.wealth[3] == max(last.wealth) >= log(50)


@pytest.mark.parametrize("rule", [SageE(stop="none"), SageE(), SageE(stop="voi", looks="stages"), SageE(screen=8)])
def test_a_look_certifies_iff_a_wealth_of_its_trace_has_reached_the_threshold(rule: SageE) -> None:
    certified = 0
    for seed in range(25):
        outcome = replay(rule, skewed(5, seed=seed), seed)
        for stage in outcome.trace:
            assert stage.wealth is not None
            assert stage.threshold is not None
            assert (max(stage.wealth) >= stage.threshold) == (stage.fired == "certified")
        certified += outcome.reason == Reason.CERTIFIED
    assert certified > 5


def test_stopping_early_certifies_nobody_else() -> None:
    """Rule B can only gossip early: where it certifies, so does the rule without it, at the same look and peer."""
    both = 0
    for seed in range(60):
        losses = skewed(4, seed=seed)
        early, patient = replay(SageE(), losses, seed), replay(SageE(stop="none"), losses, seed)
        assert early.evaluations <= patient.evaluations
        if early.reason == Reason.CERTIFIED:
            assert (early.peers, early.anchors) == (patient.peers, patient.anchors)
            both += 1
    assert both > 10


def test_between_looks_the_running_maximum_certifies() -> None:
    losses = clear(3, 1, 12)
    losses[:, 7:] = 1 - losses[:, 7:]  # certified at anchor 7, disproved afterwards
    outcome = replay(SageE(stop="none"), losses)
    assert (outcome.peers, outcome.reason, outcome.anchors) == ((1,), Reason.CERTIFIED, 8)


def test_best_and_uniform_pick_from_the_certified_set() -> None:
    losses = np.ones((6, 16))
    losses[[1, 4]] = 0
    losses[4, 0] = 1  # peer 1 is ahead by one anchor; both are certified at 16
    best = {replay(SageE(first=16, stop="none"), losses, seed).peers for seed in range(20)}
    spread = [replay(SageE(first=16, stop="none", pick="uniform"), losses, seed).peers[0] for seed in range(200)]
    assert best == {(1,)}
    assert set(spread) == {1, 4}
    assert 70 < spread.count(1) < 130


def test_equal_wealth_is_drawn_not_taken_by_index() -> None:
    """The same differences on other anchors: equal but for rounding, which must not decide."""
    for seed in range(200):
        losses = np.ones((6, 16))
        losses[1] = np.arange(16) < 3
        losses[4] = losses[1][np.random.default_rng(seed).permutation(16)]
        wealth = Wealth(6)
        wealth.bet(paired_differences(losses))
        if 0 < abs(wealth.now[1] - wealth.now[4]) < 1e-12:
            break
    else:
        pytest.fail("no anchor order in which rounding shows")
    picks = [replay(SageE(first=16, stop="none", delta=0.5), losses, seed).peers[0] for seed in range(60)]
    assert set(picks) == {1, 4}


def test_a_margin_is_harder_and_promises_more() -> None:
    plain, margin = SageE(stop="none"), SageE(stop="none", margin=0.2)
    by = {rule: [replay(rule, skewed(6, seed=s), s).anchors for s in range(20)] for rule in (plain, margin)}
    assert np.mean(by[margin]) > np.mean(by[plain])
    assert replay(margin, clear(6, 2)).trace[-1].threshold == pytest.approx(log(6 / 0.1))
    # An advantage of .25 is one: .2 is certified, .3 is not.
    losses = np.tile([[0.2], [0.7]], 128)  # advantage over the mean .25
    assert replay(SageE(stop="none", margin=0.2), losses).reason == Reason.CERTIFIED
    assert replay(SageE(stop="none", margin=0.3), losses).reason == Reason.EXHAUSTED


# Units: losses in [0, M] --------------------------------------------------------------------------------------------

RULES = [
    SageE(),
    SageE(stop="voi", looks="stages", probe_cost=4e-3),
    SageE(stop="none", margin=0.1),
    SageE(margin=0.05, probe_cost=1e-3),
    SageE(screen=8, gate=True),
    SageETrim(probe_cost=2e-4),
]


@pytest.mark.parametrize("rule", RULES)
def test_losses_prices_and_margins_scale_together(rule: SageE | SageETrim) -> None:
    """Losses in [0, 4] with lambda and the margin in the same unit: the same decision, the trace in that unit."""
    more = {"margin": 4 * rule.margin} if isinstance(rule, SageE) else {}
    big = replace(rule, loss_bound=4.0, probe_cost=4 * rule.probe_cost, **more)
    reasons = set()
    for seed in range(12):
        losses = skewed(5, 0.3, 0.6, seed=seed)
        one, four = replay(rule, losses, seed), replay(big, 4 * losses, seed)
        assert (one.peers, one.reason, one.evaluations) == (four.peers, four.reason, four.evaluations)
        reasons.add(one.reason)
        for small, large in zip(one.trace, four.trace, strict=True):
            assert large.wealth == small.wealth
            assert large.risks == pytest.approx([4 * r for r in small.risks or ()])
            assert large.advantage == pytest.approx(4 * (small.advantage or 0))
            if small.next_cost is not None:
                assert large.next_cost == pytest.approx(4 * small.next_cost)
        if rule == RULES[4]:
            assert four.state["gate_total"] == pytest.approx(4 * one.state["gate_total"])  # type: ignore[index]
    assert len(reasons) > 1 or rule in (RULES[2], RULES[5])


# When it stops ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ahead", [[12], [12, 15], [*range(12, 129, 4)], [*range(100, 129, 4)], [32, 64, 128], [*range(12, 126, 4), 127]]
)
def test_future_looks_are_looks(ahead: list[int]) -> None:
    chosen = list(future_looks(tuple(ahead)))
    assert set(chosen) <= set(ahead)
    assert len(chosen) <= 5
    assert (chosen[0], chosen[-1]) == (ahead[0], ahead[-1])
    assert chosen == sorted(set(chosen))


def test_future_looks_are_geometric() -> None:
    assert future_looks(tuple(range(12, 129, 4))) == (12, 24, 40, 72, 128)
    assert future_looks(()) == ()


def test_atoms_and_their_masses() -> None:
    """1 + kappa/2n on every y, kappa/2n on every -y, equal values together; kappa = 2, n = 4."""
    third = np.array([1 / 3, 1 - 2 / 3, -1 / 3, 0.0])  # 1/3 twice, computed in two ways
    atoms, masses = _atoms(third)
    assert atoms == pytest.approx([-1 / 3, 0, 1 / 3])
    assert masses == pytest.approx([1.25 + 2 * 0.25, 1.25 + 0.25, 2 * 1.25 + 0.25])


def literal_pays(claim: Bet, price: float, looks: list[int], rng: np.random.Generator) -> bool:
    """Rule B as it is written down: 2n atoms, nothing collapsed, no short cuts, not in logs."""
    y, n = claim.differences, len(claim.differences)
    atoms, kappa, samples = np.concatenate([y, -y]), 2, 64
    masses = [1 + kappa / (2 * n)] * n + [kappa / (2 * n)] * n
    theta = rng.dirichlet(masses, size=samples)
    mu = claim.gain * theta @ atoms
    values = []
    for look in looks:
        k = rng.multinomial(look - n, theta)
        factors = [1 + g * (atoms - claim.shift) / (1 + claim.shift) for g in BETS]
        products = [np.exp(before) * np.prod(f**k, axis=1) for before, f in zip(claim.stakes, factors, strict=True)]
        certified = np.mean(products, axis=0) >= np.exp(claim.threshold)
        values.append(np.mean(mu * certified) - price * (look - n))
    return bool(max(values) > 0)


@pytest.mark.parametrize(("shift", "price"), [(0.0, 0.0035), (0.0, 0.004), (0.1, 0.001)])
def test_the_predictive_stop_is_rule_b(price: float, shift: float) -> None:
    """At prices where the random futures tip it either way: as often as the literal rule."""
    y = paired_differences(skewed(3, 0.3, 0.5, anchors=12, seed=5))[0]
    stakes = np.log1p(BETS[:, None] * (y - shift) / (1 + shift)).sum(axis=1)
    claim, looks = Bet(y, stakes, log(20), 2 / 3, shift), [16, 24, 40]
    rng, runs = np.random.default_rng(1), 250
    fast = sum(more_evidence_pays(claim, price, looks, rng) for _ in range(runs))
    slow = sum(literal_pays(claim, price, looks, rng) for _ in range(runs))
    assert 0.1 * runs < slow < 0.9 * runs
    pooled = (fast + slow) / (2 * runs)
    assert abs(fast - slow) / runs < 3.9 * np.sqrt(2 * pooled * (1 - pooled) / runs)


def test_the_predictive_stop_follows_price_and_evidence() -> None:
    def pays(y: np.ndarray, price: float) -> bool:
        stakes = np.log1p(BETS[:, None] * y).sum(axis=1)
        return more_evidence_pays(Bet(y, stakes, log(10), 0.5), price, [12, 24, 48], np.random.default_rng(2))

    winning, losing = np.array([1.0, 1, 0, 1, 0, 0, 1, 0]), -np.array([1.0, 1, 0, 1, 1, 0, 1, 1])
    assert pays(winning, 0.002)
    assert not pays(winning, 0.5)
    assert not pays(losing, 0.002)


@pytest.mark.parametrize("stop", ["predictive", "voi"])
@pytest.mark.parametrize("kind", [SageE, SageETrim])
def test_free_evidence_is_never_declined(kind: type[SageE] | type[SageETrim], stop: str) -> None:
    """At lambda = 0 there is no cost to stop for, not even after concordant anchors, which promise nothing."""
    silent = np.concatenate([np.zeros((6, 8)), clear(6, 2, 56)], axis=1)
    for losses in (silent, coin(6), skewed(6)):
        free, unstopped = replay(kind(stop=stop, probe_cost=0), losses), replay(kind(stop="none"), losses)
        assert (free.peers, free.reason, free.evaluations) == (unstopped.peers, unstopped.reason, unstopped.evaluations)
    assert replay(kind(stop="none"), silent).reason == Reason.CERTIFIED
    assert replay(kind(probe_cost=1e-12), silent).reason == Reason.COST  # any price will do


def test_stages_weigh_the_stages_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    monkeypatch.setattr(
        "sagefl.selection.betting_selector.more_evidence_pays",
        lambda claim, price, looks, rng: asked.append(list(looks)) or True,
    )
    replay(SageE(looks="stages", delta=1e-12), coin(4))
    assert asked == [[32, 64, 128], [64, 128], [128]]


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_voi_stops_iff_no_bound_exceeds_the_price_of_the_next_look(margin: float) -> None:
    rule, fired = SageE(stop="voi", looks="stages", probe_cost=3e-3, margin=margin), set()
    for seed in range(40):
        losses = skewed(3, 0.45, 0.5, seed=seed)
        for stage in replay(rule, losses, seed).trace:
            if stage.fired in ("cost", "continue"):
                bounds = upper_bounds(paired_differences(losses[:, : stage.anchors]), 0.1)
                assert stage.next_cost == pytest.approx(3e-3 * 3 * stage.anchors)  # the stages double
                assert (stage.fired == "cost") == (stage.next_cost >= 2 / 3 * bounds.max())
                fired.add(stage.fired)
    assert fired == {"cost", "continue"}


def test_voi_after_screening_is_about_the_leader_alone() -> None:
    rule, fired = SageE(stop="voi", looks="stages", probe_cost=4e-3, screen=16, delta=0.02), set()
    for seed in range(40):
        losses = skewed(6, 0.42, 0.5, seed=seed)
        decision, masks = drive(rule, losses, seed)
        leader = leader_of(masks)
        for stage in decision.outcome.trace[1:]:
            if stage.fired in ("cost", "continue"):
                mask = np.concatenate(masks, axis=1)[:, : stage.anchors]
                y = screened_differences(losses[:, : stage.anchors], mask, leader, 16)
                # delta/d as with everybody in: who leads was found from the data.
                bound = upper_bounds(y[None], 0.02 / 6)[0]
                assert (stage.fired == "cost") == (4e-3 * 3 * stage.anchors >= 5 / 6 * bound)
                fired.add(stage.fired)
    assert fired == {"cost", "continue"}


# Screening ----------------------------------------------------------------------------------------------------------


def leader_of(masks: list[np.ndarray]) -> int:
    return int(np.concatenate(masks, axis=1).sum(axis=1).argmax())


def screened_differences(losses: np.ndarray, mask: np.ndarray, leader: int, screen: int) -> np.ndarray:
    """The leader's Y: against everybody at first, then against the others asked."""
    others = np.delete(np.arange(len(losses)), leader)
    late = (losses * mask)[others].sum(axis=0) / 2 - losses[leader]
    return np.where(np.arange(losses.shape[1]) < screen, paired_differences(losses)[leader], late)


def drive(rule: SageE, losses: np.ndarray, seed: int) -> tuple[Decision, list[np.ndarray]]:
    decision, masks = rule.begin(range(len(losses)), losses.shape[1], seed), []
    while isinstance(probe := decision.request, Probe):
        masks.append(np.ones(probe.shape, bool) if probe.mask is None else probe.mask)
        answer = losses[:, probe.start : probe.stop].copy()
        answer[~masks[-1]] = 0.123  # what was not asked must not matter
        decision.answer(answer)
    return decision, masks


def test_screening_asks_the_leader_and_two_others() -> None:
    rule = SageE(stop="none", screen=8, delta=1e-12)
    decision, masks = drive(rule, coin(7), 3)
    first, later = masks[0], np.concatenate(masks[1:], axis=1)
    assert first.all()
    assert first.shape == (7, 8)
    leader = leader_of(masks)
    assert later[leader].all()
    assert (later.sum(axis=0) == 3).all()
    assert decision.outcome.evaluations == 7 * 8 + 3 * 120
    assert decision.outcome.trace[0].next_cost == pytest.approx(2e-3 * 3 * 4)
    # Fresh for every anchor: among 120 draws of 2 out of 6 the same pair does not come every time.
    assert len({tuple(np.flatnonzero(column)) for column in later.T}) > 10


def test_screening_draws_the_others_uniformly() -> None:
    counts = np.zeros(6)
    for seed in range(60):
        _, masks = drive(SageE(stop="none", screen=8, delta=1e-12), clear(6, 2), seed)
        counts += np.concatenate(masks[1:], axis=1).sum(axis=1) if len(masks) > 1 else 0
    total = counts[2]
    assert (np.abs(np.delete(counts, 2) - 0.4 * total) < 4 * np.sqrt(0.24 * total)).all()


def test_three_peers_are_never_screened_and_late_screening_starts_late() -> None:
    overtaken = np.tile([[0.0], [1.0], [1.0]], 60)
    overtaken[:, 5:] = np.array([[1.0], [0.0], [1.0]])  # peer 0 leads at first, peer 1 is better
    outcome = replay(SageE(stop="none", screen=8), overtaken)
    assert (outcome.peers, outcome.reason) == ((1,), Reason.CERTIFIED)  # nobody was frozen out
    assert outcome == replay(SageE(stop="none"), overtaken)
    late = drive(SageE(stop="none", screen=10, delta=1e-12), coin(6), 1)[1]
    assert [bool(mask.all()) for mask in late[:3]] == [True, True, False]  # looks at 8, 12; screened from 12 on


def test_a_tied_leader_is_drawn() -> None:
    same = np.tile(coin(1, 64), (5, 1))
    leaders = {leader_of(drive(SageE(stop="none", screen=8), same, seed)[1]) for seed in range(40)}
    assert leaders == set(range(5))


def test_screened_wealth_goes_on_with_the_leaders_differences() -> None:
    for seed in range(5):
        losses = skewed(6, 0.4, 0.55, seed=seed)
        decision, masks = drive(SageE(stop="none", screen=8, delta=1e-12), losses, seed)
        leader, mask = leader_of(masks), np.concatenate(masks, axis=1)
        y = screened_differences(losses, mask, leader, 8)
        wealth = np.mean([np.cumprod(1 + g * y) for g in BETS], axis=0)
        last = decision.outcome.trace[-1]
        assert last.wealth is not None
        assert last.wealth[leader] == pytest.approx(max(np.log(wealth.max()), 0))
        assert last.advantage == pytest.approx(5 / 6 * y.mean())
        assert last.risks == pytest.approx((losses * mask).sum(axis=1) / mask.sum(axis=1))


def screened_false(name: str, degree: int, decisions: int) -> int:
    """Fast screening from 8 anchors on: decisions in which somebody's wealth reaches d/delta."""
    rng, count = np.random.default_rng(9), 0
    for start in range(0, decisions, 500):
        losses = PATTERNS[name](min(500, decisions - start), degree, 128, rng)
        n = np.arange(len(losses))
        full = differences(losses)
        stakes = np.mean([np.prod(1 + g * full[:, :, :8], axis=2) for g in BETS], axis=0)
        leader = (stakes + 1e-12 * rng.random(stakes.shape)).argmax(axis=1)
        others = np.argsort(rng.random((len(losses), degree - 1, 128)), axis=1)[:, :2]
        others += others >= leader[:, None, None]
        rest = np.take_along_axis(losses, others, axis=1).mean(axis=1)
        late = rest - losses[n, leader]
        y = np.where(np.arange(128) < 8, full[n, leader], late)
        paths = np.mean([np.cumprod(1 + g * y, axis=1) for g in BETS], axis=0)
        needed = degree / 0.1
        # Whoever certifies on the first eight anchors does so unscreened.
        early = np.mean([np.cumprod(1 + g * full[:, :, :8], axis=2) for g in BETS], axis=0).max(axis=2) >= needed
        count += int((early.any(axis=1) | (paths.max(axis=1) >= needed)).sum())
    return count


@pytest.mark.parametrize(("name", "degree"), [("independent .5", 7), ("one wrong", 7), ("correlated .3", 15)])
def test_screening_costs_no_delta(name: str, degree: int) -> None:
    count = screened_false(name, degree, 3000)
    assert upper_limit(count, 3000, LEVEL) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("degree", [4, 7, 15])
@pytest.mark.parametrize("name", PATTERNS)
def test_screening_costs_no_delta_at_length(name: str, degree: int) -> None:
    count = screened_false(name, degree, 20_000)
    assert upper_limit(count, 20_000, LEVEL) < 0.1


def test_the_screening_selector_itself_rarely_errs() -> None:
    false, runs = 0, 250
    rng = np.random.default_rng(10)
    for seed, losses in enumerate(PATTERNS["one wrong"](runs, 5, 64, rng)):
        outcome = replay(SageE(stop="none", screen=8, looks="fine", step=14), losses, seed)
        false += outcome.reason == Reason.CERTIFIED and outcome.peers != (0,)
    assert upper_limit(false, runs, 0.99) < 0.1


def test_screening_saves_evaluations() -> None:
    plain, screened = SageE(stop="none"), SageE(stop="none", screen=8)
    spent = [(replay(plain, skewed(8, seed=s), s).evaluations, replay(screened, skewed(8, seed=s), s).evaluations)
             for s in range(30)]  # fmt: skip
    before, after = np.mean(spent, axis=0)
    assert after < before


# The history gate ---------------------------------------------------------------------------------------------------

GATED = SageE(gate=True, stop="none")


def test_the_gate_remembers_what_probing_was_worth() -> None:
    gossiped = replay(replace(GATED, delta=1e-12), coin(4, 20))
    assert gossiped.state == {"gate_total": pytest.approx(-2e-3 * 80), "gate_probed": 1}
    losses = clear(4, 2, 20)
    losses[2, 1] = 1
    certified = replay(GATED, losses, state={"gate_total": 1.0, "gate_probed": 5})
    seen = losses[:, : certified.anchors].mean(axis=1)
    worth = (seen.mean() - seen[2]) - 2e-3 * certified.evaluations
    assert certified.state == {"gate_total": pytest.approx(0.7 * 1.0 + worth), "gate_probed": 6}


def test_the_worth_is_that_of_the_peer_taken() -> None:
    losses = np.ones((6, 16))
    losses[[1, 4]] = 0
    losses[4, :2] = 1
    rule = SageE(gate=True, first=16, stop="none", pick="uniform")
    for seed in range(10):
        outcome = replay(rule, losses, seed)
        risks = losses.mean(axis=1)
        worth = risks.mean() - risks[outcome.peers[0]] - 2e-3 * outcome.evaluations
        assert outcome.state["gate_total"] == pytest.approx(worth)  # type: ignore[index]


def test_the_gate_shuts_after_two_rounds_that_did_not_pay() -> None:
    rule, state, reasons = replace(GATED, delta=1e-12), None, []
    for seed in range(200):
        outcome = replay(rule, coin(4, 20, seed), seed, state=state)
        reasons.append(outcome.reason)
        state = outcome.state or state
    assert reasons[:2] == [Reason.EXHAUSTED, Reason.EXHAUSTED]
    explored = sum(r != Reason.GATED for r in reasons[2:])
    assert lower_limit(explored, 198, LEVEL) < 0.05 < upper_limit(explored, 198, LEVEL)


def test_a_gated_round_asks_nothing_draws_like_gossip_and_remembers_nothing_new() -> None:
    state = {"gate_total": -0.5, "gate_probed": 2}
    outcomes = [replay(GATED, clear(4, 1), seed, state=state) for seed in range(30)]
    gated = [(seed, o) for seed, o in enumerate(outcomes) if o.reason == Reason.GATED]
    assert len(gated) > 20
    for seed, outcome in gated:
        assert (outcome.evaluations, outcome.selected, outcome.state) == (0, False, None)
        assert outcome.peers == replay(make("rg"), clear(4, 1), seed).peers


def test_rounds_without_a_choice_leave_the_memory() -> None:
    state = {"gate_total": 0.3, "gate_probed": 4}
    assert replay(GATED, coin(1), state=state).state is None
    assert replay(GATED, coin(4, 5), state=state).state is None
    assert state == {"gate_total": 0.3, "gate_probed": 4}


def test_the_gate_opens_again_when_exploring_pays() -> None:
    assert not Payoff(total=0.01, probed=9).shut(Draws(1))
    assert Payoff(total=-0.1, probed=9).after(0.5).total > 0
    assert not Payoff(total=-0.1, probed=1).shut(Draws(1))  # still warming up
    shut = sum(Payoff(total=0.0, probed=9).shut(Draws(seed)) for seed in range(400))
    assert lower_limit(shut, 400, LEVEL) < 0.95 < upper_limit(shut, 400, LEVEL)


def test_without_the_gate_there_is_no_memory() -> None:
    assert replay(SageE(), coin(4)).state is None


def test_a_restart_on_fewer_peers_starts_anew_without_paying_twice() -> None:
    losses = skewed(5, 0.1, 0.7)
    decision = SageE(stop="none", delta=1e-4).begin(range(5), 128, 1)
    probe = decision.request
    assert isinstance(probe, Probe)
    decision.answer(losses[:, :8])
    again = decision.restart([0, 1, 2])
    while isinstance(probe := again.request, Probe):
        again.answer(losses[list(probe.peers), probe.start : probe.stop])
    alone = replay(SageE(stop="none", delta=5e-5), losses[:3], 1)
    assert again.outcome.trace == alone.trace
    assert again.outcome.evaluations == alone.evaluations + 2 * 8
