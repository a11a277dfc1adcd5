"""Private answers: unbiased, valid for every rule, memoised, and added up."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import exp, log, tanh

import numpy as np
import pytest
from nulls import PATTERNS, count_false, lower_limit, upper_limit
from scipy.stats import chisquare

from sagefl import AnchorQuery, RandomGossip, Reason, SageE, SageETrim, SageOS, VanillaSage, replay
from sagefl.selection import theory
from sagefl.selection.betting import BETS, paired_differences
from sagefl.selection.private import PrivacyAccount, PrivateAnswers, RandomisedResponse, priced_for

LEVEL = 0.999
CLASSES = 10
MECHANISMS = [RandomisedResponse(eps, CLASSES, how) for how in ("k-rr", "bitwise") for eps in (1, 2, 4)]  # type: ignore[arg-type]
ids = [f"{m.mechanism}-{m.epsilon:g}" for m in MECHANISMS]
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=ids)


def noisy(mechanism: RandomisedResponse, losses: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Observed losses of peers whose true losses are `losses`: labels are made, perturbed and scored."""
    truth = rng.integers(CLASSES, size=losses.size)
    elsewhere = (truth + rng.integers(1, CLASSES, size=losses.size)) % CLASSES
    labels = np.where(losses.ravel() == 1, elsewhere, truth)
    answers = mechanism.perturb(labels, rng.random((labels.size, mechanism.draws)))
    return mechanism.losses(answers, truth).reshape(losses.shape)


# The mechanism --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "k_rr", "bitwise"), [(1, 6.82, 4.08), (2, 2.57, 2.16), (4, 1.19, 1.31)])
def test_effective_bounds(epsilon: float, k_rr: float, bitwise: float) -> None:
    assert RandomisedResponse(epsilon, 10).effective_bound == pytest.approx(k_rr, abs=0.005)
    assert RandomisedResponse(epsilon, 10).effective_bound == pytest.approx((exp(epsilon) + 9) / (exp(epsilon) - 1))
    for classes in (2, 10, 100):
        found = RandomisedResponse(epsilon, classes, "bitwise").effective_bound
        assert found == pytest.approx(bitwise, abs=0.005)
        assert found == pytest.approx(1 / tanh(epsilon / 4))


@pytest.mark.parametrize("classes", [5, 10, 100])
def test_bitwise_is_better_below_its_crossing(classes: int) -> None:
    crossing = 2 * log((classes - 2) / 2)
    for epsilon, better in ((0.9 * crossing, True), (1.1 * crossing, False)):
        bounds = [RandomisedResponse(epsilon, classes, how).effective_bound for how in ("bitwise", "k-rr")]  # type: ignore[arg-type]
        assert (bounds[0] < bounds[1]) == better


@each_mechanism
def test_no_answer_is_more_than_e_to_the_epsilon_likelier_under_another_label(mechanism: RandomisedResponse) -> None:
    flips = 2 if mechanism.mechanism == "bitwise" else 1  # two one-hot labels differ in two bits
    assert (mechanism.p / mechanism.q) ** flips == pytest.approx(exp(mechanism.epsilon))


@each_mechanism
def test_answers_have_the_stated_probabilities(mechanism: RandomisedResponse) -> None:
    n, rng = 20_000, np.random.default_rng(1)
    answers = mechanism.perturb(np.full(n, 3), rng.random((n, mechanism.draws)))
    if mechanism.mechanism == "bitwise":
        assert answers.shape == (n, CLASSES)
        for label, count in enumerate(answers.sum(axis=0)):
            expected = mechanism.p if label == 3 else mechanism.q
            assert lower_limit(int(count), n, LEVEL) < expected < upper_limit(int(count), n, LEVEL)
    else:
        expected = np.full(CLASSES, mechanism.q * n)
        expected[3] = mechanism.p * n
        assert chisquare(np.bincount(answers, minlength=CLASSES), expected).pvalue > 1e-3


