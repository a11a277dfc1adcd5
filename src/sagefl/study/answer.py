"""Does the paper hold? Five lines that open its report, and what there is to win at all, from what cells there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..runs.intervals import estimate
from .account import Sheet
from .claims import Finding, Verdict, told
from .measures import column, gap
from .results import UPPER, Configuration, ResultSet, show_method

if TYPE_CHECKING:
    from .design import Findings

TIE = 1.0  # the paper's own "sub-point margins are ties"
_MEASURES = {"accuracy": "global", "client": "Client"}


def five_lines(findings: Findings) -> list[str]:
    """What was run, headroom, committing, SAGE-OS, and the verdicts in numbers; headroom first where it is known."""
    if not findings.ours:
        return [f"Nothing was run. {_by_tables(findings)}"]
    what, room = _what(findings), _headroom(findings)
    opening = [what, f"Headroom: {_UNKNOWN}"] if room is None else [room, what]
    return [*opening, _committing(findings), _stopping(findings), _verdicts(findings)]


def _what(findings: Findings) -> str:
    ours, printed = findings.ours, findings.published.configurations
    run = ours.configurations
    own = sum(c in printed for c in run)
    names = f" ({', '.join(map(str, run))})" if len(run) <= 3 else ""
    seeds = "seed" if len(ours.seeds) == 1 else "seeds"
    many = len(findings.records)
    said = f"{many} cell{'s' * (many != 1)} in {len(run)} of the paper's {len(printed)} configurations{names}"
    parts = [f"What was run: {said}, {seeds} {', '.join(map(str, ours.seeds))}"]
    if own < len(run):
        parts.append(f"{len(run) - own} of them stand beside the paper's and are not its own")
    there = {c.dataset for c in run}
    if lacking := list(dict.fromkeys(c.labels[0] for c in printed if c.dataset not in there)):
        parts.append(f"nothing on {' and '.join(lacking)}, so claims about all of them stay open")
    return "; ".join([*parts, *findings.coarse, *findings.outdated]) + "."


_UNKNOWN = "not known yet; no configuration has gossip beside averaging with many (d-psgd or average-all)."


def _headroom(findings: Findings) -> str | None:
    gains = list(_gains(findings.ours))
    if not gains:
        return None
    largest = max(gain.points for gain in gains)
    said = ", ".join(
        f"{show_method(method)} {min(of):+.2f} to {max(of):+.2f}"
        for method in UPPER
        if (of := [gain.points for gain in gains if gain.method == method])
    )
    verdict = (
        "less than a point, which the paper itself calls a tie: a hint, no proof, that a selector has nothing to win"
        if largest < TIE
        else f"up to {largest:.2f} points above gossip: more models a round do help"
    )
    what = "what averaging with many models a round gains over gossip, in points of global and Client accuracy"
    return f"Headroom: {what}: {said}; {verdict}."


def _committing(findings: Findings) -> str:
    said = {m: told(gap("accuracy", m, "rg"), findings.ours, findings.published) for m in ("aq-128", "sage-nf")}
    parts = [f"{show_method(m)} minus gossip {''.join(text)}" for m, text in said.items() if text]
    return f"The paper says that always committing loses to gossip: {'; '.join(parts) or 'not run yet'}."


def _stopping(findings: Findings) -> str:
    ours, published = findings.ours, findings.published
    said = "It says that SAGE-OS matches gossip on a quarter of the evidence"
    level = told(gap("accuracy", "sage-os", "rg"), ours, published)
    if level is None:
        return f"{said}: not run yet."
    spent = {m: told(column(m, "budget", percent=True), ours, published) for m in ("sage-os", "sage-os-table")}
    printed, cumulative = spent.values()
    parts = [f"minus gossip {''.join(level)}"]
    parts += [f"of the fixed budget it spends {''.join(printed)}"] if printed else []
    parts += [f"{cumulative[0]} if the price is read as cumulative"] if cumulative else []
    return f"{said}: {'; '.join(parts)}."


def _verdicts(findings: Findings) -> str:
    over_seeds = count([j.runs for j in findings.judged])
    return f"{_by_tables(findings)} {by_one_run(findings)} Over seeds: {over_seeds}."


def by_one_run(findings: Findings) -> str:
    """Verdicts on the first run of every cell; by the paper's own standard only where they are of its scale."""
    counted = count([j.printed for j in findings.judged])
    large, all_of_them = len(findings.large.rows), len(findings.ours.rows)
    if large == all_of_them:
        return f"By the paper's own standard, one run a cell: {counted}."
    if large:
        return (
            f"By one run a cell, {large} of {all_of_them} cells at the printed scale; claims that read others "
            f"reproduce nothing: {counted}."
        )
    return f"By one run a cell, at this scale and not the printed one, which reproduces nothing: {counted}."


def _by_tables(findings: Findings) -> str:
    return f"Of {len(findings.judged)} claims by the paper's own tables: {count([j.tables for j in findings.judged])}."


def count(findings: Sequence[Finding]) -> str:
    """Verdicts in numbers, those that are open with their direction."""
    found = Counter((f.verdict, f.short if f.verdict is Verdict.OPEN else f.verdict.value) for f in findings)
    order = list(Verdict)
    return ", ".join(
        f"{n} {said}" for (_, said), n in sorted(found.items(), key=lambda p: (order.index(p[0][0]), p[0][1]))
    )


# What there is to win -------------------------------------------------------------------------------------------------


class _Gain:
    """What averaging with many gains over gossip in one configuration, paired by seed."""

    def __init__(self, at: Configuration, method: str, metric: str, values: list[float]) -> None:
        self.at, self.method, self.metric = at, method, metric
        self.estimate = estimate(values)
        self.points = self.estimate.mean

    def __str__(self) -> str:
        error = self.estimate.standard_error
        return f"{self.points:+.2f}" + (f" ± {error:.2f}" if error is not None else "")


def _gains(ours: ResultSet) -> Iterator[_Gain]:
    for at in ours.configurations:
        for method in UPPER:
            for metric in _MEASURES:
                if gains := ours.paired(at, method, "rg", metric):
                    yield _Gain(at, method, metric, [100 * gain for gain in gains])


def headroom_sheet(findings: Findings) -> Sheet | None:
    """Averaging with many minus gossip, a row per configuration."""
    gains = {(g.at, g.method, g.metric): str(g) for g in _gains(findings.ours)}
    if not gains:
        return None
    columns = [(m, k) for m in UPPER for k in _MEASURES if any(key[1:] == (m, k) for key in gains)]
    rows = [[str(at), *(gains.get((at, *c), "") for c in columns)] for at in dict.fromkeys(key[0] for key in gains)]
    note = (
        "Points over gossip, which moves one model a round; D-PSGD moves one from every neighbour, Average one from "
        "everybody. One pull is not expected to give what all of them together do not. ±: standard error over seeds."
    )
    heads = ["world", *(f"{show_method(m)}, {_MEASURES[k]}" for m, k in columns)]
    return Sheet("Is there anything to win?", heads, rows, note)
