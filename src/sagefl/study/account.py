"""What a study's comparisons came to: tables for people, one page of Markdown, numbers for machines, two figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from ..methods.fidelity import caveats, ranked
from ..runs.files import csv_text
from ..runs.intervals import Estimate, share_interval
from .canvas import INK, Drawn, colour, drawing, marker, save, styles, tidy
from .comparing import (
    TITLES,
    Comparison,
    HeadroomRow,
    Standing,
    compare,
    headrooms,
    over_worlds,
    refutations,
    scale_of_measure,
    standings,
)
from .render import to_markdown as table_to_markdown
from .results import ResultSet
from .spec import Trial
from .tables import Layout, TableColumn, TablePlan

if TYPE_CHECKING:
    from .design import Findings


WORDS = ("method", "world", "measure", "best reference", "by world (n)")  # heads of columns that hold words


class Sheet(NamedTuple):
    """A table with its heading and what to know about it."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str
    caveats: Sequence[str] = ()  # the part of it that a screen shows, too: which methods are not their papers'


def title_of(measure: str) -> str:
    """A measure as people read it."""
    return TITLES.get(measure, measure.replace("_", " "))


def layouts(trial: Trial) -> list[Layout]:
    """A table for every measure: a row per world, a column per method."""
    return [_layout(trial, measure) for measure in trial.report]


def _layout(trial: Trial, measure: str) -> Layout:
    def plan(ours: ResultSet, published: ResultSet) -> TablePlan:
        best = "max" if scale_of_measure(measure) > 1 else ""
        columns = [TableColumn(m, measure, title_of(measure), trial.show(m), best=best) for m in trial.methods]
        title = title_of(measure)
        return TablePlan(measure, title[0].upper() + title[1:], "Means over seeds ± standard errors.", columns)

    return plan


def to_markdown(findings: Findings) -> str:
    """The whole account: scale, what was asked first, every table."""
    head = [f"# {findings.design.title}", "", *(f"- {line}" for line in findings.scale)]
    head += [f"- {findings.provenance[-1].removeprefix('# ')}; runs may be older"] if findings.provenance else []
    head += [*(f"- left out: {note}" for note in findings.notes), "", f"    {findings.provenance[0]}", ""]
    head += [f"{line}\n" for line in primary_lines(findings)]
    head += [f"![{drawn.title}](figures/{drawn.name}.png)\n" for drawn in findings.figures[:1]]
    parts = [_markdown(sheet) for sheet in sheets(findings)]
    return "\n".join([*head, *parts, *(table_to_markdown(table) for table in findings.tables)])


def _markdown(sheet: Sheet) -> str:
    lines = [sheet.heads, ["---"] * len(sheet.heads), *sheet.rows]
    return "\n".join([f"## {sheet.title}", "", *("| " + " | ".join(row) + " |" for row in lines), "", sheet.note, ""])


def sheets(findings: Findings) -> Iterator[Sheet]:
    """Comparisons, headroom, methods and certificates, each where there is something to say."""
    trial, records = findings.trial, findings.records
    yield _against(compare(records, trial), trial)
    if found := headrooms(records, trial):
        yield _headroom(found, trial)
    yield _methods(standings(records, trial), trial)
    if refuted := _refuted(findings):
        yield refuted


# The primary comparison -----------------------------------------------------------------------------------------------


def primary_lines(findings: Findings) -> Iterator[str]:
    """A sentence for every comparison that was named beforehand."""
    trial, made = findings.trial, compare(findings.records, findings.trial)
    for p in trial.primary:
        where = f" in {p.world}" if p.world else ""
        named = f"`{p.method}`" if trial.show(p.method) == p.method else f"{trial.show(p.method)} (`{p.method}`)"
        said = (
            f"**Primary comparison**, named before the runs: {named} minus {p.against}, {title_of(p.measure)}{where}: "
        )
        there = [c for c in made if c.primary and (c.method, c.measure) == (p.method, p.measure)]
        found = [c for c in there if p.world in (None, c.world and c.world.world)]
        yield said + (_found(found[0], trial) if found else "not run yet.")


