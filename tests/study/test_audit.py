"""The audit finds the paper's contradictions by computation, and would not find them in tables that had none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sagefl import SageOS, SageOSTable, replay
from sagefl.selection import theory
from sagefl.study import audit
from sagefl.study.claims import Verdict
from sagefl.study.judging import judge
from sagefl.study.published import SEED, published
from sagefl.study.results import Configuration, Result, ResultSet
from sagefl.study.statements import STATEMENTS

PAPER = published()
CONTRADICTED = {
    "saving-actual", "every-metric", "degree-condition", "evidence-table-printed-rule", "stage-32-decides",
    "every-stage", "gap-widens", "single-outlier", "easier-to-separate", "outright", "three-hundredths",
    "certified-severe", "certified-moderate", "certified-rarer", "largest-saving", "never-worse", "no-bound-for-commit",
    "dominance-observed", "cost-stop-optimal",
}  # fmt: skip
NUMBERS = {
    "three-hundredths": "0.132",
    "largest-saving": "82.180",
    "certified-moderate": "2.6 to 5.0",
    "certified-severe": "15.6 to 24.0",
    "every-metric": "13 on weak",
    "saving-actual": "53.18",
    "single-outlier": "sage-os 0.3928, rg 0.3936",
    "outright": "sage-os 3 (4), rg 3 (3), pfeddst 3 (3), sage-vanilla 2 (3); 13 wins outright do not fit",
    "certified-rarer": "fmnist/ba: 16.8% at 0.05, 21.6% at 0.1",
    "gap-widens": "widest gap at 0.1",
    "never-worse": "sage-vanilla at least 12% to 22%, above delta in 12 of 12",
    "no-bound-for-commit": "= 0.087 at d = 7 and m = 128",
    "dominance-observed": "2r = 0.878 at d = 6, and would have to be below lambda d m_1 = 0.192",
    "cost-stop-optimal": "0.319 at stage 64 (A = 0.329)",
    "evidence-table-printed-rule": "Stop@32 = 79.7% in the table, at most 40.3% possible",
}


def changed(change: Callable[[Configuration, str, dict[str, float]], None]) -> ResultSet:
    """The published tables, doctored."""
    rows = []
    for r in PAPER.rows:
        values = dict(r.values)
        change(r.configuration, r.method, values)
        rows.append(Result(r.configuration, r.method, SEED, values))
    return ResultSet(rows)


def verdicts(tables: ResultSet) -> dict[str, Verdict]:
    return {j.claim.id: j.tables.verdict for j in judge(STATEMENTS, tables, None)}


def test_exactly_the_known_contradictions_are_flagged() -> None:
    assert {id for id, v in verdicts(PAPER).items() if v is Verdict.CONTRADICTED} == CONTRADICTED


@pytest.mark.parametrize("id", NUMBERS)
def test_a_contradiction_comes_with_its_numbers(id: str) -> None:
    (found,) = [j.tables.detail for j in judge(STATEMENTS, PAPER, None) if j.claim.id == id]
    assert NUMBERS[id] in found


@pytest.mark.parametrize(
    "id",
    ["commit-loses", "savings", "os-7-of-12", "medians-commit", "cost-rg-monotone", "er-above-ba", "weak-6-4-2",
     "comm-oh-pens", "comm-oh-pfeddst", "dominance-threshold", "evidence-table-cumulative-rule", "without-outlier"],
)  # fmt: skip
def test_what_the_tables_do_support_is_supported(id: str) -> None:
    assert verdicts(PAPER)[id] is Verdict.SUPPORTED


def _no_weak_losses(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "rg" and "weak" in values:
        values["weak"] = 0.99


def _close_vanilla(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "sage-vanilla":
        values["accuracy"] -= 0.00102


def _smaller_saving(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "sage-os" and c == Configuration("fmnist", "er", 0.05):
        values["saving"] = 0.80


def _possible_stops(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "sage-os":
        values["stop_32"] = min(values["stop_32"], 0.4)


def _better_os(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "sage-os":
        values["accuracy"] += 0.002


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("every-metric", _no_weak_losses),
        ("three-hundredths", _close_vanilla),
        ("largest-saving", _smaller_saving),
        ("evidence-table-printed-rule", _possible_stops),
        ("single-outlier", _better_os),
    ],
)
def test_tables_without_the_contradiction_are_not_accused(id: str, change: Callable[..., None]) -> None:
    assert verdicts(PAPER)[id] is Verdict.CONTRADICTED
    assert verdicts(changed(change))[id] is Verdict.SUPPORTED


def _rg_loses_once(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "aq-128" and c == Configuration("cifar10", "er", 0.3):
        values["accuracy"] = 0.43


def _flat_cost(c: Configuration, method: str, values: dict[str, float]) -> None:
    if method == "sage-os" and c == Configuration("fmnist", "ba", 0.1):
        values["cost_rg"] = 0.2


@pytest.mark.parametrize(("id", "change"), [("commit-loses", _rg_loses_once), ("cost-rg-monotone", _flat_cost)])
def test_one_changed_cell_contradicts_a_universal_claim(id: str, change: Callable[..., None]) -> None:
    assert verdicts(changed(change))[id] is Verdict.CONTRADICTED


# The evidence table against the rule itself -------------------------------------------------------------------------


def stops_at(rule: SageOS, degree: int, stage: int) -> bool:
    """Whether the rule stops for cost at `stage` when all peers are alike, which is when it stops soonest."""
    outcome = replay(rule, np.zeros((degree, 128)), 0)
    return outcome.reason == "cost" and outcome.anchors == stage


@pytest.mark.parametrize("cumulative", [False, True])
def test_firing_degrees_are_those_of_the_selector(cumulative: bool) -> None:
    rule = SageOSTable() if cumulative else SageOS()
    for stage in (32, 64):
        least = audit.firing_degree(stage, cumulative=cumulative)
        assert least is not None
        earlier = audit.firing_degree(stage // 2, cumulative=cumulative) or 99
        assert stops_at(rule, least, stage)
        assert not stops_at(rule, least - 1, stage)
        assert not stops_at(rule, earlier, stage)  # it has stopped before


def test_the_printed_rule_fires_where_the_audit_says() -> None:
    assert [audit.firing_degree(m, cumulative=False) for m in (16, 32, 64, 128)] == [31, 11, 4, None]
    assert [audit.firing_degree(m, cumulative=True) for m in (16, 32, 64)] == [15, 5, 2]


def test_no_losses_whatever_break_the_bound() -> None:
    """On the paper's ER graph, SAGE-OS with random losses never stops at 32 for cost more often than the bound says."""
    rng = np.random.default_rng(3)
    degrees = audit.degrees("er")
    bound = np.mean([d >= 11 for d in degrees])
    for spread in (0.0, 0.1, 0.5):
        outcomes = [
            replay(SageOS(), (rng.random((d, 128)) < rng.random((d, 1)) * spread).astype(float), (1, i))
            for i, d in enumerate(degrees)
        ]
        assert np.mean([o.reason == "cost" and o.anchors == 32 for o in outcomes]) <= bound


