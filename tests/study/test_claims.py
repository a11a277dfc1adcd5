"""The rule by which runs decide: what it takes to hold, to fail and to stay open."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_study import AT, results

from sagefl.study.claims import (
    Above,
    All,
    Below,
    Claim,
    Compared,
    Everywhere,
    Exactly,
    Finding,
    Near,
    NotRun,
    Printed,
    RunTest,
    Untestable,
    Verdict,
)
from sagefl.study.judging import as_printed, judge
from sagefl.study.measures import column, gap, matched, smallest_step, trend, win_share, wins
from sagefl.study.published import published
from sagefl.study.results import Configuration, Result, ResultSet
from sagefl.study.statements import STATEMENTS

PAPER = published()
LEAD = gap("accuracy", "rg", "aq-128")


def of(a: list[float], b: list[float], metric: str = "accuracy") -> ResultSet:
    return results({"rg": {metric: a}, "aq-128": {metric: b}})


def test_a_direction_holds_fails_or_stays_open_by_its_interval() -> None:
    clear = of([0.40, 0.42, 0.41], [0.38, 0.40, 0.391])
    assert Above(LEAD).runs(clear, PAPER).verdict is Verdict.HOLDS
    assert Below(LEAD).runs(clear, PAPER).verdict is Verdict.FAILS
    noisy = of([0.40, 0.42, 0.41], [0.35, 0.43, 0.40])
    open_ = Above(LEAD).runs(noisy, PAPER)
    assert (open_.verdict, open_.leans) == (Verdict.UNDECIDED, True)
    assert "interval" in open_.detail


def test_differences_are_paired_within_a_seed() -> None:
    """Seeds that differ far more than the methods do decide nonetheless, because each is its own control."""
    base = [0.2, 0.5, 0.8]
    paired = of([0.210, 0.510, 0.811], base)
    assert Above(LEAD).runs(paired, PAPER).verdict is Verdict.HOLDS
    shuffled = of([0.510, 0.811, 0.210], base)
    assert Above(LEAD).runs(shuffled, PAPER).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_decide_nothing_that_varies(seeds: int) -> None:
    ours = of([0.9] * seeds, [0.1] * seeds)
    for test in (Above(LEAD), Everywhere("accuracy", "rg", ("aq-128",)), Near(LEAD, 1000.0)):
        found = test.runs(ours, PAPER)
        assert (found.verdict, found.leans) == (Verdict.UNDECIDED, True)
    against = Below(LEAD).runs(ours, PAPER)
    assert (against.verdict, against.leans) == (Verdict.UNDECIDED, False)
    assert "points against it" in against.short


def test_what_cannot_vary_is_decided_by_one_seed() -> None:
    ours = results({"sage-os": {"comm_oh": [1.0]}})
    assert Exactly(column("sage-os", "comm_oh"), 1.0).runs(ours, PAPER).verdict is Verdict.HOLDS
    assert Exactly(column("sage-os", "comm_oh"), 1.784).runs(ours, PAPER).verdict is Verdict.FAILS


def test_missing_cells_are_named() -> None:
    found = Above(gap("accuracy", "rg", "pens")).runs(of([0.4] * 3, [0.3] * 3), PAPER)
    assert found.verdict is Verdict.MISSING
    assert "pens" in found.detail
    assert Everywhere("weak", "rg", ("aq-128",)).runs(of([0.4], [0.3]), PAPER).verdict is Verdict.MISSING


def test_a_number_is_compared_with_the_published_one_on_the_same_configuration() -> None:
    """FMNIST/ER/.1 publishes a saving of 73.86 %, not the matrix' mean of 75.50 %."""
    test = Near(column("sage-os", "saving", percent=True), 1.0)
    inside = results({"sage-os": {"saving": [0.738, 0.740, 0.739]}})
    found = test.runs(inside, PAPER)
    assert found.verdict is Verdict.HOLDS
    assert "73.86" in found.detail
    assert test.runs(results({"sage-os": {"saving": [0.755, 0.7551, 0.7549]}}), PAPER).verdict is Verdict.FAILS
    assert test.runs(results({"sage-os": {"saving": [0.73, 0.75, 0.74]}}), PAPER).verdict is Verdict.UNDECIDED


