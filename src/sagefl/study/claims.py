"""Claims and verdicts: what a paper states, tested once on its own tables and once on runs.

A `Claim` is a small record: the words, where they stand, a test on the tables and a test on runs. `statements` is the
list of the paper's claims, and the tests below are all they need. `RULE` says in words what the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import ClassVar, Protocol

from ..runs.intervals import Estimate, estimate
from .measures import EQUAL, Measure
from .published import SEED, counterpart
from .results import Configuration, ResultSet

NEEDED_SEEDS = 3
LEVEL = 0.95

RULE = " ".join(
    f"""
By the tables: a printed number is supported if the table gives it within half a unit of its last digit (more where the
text says about or roughly); an order or a count is supported if every comparison it names comes out as stated.
By the runs: each claim becomes one number per seed, computed within the seed; methods of a seed share data, graph,
initial weights and draws, so differences are paired. The seed is the unit of replication; configurations are not.
With fewer than {NEEDED_SEEDS} seeds nothing that varies by seed is decided: the verdict is undecided, and the direction
is a description of those runs. With {NEEDED_SEEDS} or more, Student's {LEVEL:.0%} interval over seeds decides: a
claimed direction holds if the interval lies wholly on its side, and fails if wholly on the other. A claim about every
configuration holds if the interval of each does (claiming all of them needs no correction), and fails if one lies
wholly on the other side at the level corrected for their number. A count of k of 12 (k > 6) is read as: more than half
of the configurations. A number holds if the interval of ours minus published, on the same configurations, lies within
the stated band, and fails if wholly outside. What cannot vary by seed is decided by one. Configurations that were not
run are left out and counted, and every verdict is about the scale that was run, not about the paper's.
By the paper's own standard: one run a cell and no interval, as it was printed. The same tests are made on the first
seed's runs alone, and their numbers are set beside the published ones of the same configurations: reproduced as printed
if every one comes out as stated, not reproduced if not. Runs of another scale than the printed one reproduce nothing:
of them it is said what comes out at that scale. A claim about configurations that were not run stays open; only "in
every configuration" is refuted by a single one.
""".split()
)


class Verdict(StrEnum):
    """What a test can come to."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNTESTABLE = "not testable from tables"
    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided at these seeds"
    MISSING = "cells missing"
    NOT_RUNS = "not about runs"
    REPRODUCED = "reproduced as printed"
    NOT_REPRODUCED = "not reproduced"
    SO_HERE = "so at this scale"
    NOT_HERE = "not so at this scale"
    OPEN = "open: cells missing"


_DIRECTIONS = ("points the claimed way", "points against it")


@dataclass(frozen=True)
class Finding:
    """A verdict and the numbers behind it."""

    verdict: Verdict
    detail: str
    scope: str = ""  # which configurations and how many seeds
    leans: bool | None = None  # where undecided: whether these runs point the claimed way
    whole: bool = True  # whether every configuration that the claim speaks of was run

    @property
    def short(self) -> str:
        """The verdict; where it is undecided or open, with the direction."""
        if self.leans is None:
            return self.verdict.value
        words = ("so far as stated", "so far not") if self.verdict is Verdict.OPEN else _DIRECTIONS
        return f"{self.verdict} ({words[not self.leans]})"

    def __str__(self) -> str:
        return f"{self.short}: {self.detail}" + (f" [{self.scope}]" if self.scope else "")


class TableTest(Protocol):
    """A test on the paper's own tables."""

    def tables(self, published: ResultSet) -> Finding:
        """The finding."""


class RunTest(Protocol):
    """A test on runs; the published tables serve comparisons on the same configurations."""

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """The finding."""


@dataclass(frozen=True)
class Claim:
    """One quantitative claim."""

    id: str
    quote: str
    where: str
    table_test: TableTest
    run_test: RunTest


