"""Methods against one of them: paired by replication, with Student's intervals and Holm's correction.

Partition and graph are fresh in every (world, seed) and shared by its methods, so differences are taken within it. By
default every world is compared by itself over its seeds. In a `pooled` trial a (world, seed) is a replication;
replications of one seed in two worlds share initial weights and streams of draws, so they are not quite independent,
and the same mean with the seed as the unit, fewer but independent, stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf, isnan, nan
from re import search
from statistics import fmean

from ..runs.headroom import captured
from ..runs.intervals import Estimate, estimate, t_tail
from .collect import BOTH, Record
from .results import Configuration
from .spec import Trial

_PLAIN = r"bytes|seconds_|minutes|mb_|_ce$|evaluations|decisions|rounds|merged|transferred|comm_oh|anchors|corr|checked"
TITLES = {BOTH: "mean of global and Client accuracy", "accuracy": "global accuracy", "client": "Client accuracy"}


@dataclass(frozen=True)
class Standing:
    """What one method came to, means over its replications."""

    method: str
    replications: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """One method against the trial's other on one measure."""

    method: str
    measure: str
    world: Configuration | None  # None: over all of them
    difference: Estimate  # in points where the measure is a share
    by_world: Mapping[Configuration, Estimate]  # the same, taken apart
    over_seeds: Estimate  # the same with the seed as the unit: its worlds are averaged first
    p: float  # two-sided, of Student's t; nan with one replication
    holm: float  # adjusted within its family; the primary comparisons are a family of their own
    primary: bool  # whether it was named beforehand


@dataclass(frozen=True)
class Refutation:
    """How often evaluation data contradict a method's certificates, whose anchors are reused and so not fresh."""

    method: str
    seen: int  # decisions of evaluation rounds
    checked: int  # the certified ones among them
    refuted: int

    @property
    def of_all(self) -> float:
        """The share among all decisions of those rounds, which is what delta bounds."""
        return self.refuted / self.seen


@dataclass(frozen=True)
class HeadroomRow:
    """What there is to win over gossip in one world, by the better reference, and which share a method takes."""

    world: Configuration
    best: str
    points: Estimate
    captured: Mapping[str, tuple[float, float, float] | None]  # share, low, high; None: no headroom to speak of


Key = tuple[Configuration, int]


def scale_of_measure(measure: str) -> float:
    """By what differences are multiplied: shares are given in points, counts and sizes as they are."""
    return 1.0 if search(_PLAIN, measure) else 100.0


def with_both(values: Mapping[str, float]) -> dict[str, float]:
    """The numbers of a cell, and the mean of its two accuracies."""
    there = "accuracy" in values and "client" in values
    return dict(values) | ({BOTH: (values["accuracy"] + values["client"]) / 2} if there else {})


