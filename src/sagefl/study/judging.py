"""A verdict on every claim, by three standards: the paper's own tables, runs over seeds, and one run a cell.

The third is the paper's own: it prints one run a cell and calls what comes out a finding. `claims.RULE` says so in
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .claims import All, Claim, Everywhere, Finding, NotRun, RunTest, Verdict
from .results import ResultSet


@dataclass(frozen=True)
class Judged:
    """A claim with its findings."""

    claim: Claim
    tables: Finding
    runs: Finding
    printed: Finding  # by the paper's own standard


_ELSEWHERE = {Verdict.REPRODUCED: Verdict.SO_HERE, Verdict.NOT_REPRODUCED: Verdict.NOT_HERE}


def judge(
    claims: Sequence[Claim], published: ResultSet, ours: ResultSet | None, *, large: ResultSet | None = None
) -> list[Judged]:
    """All verdicts on every claim; without runs of ours, those by runs are `cells missing`.

    `large` are those of our runs that are of the published scale, by default all. A claim that reads any other
    reproduces nothing, whatever comes out: that shows where leaving the others out makes another finding of it.
    """
    none = Finding(Verdict.MISSING, "no runs")
    judged = []
    for claim in claims:
        runs = printed = none
        if ours or isinstance(claim.run_test, NotRun):
            runs = claim.run_test.runs(ours or ResultSet(), published)
            printed = runs
        if ours:
            seed = ours.seeds[0]
            printed = as_printed(claim.run_test, ours.of_seed(seed), published)
            if large is not None and printed != as_printed(claim.run_test, large.of_seed(seed), published):
                printed = replace(printed, verdict=_ELSEWHERE.get(printed.verdict, printed.verdict))
        judged.append(Judged(claim, claim.table_test.tables(published), runs, printed))
    return judged


def as_printed(test: RunTest, one: ResultSet, published: ResultSet) -> Finding:
    """The test on one run a cell, with no allowance for what another seed would give."""
    if isinstance(test, All):
        return test.joined([as_printed(part, one, published) for part in test.tests])  # type: ignore[arg-type]
    found = test.runs(one, published)
    if found.verdict is Verdict.NOT_RUNS:
        return found
    if found.verdict is Verdict.MISSING:
        return replace(found, verdict=Verdict.OPEN)
    right = found.verdict is Verdict.HOLDS or bool(found.leans)
    refuted = isinstance(test, Everywhere) and not right
    if not found.whole and not refuted:
        return replace(found, verdict=Verdict.OPEN, leans=right)
    return replace(found, verdict=Verdict.REPRODUCED if right else Verdict.NOT_REPRODUCED, leans=None)