# On the tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Printed:
    """The table gives the printed number, within half a unit of its last digit (`slack` for "about" and "roughly")."""

    measure: Measure
    value: float
    digits: int = 0
    slack: float = 0.0

    def tables(self, published: ResultSet) -> Finding:
        """Compare."""
        found = self.measure.at(published, SEED)
        if found is None:
            return Finding(Verdict.UNTESTABLE, f"the tables do not give {self.measure.name}")
        shown = f"{found.value:.{self.digits + 1}f}" if self.digits else f"{found.value:.4g}"  # so that rounding shows
        near = abs(found.value - self.value) <= max(0.5 * 10**-self.digits, self.slack) + EQUAL
        detail = f"{self.measure.name}: printed {self.value:.{self.digits}f}, table {shown}"
        return Finding(Verdict.SUPPORTED if near else Verdict.CONTRADICTED, detail)


@dataclass(frozen=True)
class Compared:
    """A number of the tables lies above or below a bound."""

    measure: Measure
    op: str  # ">" or "<", with "=": or equal
    bound: float = 0.0

    def tables(self, published: ResultSet) -> Finding:
        """Compare."""
        found = self.measure.at(published, SEED)
        if found is None:
            return Finding(Verdict.UNTESTABLE, f"the tables do not give {self.measure.name}")
        distance = (found.value - self.bound) * (1 if self.op[0] == ">" else -1)
        right = distance > (-EQUAL if self.op.endswith("=") else EQUAL)
        detail = f"{self.measure.name}: claimed {self.op} {self.bound:g}, table {self.measure.show(found.value)}"
        return Finding(Verdict.SUPPORTED if right else Verdict.CONTRADICTED, detail)


@dataclass(frozen=True)
class Computed:
    """A test that is a function: theory, graphs, several tables together."""

    function: Callable[[ResultSet], Finding]

    def tables(self, published: ResultSet) -> Finding:
        """Call the function."""
        return self.function(published)


@dataclass(frozen=True)
class Untestable:
    """The tables do not say."""

    why: str

    def tables(self, published: ResultSet) -> Finding:
        """The reason why not."""
        return Finding(Verdict.UNTESTABLE, self.why)


# On runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Replicated:
    """One value per seed, all on the same configurations."""

    values: Mapping[int, float]
    configurations: tuple[Configuration, ...]
    possible: int  # how many configurations the claim speaks of

    @property
    def scope(self) -> str:
        names = ", ".join(str(c) for c in self.configurations) if len(self.configurations) <= 2 else ""
        seeds = f"{len(self.values)} seed(s)"
        return f"{len(self.configurations)} of {self.possible} configurations{f': {names}' if names else ''}; {seeds}"

    @property
    def whole(self) -> bool:
        return len(self.configurations) == self.possible and self.configurations == self.theirs

    @property
    def theirs(self) -> tuple[Configuration, ...]:
        """The published configurations that ours stand beside."""
        return tuple(counterpart(c) for c in self.configurations)

    @property
    def estimate(self) -> Estimate:
        return estimate(list(self.values.values()))


def _replicate(measure: Measure, ours: ResultSet, published: ResultSet) -> _Replicated | None:
    """The measure per seed on a common set of configurations; None where cells are missing."""
    common = _common({seed: measure.complete(ours, seed) for seed in ours.seeds})
    found = {seed: measure.at(ours, seed, common) for seed in ours.seeds}
    values = {s: m.value for s, m in found.items() if m is not None and len(m.configurations) == len(common)}
    possible = sum(measure.where(c) for c in published.configurations)
    return _Replicated(values, common, max(possible, len(common))) if values else None


def _common(complete: Mapping[int, Sequence[Configuration]]) -> tuple[Configuration, ...]:
    """Configurations that enough seeds share: those of all seeds, else of the best three, else of the best one."""
    sets = sorted((frozenset(c) for c in complete.values() if c), key=len, reverse=True)
    if not sets:
        return ()
    if len(sets) >= NEEDED_SEEDS:
        chosen = frozenset.intersection(*sets) or frozenset.intersection(*sets[:NEEDED_SEEDS]) or sets[0]
    else:
        chosen = sets[0]
    order = next(c for c in complete.values() if chosen <= frozenset(c))
    return tuple(c for c in order if c in chosen)


def _missing(measure: Measure) -> Finding:
    needs = ", ".join(sorted({m for m, _ in measure.needs}))
    return Finding(Verdict.MISSING, f"no configuration has finished cells of all of: {needs}")