def _found(c: Comparison, trial: Trial) -> str:
    p = ""
    if not isnan(c.p):
        several = f" ({c.holm:.3g} by Holm, of {len(trial.primary)})" if len(trial.primary) > 1 else ""
        p = f", p = {c.p:.3g}{several}"
    gain = _estimate(c.difference, c.measure, trial)
    if not trial.pooled:
        return f"{gain}{p} over {c.difference.seeds} seed{'s' * (c.difference.seeds != 1)}."
    done, planned = c.difference.seeds, trial.replications
    over = f"{done} replications" if done == planned else f"{done} of {planned} replications: not final"
    seeds = f"{_estimate(c.over_seeds, c.measure, trial)} over {c.over_seeds.seeds}"
    return f"{gain}{p} over {over}; with the seed as the unit {seeds}."


def _estimate(e: Estimate, measure: str, trial: Trial) -> str:
    unit = " points" if scale_of_measure(measure) > 1 else ""
    if e.standard_error is None:
        return f"{_signed(e.mean)}{unit} (one replication, no interval)"
    low, high = e.interval(trial.level)
    return f"{_signed(e.mean)}{unit} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < 1000 else f"{value:+.4g}"


# Tables ---------------------------------------------------------------------------------------------------------------


def _percent(digits: int, unit: str = "") -> Callable[[float], str]:
    return lambda value: f"{100 * value:.{digits}f}{unit}"


def _plain(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}"


_COSTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("certified", "certified", _percent(1, " %")),
    ("certified_first", "first third", _percent(1, " %")),
    ("certified_last", "last third", _percent(1, " %")),
    ("mean_anchors", "anchors", _plain(1)),
    ("budget", "budget", _percent(1, " %")),
    ("mb_probes", "probes MB", _plain(3)),
    ("mb_models", "models MB", _plain(3)),
    ("pulled_worse", "pulled worse", _percent(1, " %")),
)


def _methods(found: Sequence[Standing], trial: Trial) -> Sheet:
    reported = list(dict.fromkeys([*trial.report, "weak"]))
    shown = [(m, title_of(m), _percent(2) if scale_of_measure(m) > 1 else _plain(3)) for m in reported]
    columns = (*shown, *(c for c in _COSTS if c[0] not in reported))
    rows = []
    for s in found:
        cells = [show(s.values[k]) if not isnan(s.values.get(k, nan)) else "" for k, _, show in columns]
        name = trial.show(s.method) if ranked(s.method) else f"{trial.show(s.method)} (not ranked)"
        rows.append([name, str(s.replications), *cells])
    heads = ["method", "n", *(head for _, head, _ in columns)]
    note = (
        "Means over n replications, all worlds together: only methods with the same n can be read against each other "
        "here. Shares in per cent, accuracies after mixing; MB per client-round. *certified*: of trimmed gossip, the "
        "decisions that dropped somebody; *first third*, *last third*: the same in those rounds alone (where it is "
        "nothing at the end, the method ends as gossip); *pulled worse*: the share of pulled peers whose own "
        "predictions err more on the receiver's evaluation data than a random draw's."
    )
    return _marked(Sheet("Methods", heads, rows, note), [s.method for s in found], trial)


def _against(made: Sequence[Comparison], trial: Trial) -> Sheet:
    where = ("over seeds (n)", "by world (n)") if trial.pooled else ()
    level = f"{trial.level:.0%} interval".replace("%", " %")
    heads = ("method", *(() if trial.pooled else ("world",)), "measure", "n", "difference", level, "p", "Holm", *where)
    rows = []
    for c in made:
        name = f"**{trial.show(c.method)}** (primary)" if c.primary else trial.show(c.method)
        numbers = ["" if isnan(p) else f"{p:.3g}" for p in (c.p, c.holm)]
        world = [] if trial.pooled else [str(c.world or "all")]
        rest = []
        if trial.pooled:
            apart = [f"{_at(w)} {e.mean:+.2f} ({e.seeds})" for w, e in c.by_world.items()]
            low_high = _ends(c.over_seeds, trial) or "no interval"
            rest = [f"{c.over_seeds.mean:+.2f}, {low_high} ({c.over_seeds.seeds})", "; ".join(apart)]
        difference = [str(c.difference.seeds), _signed(c.difference.mean), _ends(c.difference, trial)]
        rows.append([name, *world, title_of(c.measure), *difference, *numbers, *rest])
    paired = "Replications are (world, seed)" if trial.pooled else "Paired by seed in each world"
    note = (
        f"{paired}; shares in points, Student's intervals. Holm: within the {trial.family} comparisons of the plan "
        "beside the primary; those not run yet come last."
    )
    against = Sheet(f"Against {trial.show(trial.against)}", heads, rows, note)
    return _marked(against, [*(c.method for c in made), trial.against], trial)