def _by_method(records: Sequence[Record], trial: Trial) -> dict[str, dict[Key, dict[str, float]]]:
    found: dict[str, dict[Key, dict[str, float]]] = {m: {} for m in trial.methods}
    for r in records:
        if r.method in found:
            evaluated = -(-r.config.rounds // r.config.evaluation.every)  # rounds: every so many, and the last
            seen = {"seen": float(r.config.clients * evaluated)}
            found[r.method][r.configuration, r.config.seed] = with_both(r.values) | seen
    return found


def standings(records: Sequence[Record], trial: Trial) -> list[Standing]:
    """Every method that has replications, in the order of the trial."""
    made = []
    for method, runs in _by_method(records, trial).items():
        if rows := list(runs.values()):
            metrics = {name for row in rows for name in row}
            made.append(Standing(method, len(rows), {m: _mean(row[m] for row in rows if m in row) for m in metrics}))
    return made


def refutations(records: Sequence[Record], trial: Trial) -> list[Refutation]:
    """Every method whose certificates were checked."""
    made = []
    for method, runs in _by_method(records, trial).items():
        rows = list(runs.values())
        if checked := [row for row in rows if row.get("certified_checked")]:
            refuted = sum(round(row["certified_worse"] * row["certified_checked"]) for row in checked)
            seen = round(sum(row["seen"] for row in rows))
            made.append(Refutation(method, seen, round(sum(row["certified_checked"] for row in checked)), refuted))
    return made


def _mean(values: Iterable[float]) -> float:
    kept = [v for v in values if not isnan(v)]
    return sum(kept) / len(kept) if kept else nan


# Differences ----------------------------------------------------------------------------------------------------------


def compare(records: Sequence[Record], trial: Trial) -> list[Comparison]:
    """Every contender against the same other, the primary comparisons first, each family by Holm."""
    found, raw = _by_method(records, trial), []
    named = {(p.method, p.measure, p.world) for p in trial.primary}
    for method in trial.contenders:
        for measure in trial.report:
            points = _differences(found[method], found[trial.against], measure)
            whole = (method, measure, None) in named
            if points and (trial.pooled or whole):
                raw.append(_comparison(method, measure, None, points, seeds=not trial.pooled, primary=whole))
            for world in () if trial.pooled else trial.worlds:
                if there := {key: v for key, v in points.items() if key[0] == world}:
                    primary = (method, measure, world.world) in named
                    raw.append(_comparison(method, measure, world, there, seeds=False, primary=primary))
    first, rest = [c for c in raw if c.primary], [c for c in raw if not c.primary]
    return _corrected(first, len(trial.primary)) + _corrected(rest, trial.family)


def over_worlds(records: Sequence[Record], trial: Trial, measure: str) -> dict[str, Estimate]:
    """What every contender gains in all worlds together."""
    found = _by_method(records, trial)
    points = {m: _differences(found[m], found[trial.against], measure) for m in trial.contenders}
    made = {m: _comparison(m, measure, None, p, seeds=not trial.pooled, primary=False) for m, p in points.items() if p}
    return {m: comparison.difference for m, comparison in made.items()}


def _differences(
    own: Mapping[Key, Mapping[str, float]], other: Mapping[Key, Mapping[str, float]], measure: str
) -> dict[Key, float]:
    """Own minus other in every replication that both have."""
    shared = [k for k in other if k in own and measure in own[k] and measure in other[k]]
    return {k: scale_of_measure(measure) * (own[k][measure] - other[k][measure]) for k in shared}


def _comparison(
    method: str, measure: str, world: Configuration | None, points: Mapping[Key, float], *, seeds: bool, primary: bool
) -> Comparison:
    by_world = {w: estimate([v for (at, _), v in points.items() if at == w]) for w, _ in points}
    every = sorted({seed for _, seed in points})
    over_seeds = estimate([_mean(v for (_, s), v in points.items() if s == seed) for seed in every])
    made = over_seeds if seeds else estimate(list(points.values()))
    return Comparison(method, measure, world, made, by_world, over_seeds, _p(made), nan, primary)


def _corrected(family: Sequence[Comparison], size: int) -> list[Comparison]:
    adjusted = _holm([c.p for c in family], size)
    return [replace(c, holm=h) for c, h in zip(family, adjusted, strict=True)]


def _p(difference: Estimate) -> float:
    if difference.standard_error is None:
        return nan
    if difference.standard_error == 0:
        return 1.0 if difference.mean == 0 else 0.0
    return 2 * t_tail(abs(difference.mean) / difference.standard_error, difference.seeds - 1)


def _holm(ps: Sequence[float], family: int) -> list[float]:
    """Holm's step-down adjustment in a family of that many; those that have no p-value yet come last.

    >>> [round(p, 3) for p in _holm([0.01, 0.04, 0.03], 3)]
    [0.03, 0.06, 0.06]
    """
    order = sorted((i for i, p in enumerate(ps) if not isnan(p)), key=lambda i: ps[i])
    adjusted, worst = [nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (family - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


# Headroom -------------------------------------------------------------------------------------------------------------


def headrooms(records: Sequence[Record], trial: Trial) -> list[HeadroomRow]:
    """Per world: the better of `oracle` and `local` minus `rg`, and what each contender takes of it.

    Nothing where a study has not run them. The measure is that of the primary comparison, else the first reported.
    """
    found = _by_method(records, trial)
    ids = {method.partition(":")[0]: method for method in reversed(trial.methods)}
    if "rg" not in ids:
        return []
    gains = {m: _differences(found[m], found[ids["rg"]], trial.lead) for m in trial.methods}
    made = []
    for world in trial.worlds:
        here = {m: {s: v for (at, s), v in points.items() if at == world} for m, points in gains.items()}
        there = [ids[id] for id in ("oracle", "local") if id in ids and here[ids[id]]]
        if there:
            best = max(there, key=lambda m: fmean(here[m].values()))
            shares = {m: _capture(here[m], here[best], trial.level) for m in trial.contenders if here[m]}
            made.append(HeadroomRow(world, best, estimate(list(here[best].values())), shares))
    return made


def _capture(gain: Mapping[int, float], room: Mapping[int, float], level: float) -> tuple[float, float, float] | None:
    """Share, low and high over the seeds of both; None with one seed, or headroom that cannot be told from none."""
    seeds = sorted(gain.keys() & room.keys())
    found = captured([gain[s] for s in seeds], [room[s] for s in seeds], level) if seeds else None
    return None if found is None or isinf(found.low) else (found.share, found.low, found.high)