@each_mechanism
@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_the_debiased_loss_is_unbiased(mechanism: RandomisedResponse, loss: float) -> None:
    n = 20_000
    observed = noisy(mechanism, np.full(n, loss), np.random.default_rng(2))
    wrong = int(observed.sum())
    low, high = mechanism.debiased([lower_limit(wrong, n, LEVEL), upper_limit(wrong, n, LEVEL)])
    assert low < loss < high
    assert np.ptp(mechanism.debiased([0.0, 1.0])) == pytest.approx(mechanism.effective_bound)


@pytest.mark.parametrize("epsilon", [1e-20, 1e-3, 40, 900])
@pytest.mark.parametrize("how", ["k-rr", "bitwise"])
def test_extreme_epsilons(epsilon: float, how: str) -> None:
    mechanism = RandomisedResponse(epsilon, CLASSES, how)  # type: ignore[arg-type]
    answers = mechanism.perturb(np.arange(10), np.random.default_rng(3).random((10, mechanism.draws)))
    assert set(np.unique(answers)) <= set(range(CLASSES))
    nearly = epsilon / (4 if how == "bitwise" else CLASSES)  # p - q at a small epsilon
    assert mechanism.contrast == pytest.approx(nearly if epsilon < 1 else 1.0, rel=1e-2)
    if epsilon >= 40:
        assert not mechanism.losses(answers, np.arange(10)).any()


@pytest.mark.parametrize("wrong", [(0, 10, "k-rr"), (-1, 10, "k-rr"), (float("nan"), 10, "k-rr"),
                                   (float("inf"), 10, "k-rr"), (1, 1, "k-rr"), (1, 10, "laplace")])  # fmt: skip
def test_mechanisms_that_make_no_sense(wrong: tuple[float, int, str]) -> None:
    with pytest.raises(ValueError, match=r"epsilon|classes|mechanism"):
        RandomisedResponse(*wrong)  # type: ignore[arg-type]


def test_answer_bytes() -> None:
    sizes = {(k, how): RandomisedResponse(1, k, how).answer_bytes for k in (8, 10, 300) for how in ("k-rr", "bitwise")}  # type: ignore[arg-type]
    assert sizes == {(8, "k-rr"): 1, (8, "bitwise"): 1, (10, "k-rr"): 1, (10, "bitwise"): 2, (300, "k-rr"): 2,
                     (300, "bitwise"): 38}  # fmt: skip


# With every rule ------------------------------------------------------------------------------------------------------


def false_under(mechanism: RandomisedResponse, name: str, degree: int, decisions: int) -> float:
    draw = PATTERNS[name]
    count = count_false(lambda n, d, m, rng: noisy(mechanism, draw(n, d, m, rng), rng), degree, decisions, degree / 0.1)
    return upper_limit(count, decisions, LEVEL)


@each_mechanism
@pytest.mark.parametrize(("name", "degree"), [("one wrong", 2), ("independent .5", 3)])
def test_the_certificate_stays_valid(mechanism: RandomisedResponse, name: str, degree: int) -> None:
    assert false_under(mechanism, name, degree, 5000) < 0.1


@pytest.mark.slow
@each_mechanism
@pytest.mark.parametrize("degree", [2, 7])
@pytest.mark.parametrize("name", ["independent .5", "correlated .3", "one wrong"])
def test_the_certificate_stays_valid_at_length(mechanism: RandomisedResponse, name: str, degree: int) -> None:
    assert false_under(mechanism, name, degree, 20_000) < 0.1


@each_mechanism
def test_lambda_and_margin_shrink_as_differences_do(mechanism: RandomisedResponse) -> None:
    rule = priced_for(SageE(probe_cost=1e-2, margin=0.2, pick="uniform"), mechanism)
    assert rule == SageE(probe_cost=1e-2 * mechanism.contrast, margin=0.2 * mechanism.contrast, pick="uniform")
    assert priced_for(SageETrim(), mechanism).probe_cost == pytest.approx(2e-3 * mechanism.contrast)
    for unpriced in (RandomGossip(), AnchorQuery(), VanillaSage()):
        assert priced_for(unpriced, mechanism) == unpriced