def _marked(sheet: Sheet, methods: Sequence[str], trial: Trial) -> Sheet:
    """Adds which of its methods deviate from their papers."""
    said = caveats(methods, trial.show)
    return sheet._replace(note=" ".join([sheet.note, *said]), caveats=said)


def _at(world: object) -> str:
    """A world in a narrow column."""
    return str(world).partition("/")[2] or str(world)


def _ends(e: Estimate, trial: Trial) -> str:
    low, high = e.interval(trial.level)
    return "" if e.standard_error is None else f"{_signed(low)} to {_signed(high)}"


def _headroom(found: Sequence[HeadroomRow], trial: Trial) -> Sheet:
    rows = []
    for h in found:
        shares = [h.captured.get(m) for m in trial.contenders]
        texts = ["" if s is None else f"{100 * s[0]:.0f} % [{100 * s[1]:.0f}, {100 * s[2]:.0f}]" for s in shares]
        rows.append([str(h.world), trial.show(h.best), _signed(h.points.mean), _ends(h.points, trial), *texts])
    heads = ["world", "best reference", "headroom", "interval", *map(trial.show, trial.contenders)]
    measure = title_of(trial.lead)
    note = (
        f"Headroom: the better of oracle and local minus rg on {measure}, in points, paired by seed; the better one is "
        "chosen on the same seeds, which flatters it a little. Per method the share of it that is captured, mean gain "
        "over mean headroom, with Fieller's interval; empty where the headroom cannot be told from none."
    )
    return Sheet("Headroom", heads, rows, note)


def _refuted(findings: Findings) -> Sheet | None:
    rows, show, trial = [], _percent(1, " %"), findings.trial
    for r in refutations(findings.records, trial):
        low, high = share_interval(r.refuted, r.checked)
        shares = (show(r.refuted / r.checked), f"{100 * low:.1f} to {show(high)}", show(r.of_all))
        rows.append((trial.show(r.method), *map(str, (r.seen, r.checked, r.refuted)), *shares))
    heads = ("method", "decisions seen", "certified", "refuted", "share", "95 % interval", "of all seen")
    note = (
        "Anchors are drawn from one pool again and again: certificates that assume anchors independent of the models "
        "are approximate after the first round; those of a rule that remembers are about that pool, not other data. "
        "*seen*: the decisions of rounds that end with an evaluation; certificates of other rounds, where a method "
        "may give most of them, were not checked. *refuted*: on the receiver's evaluation data, scored as the rule "
        "scores its probes, the certified peer is worse than the neighbourhood's mean (of trimmed gossip: somebody "
        "who was dropped is better than it); a small evaluation set errs, too. Intervals are exact for independent "
        "decisions, which those of one run are not quite; delta is about the last column, and for a rule that "
        "remembers about its whole run."
    )
    return Sheet("Certificates on evaluation data", heads, rows, note) if rows else None


def comparisons_csv(made: Sequence[Comparison], trial: Trial) -> str:
    """Every comparison with full precision."""
    heads = "arm spec outcome primary replications points low high p holm seeds over_seeds seeds_low seeds_high"
    rows = [[*([] if trial.pooled else ["world"]), *heads.split()]]
    for c in made:
        whole = (c.difference.mean, *c.difference.interval(trial.level), c.p, c.holm)
        seeds = (c.over_seeds.mean, *c.over_seeds.interval(trial.level))
        row = [trial.show(c.method), c.method, c.measure, int(c.primary), c.difference.seeds, *_digits(whole)]
        world = [] if trial.pooled else [str(c.world or "")]
        rows.append([*map(str, (*world, *row, c.over_seeds.seeds)), *_digits(seeds)])
    return csv_text(rows)