def _decide(e: Estimate, low: float, high: float) -> Verdict | None:
    """Whether the interval lies within (low, high), outside, or neither; None with too few seeds."""
    if e.seeds < NEEDED_SEEDS:
        return None
    a, b = e.interval(LEVEL)
    if low < a and b < high:
        return Verdict.HOLDS
    return Verdict.FAILS if b <= low or a >= high else Verdict.UNDECIDED


def _shown(measure: Measure, e: Estimate) -> str:
    if e.standard_error is None:
        return measure.show(e.mean)
    a, b = e.interval(LEVEL)
    return f"{measure.show(e.mean)}, {LEVEL:.0%} interval {a:.4g} to {b:.4g}"


def _finding(verdict: Verdict | None, leans: bool, detail: str, scope: str, whole: bool) -> Finding:
    if verdict is not None and verdict is not Verdict.UNDECIDED:
        return Finding(verdict, detail, scope, whole=whole)
    return Finding(Verdict.UNDECIDED, detail, scope, leans, whole)


def _beside(measure: Measure, published: ResultSet, configurations: Sequence[Configuration]) -> str:
    """The published value on the same configurations, where there is one."""
    theirs = measure.at(published, SEED, configurations)
    there = theirs is not None and len(theirs.configurations) == len(configurations)
    return f", published {measure.show(theirs.value)} there" if theirs and there else ""


def told(measure: Measure, ours: ResultSet, published: ResultSet) -> tuple[str, str] | None:
    """A measure of runs, and the published value of the same configurations; None where cells are missing."""
    found = _replicate(measure, ours, published)
    return None if found is None else (_shown(measure, found.estimate), _beside(measure, published, found.theirs))


@dataclass(frozen=True)
class _Side:
    """The measure lies on one side of a bound."""

    measure: Measure
    bound: float = 0.0
    sign: ClassVar[str]

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """By the interval over seeds."""
        found = _replicate(self.measure, ours, published)
        if found is None:
            return _missing(self.measure)
        e, above = found.estimate, self.sign == ">"
        low, high = (self.bound, inf) if above else (-inf, self.bound)
        theirs = _beside(self.measure, published, found.theirs)
        detail = f"{self.measure.name} {_shown(self.measure, e)}{theirs} (claimed {self.sign} {self.bound:g})"
        return _finding(_decide(e, low, high), low < e.mean < high, detail, found.scope, found.whole)


class Above(_Side):
    """The measure lies above a bound."""

    sign = ">"


class Below(_Side):
    """The measure lies below a bound."""

    sign = "<"


@dataclass(frozen=True)
class Near:
    """Ours is within `band` of the published value on the same configurations (or of `value` where one is given)."""

    measure: Measure
    band: float
    value: float | None = None
    published_as: Measure | None = None  # where the published number is another column

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """By the interval of the difference over seeds."""
        found = _replicate(self.measure, ours, published)
        if found is None:
            return _missing(self.measure)
        printed = self._printed(published, found.configurations)
        if printed is None:
            return Finding(Verdict.MISSING, f"nothing is published for {', '.join(map(str, found.configurations))}")
        e = estimate([v - printed for v in found.values.values()])
        theirs = _beside(self.measure, published, found.theirs)
        said = (
            f", published {self.measure.show(printed)} there"
            if self.value is None
            else f"{theirs}, claimed {printed:g}"
        )
        detail = f"{self.measure.name} {_shown(self.measure, found.estimate)}{said} (band {self.band:g})"
        within = abs(e.mean) < self.band
        return _finding(_decide(e, -self.band, self.band), within, detail, found.scope, found.whole)

    def _printed(self, published: ResultSet, configurations: Sequence[Configuration]) -> float | None:
        if self.value is not None:
            return self.value
        theirs = (self.published_as or self.measure).at(published, SEED, [counterpart(c) for c in configurations])
        return theirs.value if theirs and len(theirs.configurations) == len(configurations) else None