def test_two_cells_of_the_table_are_impossible() -> None:
    bounds = {b.configuration: b for b in audit.stop_bounds(PAPER)}
    broken = {str(c) for c, b in bounds.items() if b.printed > b.incremental}
    assert broken == {"fmnist/er/0.3", "cifar10/er/0.3"}
    assert all(b.printed <= b.cumulative for b in bounds.values())


def test_each_graph_has_one_client_of_degree_one() -> None:
    for topology in ("er", "ba"):
        degrees = audit.degrees(topology)
        assert (len(degrees), degrees.count(1), degrees.count(2)) == (50, 1, 0)


def test_a_wrong_comm_oh_is_contradicted() -> None:
    assert audit.comm_oh("pens", 1.8)(PAPER).verdict is Verdict.CONTRADICTED
    assert audit.comm_oh("pfeddst", 1.96)(PAPER).verdict is Verdict.CONTRADICTED


# What the new contradictions rest on ----------------------------------------------------------------------------------


def tied(risks: np.ndarray, anchors: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Empirical risks of rows of peers, and the index of the best of each."""
    rng = np.random.default_rng(seed)
    seen = rng.binomial(anchors, risks) / anchors
    return seen, (seen + rng.uniform(0, 1e-9, seen.shape)).argmin(1)


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.1, 0.3])
def test_committing_stays_below_its_bound_however_near_peers_are(spread: float) -> None:
    risks = 0.5 + spread * (np.random.default_rng(1).random((20_000, 7)) - 0.5)
    _, best = tied(risks, 128)
    excess = (np.take_along_axis(risks, best[:, None], 1)[:, 0] - risks.min(1)).mean()
    assert excess <= np.sqrt(np.log(7) / 256) < 0.1


def test_where_the_cost_rule_fires_the_empirically_best_peer_beats_gossip() -> None:
    """Uniform risks, d = 6: the loss of gossiping is m A / (m + 2), as the audit says."""
    risks = np.random.default_rng(2).random((200_000, 6))
    seen, best = tied(risks, 64)
    advantage = seen.mean(1) - seen.min(1)
    fires = advantage <= theory.stage_cost(theory.PROBE_COST, 6, 64, 128) - 2 * theory.radius(64, 6)
    gain = (risks.mean(1) - np.take_along_axis(risks, best[:, None], 1)[:, 0])[fires]
    predicted = (64 * advantage / 66)[fires].mean()
    assert gain.mean() == pytest.approx(predicted, abs=4 * gain.std() / np.sqrt(fires.sum()))
    assert predicted > 0.15


def test_a_zero_spread_certifies_dominance_from_31_neighbours_on_and_not_before() -> None:
    certifies = [d for d in range(2, 50) if theory.dominance_threshold(2e-3, d) >= 2 * theory.radius(16, d)]
    assert certifies[0] == 31