def _digits(values: Sequence[float]) -> list[str]:
    return [f"{value:.6g}" for value in values]


# Figures --------------------------------------------------------------------------------------------------------------


def draw_gains(findings: Findings) -> Drawn | None:
    """What every method gains over the other it is compared with, world by world, with its interval."""
    trial, measure = findings.trial, findings.trial.lead
    every = [c for c in compare(findings.records, trial) if c.measure == measure]
    gains = {(w, c.method): e for c in every for w, e in c.by_world.items() if trial.pooled or c.world is not None}
    worlds = [w for w in trial.worlds if any(at == w for at, _ in gains)]
    if not gains:
        return None
    methods, columns = list(reversed(trial.contenders)), min(len(worlds), 4)
    lines = -(-len(worlds) // columns)
    with drawing(2.2 + 2.3 * columns, lines * (0.32 * len(methods) + 1.1)) as figure:
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, world in zip(panels, worlds, strict=False):
            for row, method in enumerate(methods):
                if (e := gains.get((world, method))) is None:
                    continue
                if e.seeds > 2:  # an interval from two seeds would set the scale of all
                    axes.plot(e.interval(trial.level), [row, row], color=colour(method), linewidth=2, alpha=0.5)
                axes.plot(e.mean, row, marker(method), color=colour(method), markersize=8)
            axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
            axes.set_title(str(world), fontsize=9)
            axes.set_yticks(range(len(methods)), [trial.show(m) for m in methods])
            axes.set_ylim(-0.6, len(methods) - 0.4)
            axes.grid(visible=True, axis="x")
            tidy(axes)
        for axes in panels[len(worlds) :]:
            axes.set_visible(False)
        unit = ", points" if scale_of_measure(measure) > 1 else ""
        figure.supxlabel(f"{title_of(measure)} minus {trial.show(trial.against)}{unit}", fontsize=9)
        caption = f"Means over seeds, paired; bars: {trial.level:.0%} intervals of three seeds or more."
        return save(figure, "gains", f"Gain over {trial.show(trial.against)}, world by world", caption)


def draw_price(findings: Findings) -> Drawn | None:
    """Gain against evidence and against bytes, a method a point, over all worlds."""
    trial, records, measure = findings.trial, findings.records, findings.trial.lead
    gains = over_worlds(records, trial, measure)
    found = [s for s in standings(records, trial) if s.method in gains]
    if not found:
        return None
    styled = styles([s.method for s in found])
    panels = (("mean_anchors", "anchors asked per decision"), ("mb_probes", "probes, MB per client-round"))
    with drawing(9.6, 4.6) as figure:
        for axes, (metric, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            axes.plot(0, 0, "o", color=INK, markersize=8, label=trial.show(trial.against))
            for s in found:
                low, high = gains[s.method].interval(trial.level)
                x, y = s.values[metric], gains[s.method].mean
                tone, sign = styled[s.method]
                if gains[s.method].seeds > 2:  # an interval from two replications would set the scale of all
                    axes.plot([x, x], [low, high], color=tone, alpha=0.35, linewidth=1.5)
                axes.plot(x, y, sign, color=tone, markersize=8, label=trial.show(s.method))
            axes.set(xlabel=label)
            axes.set_xlim(left=-0.03 * axes.get_xlim()[1])
            tidy(axes, zero=True)
        unit = ", points" if scale_of_measure(measure) > 1 else ""
        figure.axes[0].set(ylabel=f"{title_of(measure)}\nminus {trial.show(trial.against)}{unit}")
        figure.axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        caption = (
            f"What a method gains over {trial.show(trial.against)} and what it asks for it. Bars: {trial.level:.0%} "
        )
        caption += "intervals of three replications or more."
        return save(figure, "price", "Gain against evidence and bytes", caption)