def everywhere(gaps: list[list[float]]) -> Finding:
    """RG against AQ-128 in one configuration per list of per-seed gaps."""
    rows = []
    for i, per_seed in enumerate(gaps):
        at = Configuration("fmnist", "er", 0.1 * (i + 1))
        for seed, difference in enumerate(per_seed, start=1):
            rows += [
                Result(at, "rg", seed, {"accuracy": 0.5 + difference}),
                Result(at, "aq-128", seed, {"accuracy": 0.5}),
            ]
    return Everywhere("accuracy", "rg", ("aq-128",)).runs(ResultSet(rows), PAPER)


def test_every_configuration_must_hold_for_all_to_hold() -> None:
    good, open_, bad = [0.020, 0.021, 0.022], [0.03, -0.01, 0.01], [-0.030, -0.0301, -0.0302]
    assert everywhere([good, good]).verdict is Verdict.HOLDS
    assert everywhere([good, open_]).verdict is Verdict.UNDECIDED
    found = everywhere([good, open_, bad])
    assert found.verdict is Verdict.FAILS
    assert "2 of 3" in found.detail


def test_failing_one_of_many_is_corrected_for_their_number() -> None:
    """One configuration at the edge of its own interval is expected among many, and must not refute the claim."""
    good, edge = [0.020, 0.021, 0.022], [-0.0028, -0.0014, -0.0021]
    assert everywhere([edge]).verdict is Verdict.FAILS
    assert everywhere([good] * 11 + [edge]).verdict is Verdict.UNDECIDED


def test_the_rule_errs_no_more_often_than_it_says() -> None:
    """With no effect at all, a direction is decided (either way) in about 5 % of studies of four seeds."""
    rng = np.random.default_rng(7)
    decided = 0
    for _ in range(600):
        a, b = rng.normal(0.4, 0.02, 4), rng.normal(0.4, 0.02, 4)
        decided += Above(LEAD).runs(of(list(a), list(b)), PAPER).verdict is not Verdict.UNDECIDED
    assert 0.025 < decided / 600 < 0.085


def test_configurations_that_only_some_seeds_have_are_left_out_and_counted() -> None:
    both = of([0.40, 0.41, 0.42], [0.30, 0.31, 0.32])
    extra = results({"rg": {"accuracy": [0.1]}, "aq-128": {"accuracy": [0.9]}}, Configuration("fmnist", "ba", 0.3))
    found = Above(LEAD).runs(ResultSet((*both.rows, *extra.rows)), PAPER)
    assert found.verdict is Verdict.HOLDS
    assert found.scope == "1 of 12 configurations: fmnist/er/0.1; 3 seed(s)"


def test_with_few_seeds_the_seed_with_most_configurations_is_described() -> None:
    one = of([0.40, 0.41], [0.30, 0.31])
    extra = results({"rg": {"accuracy": [0.1]}, "aq-128": {"accuracy": [0.9]}}, Configuration("fmnist", "ba", 0.3))
    found = Above(LEAD).runs(ResultSet((*one.rows, *extra.rows)), PAPER)
    assert found.scope.startswith("2 of 12")
    assert found.leans is False


def test_several_tests_are_as_bad_as_the_worst() -> None:
    ours = of([0.40, 0.42, 0.41], [0.38, 0.40, 0.391])
    holds, fails, absent = Above(LEAD), Below(LEAD), Above(gap("accuracy", "rg", "pens"))
    cases: list[tuple[tuple[RunTest, ...], Verdict]] = [
        ((holds, holds), Verdict.HOLDS),
        ((holds, absent), Verdict.MISSING),
        ((holds, absent, fails), Verdict.FAILS),
        ((holds, NotRun("x")), Verdict.NOT_RUNS),
    ]
    for tests, verdict in cases:
        assert All(*tests).runs(ours, PAPER).verdict is verdict


# On tables ----------------------------------------------------------------------------------------------------------