@dataclass(frozen=True)
class Everywhere:
    """One method is above others in every single configuration."""

    metric: str
    better: str
    worse: tuple[str, ...]

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """By the interval of every configuration."""
        gaps = {(c, w): ours.paired(c, self.better, w, self.metric) for c in ours.configurations for w in self.worse}
        gaps = {key: values for key, values in gaps.items() if values}
        if not gaps:
            return Finding(Verdict.MISSING, f"no configuration has both {self.better} and {' or '.join(self.worse)}")
        estimates = {key: estimate([100 * v for v in values]) for key, values in gaps.items()}
        worst = min(estimates, key=lambda key: estimates[key].mean)
        right = sum(e.mean > EQUAL for e in estimates.values())
        theirs = [100 * v for c, w in gaps for v in published.paired(counterpart(c), self.better, w, self.metric)]
        printed = f", published {sum(v > EQUAL for v in theirs)} and {min(theirs):+.2f} there" if theirs else ""
        detail = (
            f"{self.metric} of {self.better} is above {' and '.join(self.worse)} in {right} of {len(estimates)} "
            f"comparisons; the smallest is {estimates[worst].mean:+.2f} points ({worst[0]}, {worst[1]}){printed}"
        )
        seeds = sorted({e.seeds for e in estimates.values()})
        counted = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
        scope = f"{len({c for c, _ in gaps})} of {len(published.configurations)} configurations; {counted} seed(s)"
        whole = {(c, w) for c in published.configurations for w in self.worse} <= gaps.keys()
        return _finding(self._verdict(list(estimates.values())), right == len(estimates), detail, scope, whole)

    @staticmethod
    def _verdict(estimates: Sequence[Estimate]) -> Verdict | None:
        corrected = 1 - (1 - LEVEL) / len(estimates)
        enough = [e for e in estimates if e.seeds >= NEEDED_SEEDS]
        if any(e.interval(corrected)[1] < 0 for e in enough):
            return Verdict.FAILS
        if len(enough) < len(estimates):
            return None
        return Verdict.HOLDS if all(e.interval(LEVEL)[0] > 0 for e in enough) else Verdict.UNDECIDED


@dataclass(frozen=True)
class Exactly:
    """A value that cannot vary by seed: it is met to rounding in every run, or the claim fails."""

    measure: Measure
    value: float

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """Judged by a single seed already."""
        found = _replicate(self.measure, ours, published)
        if found is None:
            return _missing(self.measure)
        met = all(abs(v - self.value) <= 5e-4 for v in found.values.values())
        detail = f"{self.measure.name} {self.measure.show(found.estimate.mean)} (claimed {self.value:g})"
        return Finding(Verdict.HOLDS if met else Verdict.FAILS, detail, found.scope, whole=found.whole)


@dataclass(frozen=True)
class NotRun:
    """A claim that runs cannot speak to."""

    why: str

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """The reason why not."""
        return Finding(Verdict.NOT_RUNS, self.why)


class All:
    """Several tests that must all succeed; the worst verdict counts."""

    _ORDER = (
        Verdict.CONTRADICTED,
        Verdict.FAILS,
        Verdict.NOT_REPRODUCED,
        Verdict.MISSING,
        Verdict.OPEN,
        Verdict.UNDECIDED,
        Verdict.UNTESTABLE,
        Verdict.NOT_RUNS,
        Verdict.SUPPORTED,
        Verdict.HOLDS,
        Verdict.REPRODUCED,
    )

    def __init__(self, *tests: TableTest | RunTest) -> None:
        self.tests = tests

    def tables(self, published: ResultSet) -> Finding:
        """All tests on the tables, joined."""
        return self.joined([t.tables(published) for t in self.tests])  # type: ignore[union-attr]

    def runs(self, ours: ResultSet, published: ResultSet) -> Finding:
        """All tests on runs, joined."""
        return self.joined([t.runs(ours, published) for t in self.tests])  # type: ignore[union-attr]

    def joined(self, findings: Sequence[Finding]) -> Finding:
        """The findings of all tests as one."""
        verdict = min((f.verdict for f in findings), key=self._ORDER.index)
        scopes = dict.fromkeys(f.scope for f in findings if f.scope)
        leanings = [f.leans for f in findings if f.verdict is verdict]
        open_ = verdict in (Verdict.UNDECIDED, Verdict.OPEN)
        leans = all(leanings) if open_ and None not in leanings else None
        return Finding(verdict, "; ".join(f.detail for f in findings), " | ".join(scopes), leans)
