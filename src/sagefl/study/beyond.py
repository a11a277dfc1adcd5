"""Beyond the paper on trained models: can a receiver that asks first beat gossip, and at what price?

What is run, what is compared and which comparison counts stand here, and stood here before anything was run. The
primary comparison is one: trimmed gossip with representation probes (`sage-e-trim`, kind = latents, all the evidence it
can have: lambda = 0) against random gossip on the mean of global and Client accuracy after mixing. If it does not beat
gossip with all the evidence, no cheaper variant of it is expected to. Everything else is secondary and corrected for
multiplicity by Holm's method; the three numbers of every arm against gossip form one family.

A replication is a (world, seed): partition, graph, first weights and gossip draws are fresh in each and shared by its
arms, so differences are taken within a replication and their mean gets Student's t interval over replications.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from .canvas import Drawn, drawing, save, tidy
from .collect import Record
from .intervals import Estimate, estimate, t_tail
from .matrix import Cell, plan, preset_of
from .results import Configuration

__all__ = [
    "ARMS",
    "OUTCOMES",
    "PRIMARY",
    "WORLDS",
    "Arm",
    "Comparison",
    "Standing",
    "compare_arms",
    "comparisons_csv",
    "draw_price",
    "plan_beyond",
    "standings",
    "to_markdown",
]


@dataclass(frozen=True)
class Arm:
    """One way to choose a peer, with the name tables use."""

    name: str
    spec: str


REFERENCE = "rg"
PRIMARY = "trim, latents, lambda 0"
ARMS = (  # in the order in which they are run
    Arm(REFERENCE, "rg"),
    Arm(PRIMARY, "sage-e-trim:kind=latents:probe_cost=0"),
    Arm("trim, latents", "sage-e-trim:kind=latents"),
    Arm("sage-e, latents ce", "sage-e:kind=latents:loss=ce"),
    Arm("sage-e, labels", "sage-e"),
    Arm("aq-128", "aq-128"),
    Arm("sage-os", "sage-os"),
    Arm("sage-vanilla", "sage-vanilla"),
    Arm("trim, labels, lambda 0", "sage-e-trim:probe_cost=0"),
    Arm("sage-e, latents", "sage-e:kind=latents"),
    Arm("sage-e, latents ce, lambda 0", "sage-e:kind=latents:loss=ce:probe_cost=0"),
    Arm("sage-e, labels, lambda 0", "sage-e:probe_cost=0"),
    Arm("sage-e, latents, lambda 0", "sage-e:kind=latents:probe_cost=0"),
    Arm("uniform pick, latents, lambda 0", "sage-e:kind=latents:pick=uniform:probe_cost=0"),
    Arm("uniform pick, latents", "sage-e:kind=latents:pick=uniform"),
    Arm("trim, labels", "sage-e-trim"),
)
WORLDS: Mapping[Configuration, tuple[int, ...]] = {
    Configuration("fmnist", "er", 0.1): (1, 2, 3),
    Configuration("fmnist", "ba", 0.3): (1, 2),
}
OUTCOMES = {
    "both": "mean of global and Client accuracy",
    "accuracy": "global accuracy",
    "client": "Client accuracy",
}


def plan_beyond(preset: str = "laptop", *, arms: int | None = None, overrides: Any = None) -> list[Cell]:
    """The cells, the arms that matter most first; those of the paper are shared with its study.

    At a preset without Fashion-MNIST (smoke) the same worlds on the preset's own data show the machinery.
    """
    data = preset_of(preset).datasets
    return [
        cell
        for arm in ARMS[:arms]
        for world, seeds in WORLDS.items()
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
    p: float  # two-sided, of Student's t; nan with one replication
    holm: float  # adjusted within its family; the primary comparison is a family of its own

    @property
    def primary(self) -> bool:
        """Whether this is the one that was named beforehand."""
        return self.arm.name == PRIMARY and self.outcome == "both"


Key = tuple[Configuration, int]


def _by_arm(records: Sequence[Record]) -> dict[str, dict[Key, Mapping[str, float]]]:
    names = {arm.spec: arm.name for arm in ARMS}
    found: dict[str, dict[Key, Mapping[str, float]]] = {}
    for r in records:
        if r.method in names:
            both = (r.values["accuracy"] + r.values["client"]) / 2
            found.setdefault(names[r.method], {})[r.configuration, r.config.seed] = dict(r.values) | {"both": both}
    return found


def standings(records: Sequence[Record]) -> list[Standing]:
    """Every arm that has replications, in the order of `ARMS`."""
    found = _by_arm(records)
    made = []
    for arm in ARMS:
        if rows := list(found.get(arm.name, {}).values()):
            metrics = {name for row in rows for name in row}
            means = {m: _mean(row[m] for row in rows if m in row) for m in metrics}
            made.append(Standing(arm, len(rows), means))
    return made


def _mean(values: Iterable[float]) -> float:
    kept = [v for v in values if not isnan(v)]
    return sum(kept) / len(kept) if kept else nan


def compare_arms(records: Sequence[Record]) -> list[Comparison]:
    """Every arm against gossip within replications, the primary comparison first, the others by Holm."""
    found = _by_arm(records)
    gossip = found.get(REFERENCE, {})
    raw = []
    for arm in ARMS:
        shared = [key for key in found.get(arm.name, {}) if key in gossip]
        if arm.name == REFERENCE or not shared:
            continue
        for outcome in OUTCOMES:
            points = [100 * (found[arm.name][key][outcome] - gossip[key][outcome]) for key in sorted(shared)]
            raw.append(Comparison(arm, outcome, (made := estimate(points)), _p(made), nan))
    first = [Comparison(c.arm, c.outcome, c.difference, c.p, c.p) for c in raw if c.primary]
    rest = [c for c in raw if not c.primary]
    adjusted = _holm([c.p for c in rest])
    return first + [Comparison(c.arm, c.outcome, c.difference, c.p, h) for c, h in zip(rest, adjusted, strict=True)]


def _p(difference: Estimate) -> float:
    if difference.standard_error is None:
        return nan
    if difference.standard_error == 0:
        return 1.0 if difference.mean == 0 else 0.0
    return 2 * t_tail(abs(difference.mean) / difference.standard_error, difference.seeds - 1)


def _holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment; comparisons without a p-value are not counted.

    >>> [round(p, 3) for p in _holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted((i for i, p in enumerate(ps) if not isnan(p)), key=lambda i: ps[i])
    adjusted, worst = [nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


# What is written ----------------------------------------------------------------------------------------------------


def to_markdown(records: Sequence[Record], scale: Sequence[str], command: str) -> str:
    """The whole account: scale, arms, comparisons."""
    parts = ["# Beyond the paper on trained models", *(f"- {line}" for line in scale), f"\n    {command}\n"]
    made = compare_arms(records)
    parts += [
        _primary(made),
        "![Gain against evidence and bytes](price.png)\n" if made else "",
        "## Arms",
        _arms(standings(records)),
        "## Against gossip",
        _against(made),
    ]
    return "\n".join(parts) + "\n"


def _primary(made: Sequence[Comparison]) -> str:
    said = "**Primary comparison**, named before the runs: sage-e-trim with latents (lambda = 0) minus rg, mean of "
    said += "global and Client accuracy after mixing: "
    for c in made:
        if c.primary:
            return f"{said}{_points(c.difference)}{_p_text('p', c.p)} over {c.difference.seeds} replications.\n"
    return f"{said}not run yet.\n"


def _points(e: Estimate) -> str:
    if e.standard_error is None:
        return f"{e.mean:+.2f} points (one replication, no interval)"
    low, high = e.interval()
    return f"{e.mean:+.2f} points [{low:+.2f}, {high:+.2f}]"


def _p_text(name: str, p: float) -> str:
    return "" if isnan(p) else f", {name} = {p:.3g}"


def _percent(digits: int, unit: str = "") -> Callable[[float], str]:
    return lambda value: f"{100 * value:.{digits}f}{unit}"


def _plain(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}"


_ARM_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("accuracy", "global", _percent(2)),
    ("client", "Client", _percent(2)),
    ("weak", "Weak", _percent(2)),
    ("both", "both", _percent(2)),
    ("certified", "certified", _percent(1, " %")),
    ("mean_anchors", "anchors", _plain(1)),
    ("budget", "budget", _percent(1, " %")),
    ("mb_probes", "probes MB", _plain(3)),
    ("mb_models", "models MB", _plain(3)),
    ("certified_worse", "certified worse", _percent(1, " %")),
    ("pulled_worse", "pulled worse", _percent(1, " %")),
)


def _arms(found: Sequence[Standing]) -> str:
    heads = ["arm", "n", *(head for _, head, _ in _ARM_COLUMNS)]
    rows = [heads, ["---"] * len(heads)]
    for s in found:
        cells = [show(s.values[k]) if not isnan(s.values.get(k, nan)) else "" for k, _, show in _ARM_COLUMNS]
        rows.append([s.arm.name, str(s.replications), *cells])
    note = (
        "\nMeans over n replications. Accuracies in per cent after mixing; MB per client-round. *certified worse*: the "
        "share of certified peers whose risk on the receiver's evaluation data is above that of a random draw; *pulled "
        "worse*: the same of all pulled peers."
    )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n{note}\n"


def _against(made: Sequence[Comparison]) -> str:
    lines = ["| arm | outcome | points over gossip | 95 % interval | p | Holm |", "|---|---|---|---|---|---|"]
    for c in made:
        low, high = c.difference.interval()
        interval = "" if c.difference.standard_error is None else f"{low:+.2f} to {high:+.2f}"
        numbers = ["" if isnan(p) else f"{p:.3g}" for p in (c.p, c.holm)]
        name = f"**{c.arm.name}** (primary)" if c.primary else c.arm.name
        cells = (name, OUTCOMES[c.outcome], f"{c.difference.mean:+.2f}", interval, *numbers)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def comparisons_csv(made: Sequence[Comparison]) -> str:
    """Every comparison with full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["arm", "spec", "outcome", "primary", "replications", "points", "low", "high", "p", "holm"])
    for c in made:
        low, high = c.difference.interval()
        numbers = (c.difference.mean, low, high, c.p, c.holm)
        writer.writerow(
            [c.arm.name, c.arm.spec, c.outcome, int(c.primary), c.difference.seeds, *(f"{v:.6g}" for v in numbers)]
        )
    return text.getvalue()