def table(value: float) -> ResultSet:
    return ResultSet([Result(AT, "rg", 0, {"accuracy": value})])


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.37817, Verdict.SUPPORTED), (0.37825, Verdict.SUPPORTED), (0.3783, Verdict.CONTRADICTED)],
)
def test_a_printed_number_may_be_off_by_half_its_last_digit(value: float, verdict: Verdict) -> None:
    assert Printed(column("rg", "accuracy"), 0.3782, 4).tables(table(value)).verdict is verdict


def test_a_bound_is_strict_unless_it_says_otherwise() -> None:
    at = column("rg", "accuracy")
    assert Compared(at, ">", 0.4).tables(table(0.4)).verdict is Verdict.CONTRADICTED
    assert Compared(at, ">=", 0.4).tables(table(0.4)).verdict is Verdict.SUPPORTED
    assert Compared(at, "<", 0.4).tables(table(0.41)).verdict is Verdict.CONTRADICTED
    assert Printed(column("pens", "weak"), 0.5, 1).tables(table(0.4)).verdict is Verdict.UNTESTABLE
    assert Untestable("because").tables(table(0.4)).detail == "because"


# Measures -----------------------------------------------------------------------------------------------------------


def test_ties_are_no_wins_and_half_a_share() -> None:
    ours = results({"rg": {"accuracy": [0.5]}, "aq-128": {"accuracy": [0.5]}})
    counted, shared = wins("accuracy", "rg", "aq-128").at(ours, 1), win_share("accuracy", "rg", "aq-128").at(ours, 1)
    assert counted is not None
    assert shared is not None
    assert (counted.value, shared.value) == (0, 0)


def test_trends_and_matched_pairs() -> None:
    values = {("er", 0.05): 0.2, ("er", 0.1): 0.5, ("er", 0.3): 0.4, ("ba", 0.05): 0.1, ("ba", 0.3): 0.7}
    cells = ((Configuration("fmnist", t, a), v) for (t, a), v in values.items())
    ours = ResultSet(Result(at, "sage-os", 1, {"cost_rg": v}) for at, v in cells)
    found = {
        name: measure.at(ours, 1)
        for name, measure in {
            "trend": trend("cost_rg", "sage-os"),
            "step": smallest_step("cost_rg", "sage-os"),
            "matched": matched("cost_rg", "sage-os"),
        }.items()
    }
    assert {k: m and round(m.value, 6) for k, m in found.items()} == {"trend": 40.0, "step": -10.0, "matched": -10.0}


def test_two_results_for_one_cell_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two results for fmnist/er/0\.1 rg seed 1"):
        ResultSet([Result(AT, "rg", 1, {}), Result(AT, "rg", 1, {})])


# The statements -----------------------------------------------------------------------------------------------------


def test_statements_are_complete_records() -> None:
    ids = [s.id for s in STATEMENTS]
    assert len(set(ids)) == len(ids) >= 60
    assert all(s.quote and s.where for s in STATEMENTS)


def test_without_runs_every_run_verdict_is_missing_or_not_about_runs() -> None:
    verdicts = {j.runs.verdict for j in judge(STATEMENTS, PAPER, None)}
    assert verdicts == {Verdict.MISSING, Verdict.NOT_RUNS}


def test_the_papers_own_tables_taken_as_runs_agree_with_the_paper() -> None:
    """Three identical 'seeds' of the published tables: claims the tables support must not fail by the run rule."""
    rows = [Result(r.configuration, r.method, seed, r.values) for seed in (1, 2, 3) for r in PAPER.rows]
    judged = judge(STATEMENTS, PAPER, ResultSet(rows))
    wrong = [j.claim.id for j in judged if j.tables.verdict is Verdict.SUPPORTED and j.runs.verdict is Verdict.FAILS]
    assert wrong == []
    contradicted = {j.claim.id: j.runs.verdict for j in judged if j.tables.verdict is Verdict.CONTRADICTED}
    for id in ("saving-actual", "every-metric", "single-outlier", "easier-to-separate"):
        assert contradicted[id] is Verdict.FAILS


# One run a cell, as printed -------------------------------------------------------------------------------------------


