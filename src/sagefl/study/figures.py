"""Figures that any study can have: published numbers and ours side by side, costs, mechanisms, sweeps.

A chart is a function of the findings; it returns None where they do not hold what it needs. `CHARTS` lists those that
a design has unless it says otherwise; `paper_figures` has those that are about the paper alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from ..runs.intervals import Estimate, estimate
from .canvas import INK, MUTED, Drawn, colour, drawing, marker, save, tidy
from .published import counterpart, counterpart_method
from .results import Configuration, ResultSet, show_method
from .sweeps import SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .design import Findings

_LABEL = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}  # behind numbers


# Accuracy -----------------------------------------------------------------------------------------------------------


def _sides(ours: ResultSet, published: ResultSet) -> list[tuple[str, ResultSet]]:
    """What is drawn in which panel; ours only where there is something to compare with gossip."""
    sides = [("published, one run per cell", published)] if published else []
    if any(_gains(ours, c, m) for c in ours.configurations for m in _contenders(ours)):
        seeds = len(ours.seeds)
        sides.append((f"measured, {seeds} seed{'s' if seeds > 1 else ''}", ours))
    return sides


def _gains(results: ResultSet, c: Configuration, method: str) -> Estimate | None:
    """Points of accuracy above random gossip in one configuration, paired by seed."""
    gains = results.paired(c, method, "rg", "accuracy")
    return estimate([100 * gain for gain in gains]) if gains else None


def _contenders(*results: ResultSet) -> list[str]:
    return [m for m in ResultSet(r for some in results for r in some.rows).methods if m not in ("rg", "local")]


def relative(findings: Findings) -> Drawn | None:
    """Accuracy against random gossip, a point per configuration."""
    sides = _sides(findings.ours, findings.published)
    if not sides:
        return None
    counts = [len(_contenders(results)) for _, results in sides]
    with drawing(0.85 * sum(counts) + 0.8, 4.0) as figure:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False, width_ratios=counts)[0]
        for axes, (title, results) in zip(panels, sides, strict=True):
            methods = _contenders(results)
            for i, method in enumerate(methods):
                _strip(axes, i, results, method)
            axes.set_xticks(range(len(methods)), [show_method(m).replace(" ", "\n") for m in methods], fontsize=8)
            axes.set(title=title, xlim=(-0.6, len(methods) - 0.25))
            tidy(axes, zero=True)
        panels[0].set_ylabel("accuracy minus random gossip, points")
        return save(
            figure, "relative", "Accuracy relative to random gossip",
            "One point per configuration (filled: FMNIST; open: CIFAR-10), the bar is the median. Bars through points: "
            "standard error over seeds of the paired difference.",
        )  # fmt: skip


def _strip(axes: Axes, x: int, results: ResultSet, method: str) -> None:
    found = [(c, g) for c in results.configurations if (g := _gains(results, c, method)) is not None]
    if not found:
        return
    for i, (c, gain) in enumerate(found):
        at = x + 0.36 * ((i + 0.5) / len(found) - 0.5)
        face = "none" if c.dataset == "cifar10" else colour(method)
        size = 8 if marker(method) == "*" else 5.5
        axes.plot(at, gain.mean, marker(method), color=colour(method), markerfacecolor=face, markersize=size)
        if gain.standard_error is not None:
            axes.errorbar(at, gain.mean, gain.standard_error, color=colour(method), linewidth=0.8)
    middle = median(g.mean for _, g in found)
    axes.plot([x - 0.3, x + 0.3], [middle, middle], color=colour(method), linewidth=2.4, solid_capstyle="butt")
    axes.text(x + 0.33, middle, f"{middle:+.2f}", fontsize=7.5, va="center", ha="left", bbox=_LABEL, zorder=2)


def by_alpha(findings: Findings) -> Drawn | None:
    """The same by heterogeneity."""
    both = _sides(findings.ours, findings.published)
    sides = [side for side in both if len({c.alpha for c in side[1].configurations}) > 1]
    if not sides:
        return None
    with drawing(4.4 * len(sides) + 1.6, 3.6) as figure:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
        for axes, (title, results) in zip(panels, sides, strict=True):
            _lines_by_alpha(axes, results)
            axes.set(title=title, xlabel=r"Dirichlet $\alpha$ (smaller: more heterogeneous)")
            tidy(axes, zero=True)
        panels[0].set_ylabel("accuracy minus random gossip, points")
        handles, labels = panels[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", fontsize=8)
        return save(
            figure, "by-alpha", "Accuracy relative to random gossip by heterogeneity",
            "Mean over the configurations of each alpha, within a seed first. Bars: standard error over seeds.",
        )  # fmt: skip


def _lines_by_alpha(axes: Axes, results: ResultSet) -> None:
    alphas = sorted({c.alpha for c in results.configurations})
    for method in _contenders(results):
        points = [(i, e) for i, a in enumerate(alphas) if (e := _mean_gain(results, method, a)) is not None]
        if points:
            x, means = [i for i, _ in points], [e.mean for _, e in points]
            known = any(e.standard_error for _, e in points)
            errors = [e.standard_error or 0.0 for _, e in points] if known else None
            axes.errorbar(x, means, errors, color=colour(method), marker=marker(method), linewidth=1.5, capsize=2,
                          label=show_method(method))  # fmt: skip
    axes.set_xticks(range(len(alphas)), [f"{a:g}" for a in alphas])
    axes.set_xlim(-0.25, len(alphas) - 0.75)


def _mean_gain(results: ResultSet, method: str, alpha: float) -> Estimate | None:
    """Mean gain over the configurations of an alpha, one value per seed."""
    per_seed = []
    for seed in results.seeds:
        gains = [_gains(results.of_seed(seed), c, method) for c in results.configurations if c.alpha == alpha]
        if gains and all(g is not None for g in gains):
            per_seed.append(fmean(g.mean for g in gains if g is not None))
    return estimate(per_seed) if per_seed else None


# Cost ---------------------------------------------------------------------------------------------------------------


def budget(findings: Findings) -> Drawn | None:
    """Evidence bought, in per cent of the nominal budget."""
    probing = ("aq-128", "sage-nf", "sage-vanilla", "sage-os", "sage-os-table")
    return _bars(
        findings, "budget", probing, 100, "share of the nominal budget, %", "budget", "Probe budget consumed",
        "Of nominally 128 anchors per neighbour. Bars: mean over configurations; points: configurations. Published "
        "means are over the configurations that were measured.",
    )  # fmt: skip


def traffic(findings: Findings) -> Drawn | None:
    """Models moved."""
    both = ResultSet((*findings.published.rows, *findings.ours.rows))
    methods = tuple(m for m in both.methods if m != "local")
    return _bars(
        findings, "comm_oh", methods, 1, "models moved per round, RG = 1", "traffic", "Model traffic",
        "Models moved per client-round relative to random gossip (CommOH); published is one number per method.",
    )  # fmt: skip


def _bars(
    findings: Findings, metric: str, methods: Sequence[str], scale: float, label: str,
    name: str, title: str, caption: str,
) -> Drawn | None:  # fmt: skip
    ours, published = findings.ours, findings.published
    shown = [m for m in methods if _column(ours, m, metric) or _column(published, m, metric)]
    if not shown:
        return None
    with drawing(max(5.0, 1.05 * len(shown)), 3.4) as figure:
        axes = figure.subplots()
        for i, method in enumerate(shown):
            own = _column(ours, method, metric)
            theirs = _column(published, counterpart_method(method), metric)
            beside = {c: v for c, v in theirs.items() if not own or c in {counterpart(at) for at in own}}
            for offset, values, alpha, hatch in ((-0.2, beside, 0.35, "//"), (0.2, own, 0.9, "")):
                if values:
                    at, scaled = i + (offset if ours else 0.0), [scale * v for v in values.values()]
                    _bar(axes, at, scaled, colour(method), alpha, hatch)
        axes.set_xticks(range(len(shown)), [show_method(m).replace(" ", "\n") for m in shown])
        axes.set_ylabel(label)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
        _legend_of_sides(axes, measured=bool(ours))
        tidy(axes)
        return save(figure, name, title, caption)


def _column(results: ResultSet, method: str, metric: str) -> dict[Configuration, float]:
    found = {c: results.by_seed(c, method, metric) for c in results.configurations}
    return {c: fmean(v.values()) for c, v in found.items() if v}


def _bar(axes: Axes, x: float, values: Sequence[float], tone: str, alpha: float, hatch: str) -> None:
    mean = fmean(values)
    axes.bar(x, mean, 0.36, color=tone, alpha=alpha, hatch=hatch, edgecolor="#ffffff", linewidth=0)
    if max(values) - min(values) > 1e-9:
        spread = [x + 0.24 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        axes.plot(spread, values, ".", color=INK, markersize=3)
    axes.annotate(f"{mean:.4g}", (x, 0), (0, 4), textcoords="offset points", ha="center", fontsize=7, bbox=_LABEL)


def _legend_of_sides(axes: Axes, *, measured: bool) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=MUTED, alpha=0.45, hatch="//", edgecolor="#ffffff", label="published")]
    if measured:
        handles.append(Patch(facecolor=MUTED, label="measured"))
    axes.legend(handles=handles, loc="upper right", ncols=2, fontsize=8)


def per_byte(findings: Findings) -> Drawn | None:
    """What a method gains over gossip against what it moves."""
    ours = findings.ours
    methods = [m for m in ours.methods if m != "local" and _column(ours, m, "bytes")]
    if len(methods) < 2:
        return None
    with drawing(7.2, 3.8) as figure:
        axes = figure.subplots()
        for method in methods:
            points = [p for c in ours.configurations if (p := _price_and_gain(ours, c, method)) is not None]
            if points:
                x, y = zip(*points, strict=True)
                star = 1.5 if marker(method) == "*" else 1.0
                axes.plot(x, y, marker(method), color=colour(method), alpha=0.45, markersize=5 * star)
                axes.plot(fmean(x), fmean(y), marker(method), color=colour(method), markersize=10 * star,
                          markeredgecolor="#ffffff", label=show_method(method))  # fmt: skip
        axes.set(xlabel="MB moved per client-round: models, probes, control", ylabel="accuracy minus gossip, points")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        tidy(axes, zero=True)
        return save(
            figure, "per-byte", "Accuracy per byte",
            "What a method moves in all, and what it gains over random gossip. Small: configurations (mean over "
            "seeds); large: their mean.",
        )  # fmt: skip


def _price_and_gain(ours: ResultSet, c: Configuration, method: str) -> tuple[float, float] | None:
    gain = _gains(ours, c, method)
    moved, count = ours.by_seed(c, method, "bytes"), ours.by_seed(c, method, "decisions")
    if gain is None or not moved or not count:
        return None
    return fmean(moved[s] / count[s] for s in moved if s in count) / 1e6, gain.mean


# Mechanisms and sweeps ----------------------------------------------------------------------------------------------


def mechanisms(findings: Findings) -> Drawn | None:
    """Concentration, diversity, and whether the advantage predicts the gain."""
    ours = findings.ours
    panels = (
        ("pull_gini", "pulls concentrate\n(Gini of pulls by peer)"),
        ("diversity", "representations differ\n(1 - mean CKA)"),
        ("advantage_gain_correlation", "anchor advantage predicts gain\n(correlation)"),
    )
    methods = [m for m in ours.methods if any(_column(ours, m, k) for k, _ in panels)]
    if not methods:
        return None
    with drawing(9.2, 0.32 * len(methods) + 1.4) as figure:
        for i, (axes, (metric, title)) in enumerate(zip(figure.subplots(1, 3, sharey=True), panels, strict=True)):
            for row, method in enumerate(methods):
                values = list(_column(ours, method, metric).values())
                axes.plot(values, [row] * len(values), marker(method), color=colour(method), alpha=0.5, markersize=5)
                if values:
                    axes.plot([median(values)] * 2, [row - 0.32, row + 0.32], color=colour(method), linewidth=2.6)
            axes.set_title(title, fontsize=9)
            axes.grid(visible=True, axis="x")
            axes.grid(visible=False, axis="y")
            if i == 0:
                axes.set_yticks(range(len(methods)), [show_method(m) for m in methods])
                axes.invert_yaxis()
            if metric == "advantage_gain_correlation":
                axes.axvline(0, color=INK, linewidth=0.9)
            tidy(axes)
        return save(
            figure, "mechanisms", "The three mechanisms the paper names",
            "At the last evaluation. Points: configurations (mean over seeds); bars: medians.",
        )  # fmt: skip


def sweeps(findings: Findings) -> Drawn | None:
    """What SAGE-OS would have done under other options."""
    rows = findings.sweeps
    if not rows:
        return None
    titles = {"lambda": r"price $\lambda$", "delta": r"failure probability $\delta$", "schedule": "schedule",
              "radius": "radius", "cost": "price of a stage"}  # fmt: skip
    with drawing(10.4, 4.0) as figure:
        counts = [len({r.value for r in rows if r.sweep == s}) for s in titles]
        panels = figure.subplots(1, len(titles), sharey=True, width_ratios=[max(n, 2.2) for n in counts])
        for axes, (sweep, title) in zip(panels, titles.items(), strict=True):
            of = [r for r in rows if r.sweep == sweep]
            values = list(dict.fromkeys(r.value for r in of))
            for name, tone, shape, read in _SHARES:
                means = [100 * fmean(read(r) for r in of if r.value == v) for v in values]
                axes.plot(range(len(values)), means, color=tone, marker=shape, linewidth=1.4, label=name)
            shown = [v.replace("-", "\n") if sweep == "schedule" else v for v in values]
            turned = 35 if sweep in ("radius", "cost") else 0
            axes.set_xticks(range(len(values)), shown, fontsize=7.5, rotation=turned)
            axes.set_title(title, fontsize=9)
            axes.margins(x=0.15)
            tidy(axes)
        panels[0].set_ylabel("%")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
        return save(
            figure, "sweeps", "SAGE-OS on recorded losses, one option at a time",
            "Replay on the evidence of the AQ-128 cells, mean over cells. Evidence is of the nominal budget; certified "
            "and cost-stopped are shares of decisions.",
        )  # fmt: skip


_SHARES: tuple[tuple[str, str, str, Callable[[SweepRow], float]], ...] = (
    ("evidence", "#0072B2", "o", lambda r: r.budget),
    ("certified", "#009E73", "P", lambda r: r.certified),
    ("stopped by cost", "#D55E00", "s", lambda r: r.cost),
)

CHARTS = (relative, by_alpha, budget, traffic, per_byte, mechanisms, sweeps)