def draw_price(records: Sequence[Record]) -> Drawn | None:
    """Accuracy over gossip against evidence and against bytes, an arm a point."""
    gains = {c.arm.name: c.difference for c in compare_arms(records) if c.outcome == "both"}
    found = [s for s in standings(records) if s.arm.name in gains]
    if not found:
        return None
    panels = (("mean_anchors", "anchors asked per decision"), ("mb_probes", "probes, MB per client-round"))
    with drawing(9.6, 4.6) as figure:
        for axes, (metric, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            for number, s in enumerate(found):
                low, high = gains[s.arm.name].interval()
                x, y = s.values[metric], gains[s.arm.name].mean
                tone = "#0072B2" if s.arm.name == PRIMARY else f"C{number % 10}"
                if gains[s.arm.name].standard_error is not None:
                    axes.plot([x, x], [low, high], color=tone, alpha=0.35, linewidth=1.5)
                axes.plot(x, y, "o*sDPvX^<>ph"[number % 12], color=tone, markersize=8, label=s.arm.name)
            axes.set(xlabel=label)
            tidy(axes, zero=True)
        figure.axes[0].set(ylabel="mean of global and Client accuracy\nminus gossip, points")
        figure.axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        caption = "What an arm gains over gossip and what it asks for it. Bars: 95 % intervals over replications."
        return save(figure, "price", "Gain against evidence and bytes", caption)