def everywhere_of(gaps: list[float]) -> ResultSet:
    """RG minus AQ-128, one run in each of the paper's configurations, as many as there are gaps."""
    rows = []
    for c, gap_ in zip(PAPER.configurations, gaps, strict=False):
        rows += [Result(c, "rg", 1, {"accuracy": 0.5 + gap_}), Result(c, "aq-128", 1, {"accuracy": 0.5})]
    return ResultSet(rows)


def printed(test: RunTest, ours: ResultSet) -> Finding:
    return as_printed(test, ours, PAPER)


def test_one_run_a_cell_reproduces_a_claim_or_does_not() -> None:
    for test, right in ((Above(LEAD), True), (Below(LEAD), False), (Near(LEAD, 1.0), False)):
        found = printed(test, everywhere_of([0.01] * 12))
        assert found.verdict is (Verdict.REPRODUCED if right else Verdict.NOT_REPRODUCED)
        assert "+1.00 points" in found.detail
        assert "published +2.73 points there" in found.detail


def test_a_claim_about_configurations_that_were_not_run_stays_open() -> None:
    found = printed(Above(LEAD), everywhere_of([0.01] * 11))
    assert (found.verdict, found.leans) == (Verdict.OPEN, True)
    assert found.short == "open: cells missing (so far as stated)"
    assert printed(Below(LEAD), everywhere_of([0.01] * 11)).short == "open: cells missing (so far not)"
    assert printed(Above(gap("accuracy", "rg", "pens")), everywhere_of([0.01])).short == "open: cells missing"


def test_in_every_configuration_is_refuted_by_one_and_shown_by_all_alone() -> None:
    every = Everywhere("accuracy", "rg", ("aq-128",))
    assert printed(every, everywhere_of([0.01] * 12)).verdict is Verdict.REPRODUCED
    assert printed(every, everywhere_of([0.01] * 3)).verdict is Verdict.OPEN
    assert printed(every, everywhere_of([0.01, -0.01])).verdict is Verdict.NOT_REPRODUCED


def test_several_tests_are_reproduced_together() -> None:
    whole = everywhere_of([0.01] * 12)
    assert printed(All(Above(LEAD), Near(LEAD, 2.0)), whole).verdict is Verdict.REPRODUCED
    assert printed(All(Above(LEAD), Below(LEAD)), whole).verdict is Verdict.NOT_REPRODUCED
    assert printed(All(Above(LEAD), Above(gap("accuracy", "rg", "pens"))), whole).verdict is Verdict.OPEN


def test_a_stand_in_for_a_data_set_reproduces_nothing() -> None:
    own = [r for r in PAPER.rows if r.configuration.dataset == "fmnist"]
    rows = [Result(r.configuration._replace(dataset="fmnist-mini"), r.method, 1, r.values) for r in own]
    judged = judge(STATEMENTS, PAPER, ResultSet(rows))
    assert Verdict.REPRODUCED not in {j.printed.verdict for j in judged}


def test_only_the_first_seed_counts_as_printed() -> None:
    rows = [*everywhere_of([0.01] * 12).rows, Result(PAPER.configurations[0], "rg", 2, {"accuracy": 0.1})]
    claim = Claim("x", "x", "x", Untestable("x"), Everywhere("accuracy", "rg", ("aq-128",)))
    (judged,) = judge([claim], PAPER, ResultSet(rows))
    assert judged.printed.verdict is Verdict.REPRODUCED


def test_the_published_tables_taken_as_one_run_reproduce_what_they_support() -> None:
    judged = judge(STATEMENTS, PAPER, ResultSet(Result(r.configuration, r.method, 1, r.values) for r in PAPER.rows))
    wrong = [
        j.claim.id
        for j in judged
        if j.tables.verdict is Verdict.SUPPORTED and j.printed.verdict is Verdict.NOT_REPRODUCED
    ]
    assert wrong == []
    assert sum(j.printed.verdict is Verdict.REPRODUCED for j in judged) > 40
    assert {j.claim.id for j in judged if j.printed.verdict is Verdict.NOT_REPRODUCED} >= {
        "saving-actual",
        "every-metric",
    }