@each_mechanism
def test_the_same_decision_as_debiasing_with_a_wider_bound(mechanism: RandomisedResponse) -> None:
    """SAGE-OS on X~ with lambda (p - q) decides as on Z with M_eff, which every staged formula scales with."""
    rng, reasons = np.random.default_rng(4), set()
    for seed in range(20):
        price = 2e-3 if seed % 2 else 2e-2 * mechanism.effective_bound  # a low one, and one at which it may stop
        raw = priced_for(SageOS(probe_cost=price), mechanism)
        wide = SageOS(loss_bound=mechanism.effective_bound, probe_cost=price)
        truth = (rng.random((4, 128)) < np.array([0.05, 0.9, 0.9, 0.9])[:, None]).astype(float)
        observed = noisy(mechanism, truth, rng)
        # Z shifted to start at 0: only differences count.
        shifted = mechanism.debiased(observed) - mechanism.debiased(0.0)
        one, two = replay(raw, observed, seed), replay(wide, np.clip(shifted, 0, mechanism.effective_bound), seed)
        assert (one.reason, one.peers, one.evaluations) == (two.reason, two.peers, two.evaluations)
        reasons.add(one.reason)
    assert Reason.COST in reasons
    assert len(reasons) > 1


def test_a_margin_on_private_answers_is_the_margin_on_true_risks() -> None:
    """An advantage of .25 over gossip: a margin of .1 is certified from noisy answers, one of .3 hardly ever.

    What is observed is an advantage of .097, so that a margin that stayed .1 would hardly ever be certified.
    """
    mechanism, rng = RandomisedResponse(2, CLASSES), np.random.default_rng(5)
    assert 0.25 * mechanism.contrast < 0.1
    found = np.zeros(2)
    for seed in range(30):
        truth = (rng.random((2, 2000)) < np.array([[0.2], [0.7]])).astype(float)
        observed = noisy(mechanism, truth, rng)
        for i, margin in enumerate((0.1, 0.3)):
            rule = priced_for(SageE(margin=margin, stop="none", largest=2000, first=200, step=200), mechanism)
            found[i] += replay(rule, observed, seed).selected
    assert found[0] > 25
    assert found[1] <= 8


@cache
def anchors_needed(mechanism: RandomisedResponse | None, decisions: int = 120, anchors: int = 3000) -> float:
    """Mean number of anchors until a peer of risk .1 is certified against one of risk .6."""
    rng = np.random.default_rng(6)
    losses = (rng.random((decisions, 2, anchors)) < np.array([[0.1], [0.6]])).astype(float)
    if mechanism is not None:
        losses = np.stack([noisy(mechanism, x, rng) for x in losses])
    y = np.stack([paired_differences(x)[0] for x in losses])
    wealth = np.logaddexp.reduce([np.cumsum(np.log1p(g * y), axis=1) for g in BETS], axis=0) - log(len(BETS))
    reached = wealth >= log(1 / 0.1)
    assert reached.any(axis=1).mean() > 0.95
    return float(np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, anchors).mean())


@each_mechanism
def test_anchors_needed_grow_like_the_square_of_the_effective_bound(mechanism: RandomisedResponse) -> None:
    """1/(p - q)^2 is exact for the radius; bets also profit from a variance that k-rr makes smaller."""
    square = mechanism.effective_bound**2
    gap = theory.sufficient_anchors(0.2, 6, loss_bound=mechanism.effective_bound) / theory.sufficient_anchors(0.2, 6)
    assert gap == pytest.approx(square, rel=1e-3)
    ratio = anchors_needed(mechanism) / anchors_needed(None)
    assert 0.5 * square < ratio < 1.35 * square


# Memory ---------------------------------------------------------------------------------------------------------------

SECRET = bytes(range(32))
INPUTS = np.random.default_rng(7).integers(0, 256, (200, 4, 4), dtype=np.uint8)
LABELS = np.random.default_rng(8).integers(0, CLASSES, 200)
both = pytest.mark.parametrize("how", ["k-rr", "bitwise"])


def layer(how: str, secret: bytes = SECRET, epsilon: float = 1) -> PrivateAnswers:
    return PrivateAnswers(RandomisedResponse(epsilon, CLASSES, how), secret)  # type: ignore[arg-type]


