"""What a trial found: one page of Markdown with its tables, the comparisons as numbers, and a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from math import isnan, nan
from pathlib import Path

from .canvas import Drawn, drawing, save, tidy
from .collect import write_records
from .design import Findings, environment
from .intervals import Estimate, share_interval
from .trials import OUTCOMES, REFERENCE, Comparison, Refutation, Standing, Trial, compare_arms, refutations, standings

__all__ = ["comparisons_csv", "draw_price", "to_markdown", "write_account"]


def write_account(findings: Findings, out: Path) -> Path:
    """The page, the comparisons, the cells and the figures into a folder; returns the page."""
    out.mkdir(parents=True, exist_ok=True)
    written = f"this account was written with {environment()}; its runs may be older"
    scale = [*findings.scale, written, *(f"left out: {note}" for note in findings.notes)]
    (out / "README.md").write_text(to_markdown(findings, scale), encoding="utf-8")
    comparisons = compare_arms(findings.records, _trial(findings))
    (out / "comparisons.csv").write_text(comparisons_csv(comparisons), encoding="utf-8")
    write_records(out / "cells.csv", findings.records)
    for drawn in findings.figures:
        drawn.write(out)
    return out / "README.md"


def _trial(findings: Findings) -> Trial:
    trial = findings.design.trial
    assert trial is not None, f"{findings.design.name} compares nothing"
    return trial


def to_markdown(findings: Findings, scale: Sequence[str]) -> str:
    """The whole account: scale, arms, comparisons, certificates."""
    trial, records = _trial(findings), findings.records
    made = compare_arms(records, trial)
    parts = [
        f"# {findings.design.title}",
        *(f"- {line}" for line in scale),
        f"\n    {findings.provenance[0]}\n",
        *(_primary(name, made, trial) for name in trial.primary),
        "![Gain against evidence and bytes](price.png)\n" if made else "",
        "## Arms",
        _arms(standings(records, trial)),
        "## Against gossip",
        _against(made, trial),
        "## Certificates on evaluation data",
        _refuted(refutations(records, trial)),
    ]
    return "\n".join(parts) + "\n"


def _primary(name: str, made: Sequence[Comparison], trial: Trial) -> str:
    (arm,) = [arm for arm in trial.arms if arm.name == name]
    said = f"**Primary comparison**, named before the runs: {name} (`{arm.spec}`) minus rg, mean of global and Client "
    said += "accuracy after mixing: "
    for c in made:
        if c.primary and c.arm == arm:
            done, planned = c.difference.seeds, trial.replications
            over = f"{done} replications" if done == planned else f"{done} of {planned} replications: not final"
            seeds = f"with the seed as the unit {_points(c.over_seeds)} over {c.over_seeds.seeds}"
            return f"{said}{_points(c.difference)}{_p_text(c, trial)} over {over}; {seeds}.\n"
    return f"{said}not run yet.\n"


def _points(e: Estimate) -> str:
    if e.standard_error is None:
        return f"{e.mean:+.2f} points (one replication, no interval)"
    low, high = e.interval()
    return f"{e.mean:+.2f} points [{low:+.2f}, {high:+.2f}]"


def _p_text(c: Comparison, trial: Trial) -> str:
    if isnan(c.p):
        return ""
    several = f" ({c.holm:.3g} by Holm, of {len(trial.primary)})" if len(trial.primary) > 1 else ""
    return f", p = {c.p:.3g}{several}"


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
    ("certified_first", "first third", _percent(1, " %")),
    ("certified_last", "last third", _percent(1, " %")),
    ("mean_anchors", "anchors", _plain(1)),
    ("budget", "budget", _percent(1, " %")),
    ("mb_probes", "probes MB", _plain(3)),
    ("mb_models", "models MB", _plain(3)),
    ("pulled_worse", "pulled worse", _percent(1, " %")),
)


def _arms(found: Sequence[Standing]) -> str:
    heads = ["arm", "n", *(head for _, head, _ in _ARM_COLUMNS)]
    rows = [heads, ["---"] * len(heads)]
    for s in found:
        cells = [show(s.values[k]) if not isnan(s.values.get(k, nan)) else "" for k, _, show in _ARM_COLUMNS]
        rows.append([s.arm.name, str(s.replications), *cells])
    note = (
        "\nMeans over n replications: only arms with the same n can be read against each other here; the differences "
        "below are taken within replications. Accuracies in per cent after mixing; MB per client-round. *certified*: "
        "of trimmed gossip, the decisions that dropped somebody; *first third*, *last third*: the same in those rounds "
        "alone (where it is nothing at the end, the arm ends as gossip), of the replications whose decisions were "
        "kept; *pulled worse*: the share of pulled peers whose own "
        "predictions err more on the receiver's evaluation data than a random draw's."
    )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n{note}\n"


def _against(made: Sequence[Comparison], trial: Trial) -> str:
    heads = (
        "arm",
        "outcome",
        "n",
        "points over gossip",
        "95 % interval",
        "p",
        "Holm",
        "over seeds (n)",
        "by world (n)",
    )
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for c in made:
        seeds = f"{c.over_seeds.mean:+.2f}, {_interval(c.over_seeds) or 'no interval'} ({c.over_seeds.seeds})"
        numbers = ["" if isnan(p) else f"{p:.3g}" for p in (c.p, c.holm)]
        name = f"**{c.arm.name}** (primary)" if c.primary else c.arm.name
        apart = "; ".join(f"{w.topology}/{w.alpha:g} {e.mean:+.2f} ({e.seeds})" for w, e in c.by_world.items())
        difference = (str(c.difference.seeds), f"{c.difference.mean:+.2f}", _interval(c.difference))
        cells = (name, OUTCOMES[c.outcome], *difference, *numbers, seeds, apart)
        lines.append("| " + " | ".join(cells) + " |")
    note = f"Holm: within the {trial.family} comparisons of the plan beside the primary; those not run yet come last."
    return "\n".join(lines) + f"\n\n{note}\n"


def _refuted(found: Sequence[Refutation]) -> str:
    heads = ("arm", "decisions seen", "certified", "refuted", "share", "95 % interval", "of all seen")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    show = _percent(1, " %")
    for r in found:
        low, high = share_interval(r.refuted, r.checked)
        shares = (show(r.refuted / r.checked), f"{100 * low:.1f} to {show(high)}", show(r.of_all))
        lines.append("| " + " | ".join((r.arm.name, *map(str, (r.seen, r.checked, r.refuted)), *shares)) + " |")
    return (
        "\n".join(lines) + "\n\nAnchors are drawn from one pool again and again, so certificates after the first round "
        "are approximate. *seen*: the decisions of rounds that end with an evaluation; certificates of other rounds, "
        "where an arm may give most of them, were not checked. *refuted*: on the receiver's evaluation data, scored as "
        "the rule scores its probes, the "
        "certified peer is worse than the neighbourhood's mean (of trimmed gossip: somebody who was dropped is better "
        "than it); a small evaluation set errs, too. Intervals are exact for independent decisions, which those of one "
        "run are not quite; delta is about the last column.\n"
    )


def _interval(e: Estimate) -> str:
    low, high = e.interval()
    return "" if e.standard_error is None else f"{low:+.2f} to {high:+.2f}"


def comparisons_csv(made: Sequence[Comparison]) -> str:
    """Every comparison with full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = "arm spec outcome primary replications points low high p holm seeds over_seeds seeds_low seeds_high"
    writer.writerow(heads.split())
    for c in made:
        whole = (c.difference.mean, *c.difference.interval(), c.p, c.holm)
        seeds = (c.over_seeds.mean, *c.over_seeds.interval())
        row = [c.arm.name, c.arm.spec, c.outcome, int(c.primary), c.difference.seeds, *_digits(whole)]
        writer.writerow([*row, c.over_seeds.seeds, *_digits(seeds)])
    return text.getvalue()


