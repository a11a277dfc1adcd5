"""Trials: several arms against one reference on trained models, paired by replication and corrected by Holm's method.

A replication is a (world, seed): partition and graph are fresh in each and shared by its arms, so differences are taken
within a replication and their mean gets Student's t interval over replications. Replications of one seed in two worlds
share initial weights and streams of draws, so they are not quite independent: the same mean with the seed as the unit,
fewer but independent, stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

from ..runs.config import RunConfig
from .collect import Record
from .intervals import Estimate, estimate, t_tail
from .matrix import Cell, plan, preset_of
from .results import Configuration

__all__ = [
    "OUTCOMES",
    "REFERENCE",
    "Arm",
    "Comparison",
    "Refutation",
    "Standing",
    "Trial",
    "compare_arms",
    "plan_trial",
    "refutations",
    "standings",
]

REFERENCE = "rg"
OUTCOMES = {
    "both": "mean of global and Client accuracy",
    "accuracy": "global accuracy",
    "client": "Client accuracy",
}


@dataclass(frozen=True)
class Arm:
    """One way to choose a peer, with the name tables use."""

    name: str
    spec: str


@dataclass(frozen=True)
class Trial:
    """What is compared, and which comparisons count: those that are named, each on the mean of both accuracies."""

    name: str
    arms: tuple[Arm, ...]  # in the order in which they are run, the reference first
    worlds: Mapping[Configuration, tuple[int, ...]]  # with their seeds
    primary: tuple[str, ...]  # arms whose comparison counts; corrected among themselves

    @property
    def replications(self) -> int:
        """How often every arm is run."""
        return sum(map(len, self.worlds.values()))

    @property
    def family(self) -> int:
        """How many comparisons there are beside the primary ones."""
        return len(OUTCOMES) * (len(self.arms) - 1) - len(self.primary)


def plan_trial(
    preset: str, trial: Trial, *, arms: int | None = None, overrides: Mapping[str, Any] | None = None
) -> list[Cell]:
    """The cells, the arms that matter most first; those of the paper's study are shared with it.

    At a preset without Fashion-MNIST (smoke) the same worlds on the preset's own data show the machinery.
    """
    data = preset_of(preset).datasets
    return [
        cell
        for arm in trial.arms[:arms]
        for world, seeds in trial.worlds.items()
        for cell in plan(
            preset,
            datasets=[world.dataset if world.dataset in data else data[0]],
            topologies=[world.topology],
            alphas=[world.alpha],
            methods=[arm.spec],
            seeds=seeds,
            overrides=overrides,
        )
    ]


@dataclass(frozen=True)
class Standing:
    """What one arm came to, means over its replications."""

    arm: Arm
    replications: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """One arm against gossip on one outcome."""

    arm: Arm
    outcome: str
    difference: Estimate  # in points
    by_world: Mapping[Configuration, Estimate]  # the same, taken apart
    over_seeds: Estimate  # the same with the seed as the unit: its worlds are averaged first
    p: float  # two-sided, of Student's t; nan with one replication
    holm: float  # adjusted within its family; the primary comparisons are a family of their own
    primary: bool  # whether it was named beforehand


@dataclass(frozen=True)
class Refutation:
    """How often evaluation data contradict an arm's certificates, whose anchors are reused and so not fresh."""

    arm: Arm
    seen: int  # decisions of evaluation rounds
    checked: int  # the certified ones among them
    refuted: int

    @property
    def of_all(self) -> float:
        """The share among all decisions of those rounds, which is what delta bounds."""
        return self.refuted / self.seen


Key = tuple[Configuration, int]


def _by_arm(records: Sequence[Record], trial: Trial) -> dict[str, dict[Key, Mapping[str, float]]]:
    names = {arm.spec: arm.name for arm in trial.arms}
    found: dict[str, dict[Key, Mapping[str, float]]] = {}
    for r in records:
        if r.method in names:
            more = {"both": (r.values["accuracy"] + r.values["client"]) / 2, "seen": _decisions_seen(r.config)}
            found.setdefault(names[r.method], {})[r.configuration, r.config.seed] = dict(r.values) | more
    return found


def _decisions_seen(config: RunConfig) -> int:
    """Decisions of the rounds that end with an evaluation: every so many, and the last."""
    return config.clients * -(-config.rounds // config.evaluation.every)


def standings(records: Sequence[Record], trial: Trial) -> list[Standing]:
    """Every arm that has replications, in the order of the trial."""
    found = _by_arm(records, trial)
    made = []
    for arm in trial.arms:
        if rows := list(found.get(arm.name, {}).values()):
            metrics = {name for row in rows for name in row}
            means = {m: _mean(row[m] for row in rows if m in row) for m in metrics}
            made.append(Standing(arm, len(rows), means))
    return made


def refutations(records: Sequence[Record], trial: Trial) -> list[Refutation]:
    """Every arm whose certificates were checked."""
    found, made = _by_arm(records, trial), []
    for arm in trial.arms:
        rows = list(found.get(arm.name, {}).values())
        if checked := [row for row in rows if row.get("certified_checked")]:
            refuted = sum(round(row["certified_worse"] * row["certified_checked"]) for row in checked)
            seen = round(sum(row["seen"] for row in rows))
            made.append(Refutation(arm, seen, round(sum(row["certified_checked"] for row in checked)), refuted))
    return made


def _mean(values: Iterable[float]) -> float:
    kept = [v for v in values if not isnan(v)]
    return sum(kept) / len(kept) if kept else nan


def compare_arms(records: Sequence[Record], trial: Trial) -> list[Comparison]:
    """Every arm against gossip within replications, the primary comparisons first, each family by Holm."""
    found = _by_arm(records, trial)
    gossip = found.get(REFERENCE, {})
    raw = []
    for arm in trial.arms:
        shared = [key for key in gossip if key in found.get(arm.name, {})]
        if arm.name == REFERENCE or not shared:
            continue
        for outcome in OUTCOMES:
            points = {key: 100 * (found[arm.name][key][outcome] - gossip[key][outcome]) for key in shared}
            by_world = {w: estimate([v for (world, _), v in points.items() if world == w]) for w, _ in points}
            seeds = sorted({seed for _, seed in points})
            over_seeds = estimate([_mean(v for (_, s), v in points.items() if s == seed) for seed in seeds])
            made = estimate(list(points.values()))
            named = arm.name in trial.primary and outcome == "both"
            raw.append(Comparison(arm, outcome, made, by_world, over_seeds, _p(made), nan, named))
    first, rest = [c for c in raw if c.primary], [c for c in raw if not c.primary]
    return _corrected(first, len(trial.primary)) + _corrected(rest, trial.family)


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