@both
def test_asking_again_gives_the_same_answer(how: str) -> None:
    first = layer(how).answer(LABELS, "snapshot-1", INPUTS)
    assert np.array_equal(first, layer(how).answer(LABELS, "snapshot-1", INPUTS))  # also after a restart
    order = np.random.default_rng(9).permutation(200)
    assert np.array_equal(first[order], layer(how).answer(LABELS[order], "snapshot-1", INPUTS[order]))
    one = layer(how).answer(LABELS[5:6], "snapshot-1", INPUTS[5:6])
    assert np.array_equal(first[5:6], one)  # whatever else is asked along with it


@both
def test_anything_else_gets_fresh_noise(how: str) -> None:
    first = layer(how).answer(LABELS, "snapshot-1", INPUTS)
    others = {
        "another snapshot": layer(how).answer(LABELS, "snapshot-2", INPUTS),
        "another secret": layer(how, secret=bytes(32)).answer(LABELS, "snapshot-1", INPUTS),
        "another epsilon": layer(how, epsilon=1.001).answer(LABELS, "snapshot-1", INPUTS),
        "another input": layer(how).answer(LABELS, "snapshot-1", INPUTS ^ 1),
        "another type": layer(how).answer(LABELS, "snapshot-1", INPUTS.astype(np.float32)),
    }
    n = first.size
    for name, other in others.items():
        same = float((first == other).mean())
        p, q = layer(how).mechanism.p, layer(how).mechanism.q
        expected = p * p + (1 - p) ** 2 if how == "bitwise" else p * p + 9 * q * q
        assert abs(same - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n), name


@both
def test_averaging_repeated_answers_learns_nothing(how: str) -> None:
    answers = [layer(how).answer(LABELS, "snapshot-1", INPUTS) for _ in range(20)]
    assert np.array_equal(np.mean(answers, axis=0), answers[0])


@both
def test_memoised_noise_has_the_stated_rate(how: str) -> None:
    mechanism = layer(how).mechanism
    inputs = np.arange(4000)[:, None]
    labels = np.arange(4000) % CLASSES
    right = int(4000 - mechanism.losses(layer(how).answer(labels, "s", inputs), labels).sum())
    assert lower_limit(right, 4000, LEVEL) < mechanism.p < upper_limit(right, 4000, LEVEL)


def test_a_guessable_secret_and_mismatched_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 random bytes"):
        layer("k-rr", secret=b"short")
    with pytest.raises(ValueError, match="3 labels for 2 inputs"):
        layer("k-rr").answer(np.zeros(3, dtype=int), "s", INPUTS[:2])
    assert len(layer("bitwise").answer(LABELS[:0], "s", INPUTS[:0])) == 0
    assert "secret" not in repr(layer("k-rr"))


# The account ----------------------------------------------------------------------------------------------------------


def test_the_account_adds_up() -> None:
    account = PrivacyAccount(epsilon=0.5)
    account.answered("ann", 8)
    account.answered("ben", 4)
    account.answered("ann", 4)
    assert account.report() == {"per_answer": 0.5, "round_worst": 6.0, "round_total": 8.0, "worst": 6.0, "total": 8.0}
    account.next_round()
    account.answered("ben", 2)
    assert account.report() == {"per_answer": 0.5, "round_worst": 1.0, "round_total": 1.0, "worst": 6.0, "total": 9.0}
    assert PrivacyAccount(1.0).report()["worst"] == 0


def test_the_rule_of_composition_is_the_product_of_likelihoods() -> None:
    """k answers about k inputs: the worst likelihood ratio over all answers is e^(k eps)."""
    mechanism = RandomisedResponse(0.7, 3)
    ratios = [mechanism.p / mechanism.q, mechanism.q / mechanism.p, 1.0]
    worst = max(a * b * c for a in ratios for b in ratios for c in ratios)
    account = PrivacyAccount(mechanism.epsilon)
    account.answered("ann", 3)
    assert log(worst) == pytest.approx(account.report()["total"])


def test_pricing_keeps_every_other_option() -> None:
    rule = SageOS(radius="tight", cost="cumulative", delta=0.05)
    priced = priced_for(rule, MECHANISMS[0])
    assert replace(priced, probe_cost=rule.probe_cost) == rule