def _digits(values: Sequence[float]) -> list[str]:
    return [f"{value:.6g}" for value in values]


def draw_price(findings: Findings) -> Drawn | None:
    """Accuracy over gossip against evidence and against bytes, an arm a point."""
    trial, records = _trial(findings), findings.records
    gains = {c.arm.name: c.difference for c in compare_arms(records, trial) if c.outcome == "both"}
    found = [s for s in standings(records, trial) if s.arm.name in gains]
    if not found:
        return None
    panels = (("mean_anchors", "anchors asked per decision"), ("mb_probes", "probes, MB per client-round"))
    with drawing(9.6, 4.6) as figure:
        for axes, (metric, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            axes.plot(0, 0, "o", color="black", markersize=8, label=REFERENCE)
            for number, s in enumerate(found):
                low, high = gains[s.arm.name].interval()
                x, y = s.values[metric], gains[s.arm.name].mean
                tone = f"C{number % 10}"
                if gains[s.arm.name].seeds > 2:  # an interval from two replications would set the scale of all
                    axes.plot([x, x], [low, high], color=tone, alpha=0.35, linewidth=1.5)
                axes.plot(x, y, "o*sDPvX^<>ph"[number % 12], color=tone, markersize=8, label=s.arm.name)
            axes.set(xlabel=label)
            axes.set_xlim(left=-0.03 * axes.get_xlim()[1])
            tidy(axes, zero=True)
        figure.axes[0].set(ylabel="mean of global and Client accuracy\nminus gossip, points")
        figure.axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        caption = (
            "What an arm gains over gossip and what it asks for it. Bars: 95 % intervals of three replications or more."
        )
        return save(figure, "price", "Gain against evidence and bytes", caption)
