"""The folder a study writes: tables, figures, claims and cells as files, and one HTML page with everything in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ..runs.files import csv_text
from .account import WORDS, comparisons_csv, primary_lines, sheets
from .account import to_markdown as to_account
from .answer import by_one_run, count
from .canvas import inline
from .claims import RULE, Finding, Verdict
from .collect import write_records
from .comparing import compare
from .judging import Judged
from .render import blocks, to_csv, to_latex, to_markdown
from .sweeps import SweepRow, write_sweeps

if TYPE_CHECKING:
    from .design import Findings


def write_report(findings: Findings, out: Path) -> Path:
    """Tables, figures, claims, cells and the page into a folder; returns the page."""
    for folder in (out, out / "tables", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
    for table in findings.tables:
        for ending, text in (("md", to_markdown(table)), ("tex", to_latex(table)), ("csv", to_csv(table))):
            (out / "tables" / f"{table.name}.{ending}").write_text(text, encoding="utf-8")
    for drawn in findings.figures:
        drawn.write(out / "figures")
    if findings.design.trial is not None:
        (out / "README.md").write_text(to_account(findings), encoding="utf-8")
        comparisons = comparisons_csv(compare(findings.records, findings.trial), findings.trial)
        (out / "comparisons.csv").write_text(comparisons, encoding="utf-8")
    if findings.design.source:
        (out / "study.toml").write_text(findings.design.source, encoding="utf-8")
    if findings.judged:
        (out / "claims.md").write_text(claims_markdown(findings), encoding="utf-8")
        (out / "claims.csv").write_text(claims_csv(findings.judged), encoding="utf-8")
    if findings.records:
        write_records(out / "cells.csv", findings.records)
        if findings.design.sweeps:
            write_sweeps(out / "sweeps.csv", findings.sweeps)
        study = {"provenance": findings.provenance, "scale": findings.scale, "left_out": findings.notes}
        (out / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    (out / "report.html").write_text(to_page(findings), encoding="utf-8")
    return out / "report.html"


# The page -----------------------------------------------------------------------------------------------------------


def to_page(findings: Findings) -> str:
    """One HTML file with everything in it, for light and dark screens, without a network."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("sagefl.study"),
        autoescape=True,
        trim_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html").render(
        title=findings.design.title,
        primary=[] if findings.design.trial is None else [_plain(line) for line in primary_lines(findings)],
        sheets=[] if findings.design.trial is None else list(sheets(findings)),
        plain=_plain,
        words=WORDS,
        counted=list(counted(findings)),
        answer=findings.answer,
        opening=findings.opening,
        measured=bool(findings.records),
        published=bool(findings.published),
        scale=findings.scale,
        notes=findings.notes,
        provenance=findings.provenance,
        judged=findings.judged,
        rule=RULE,
        tables=findings.tables,
        figures=findings.figures,
        sweeps=list(_sweeps(findings.sweeps)),
        swept=findings.design.sweeps,
        sweep_heads=(*_SHARES, *_COSTS),
        replayed=len({row.digest for row in findings.sweeps}),
        pages=findings.pages,
        blocks=blocks,
        inline=inline,
        tone=lambda finding: _TONES.get(finding.verdict, "other"),
    )


def counted(findings: Findings) -> Iterator[str]:
    """Verdicts in numbers, a sentence for published tables and one for runs, where there are any."""
    if findings.published:
        yield f"By the paper's own tables: {count([j.tables for j in findings.judged])}."
    if findings.records:
        yield f"By these runs: {count([j.runs for j in findings.judged])}."
        yield by_one_run(findings)


def _plain(text: str) -> str:
    """Without Markdown's marks."""
    return text.replace("**", "").replace("`", "").replace("*", "")


_TONES = {  # the class of a verdict's colour
    **dict.fromkeys((Verdict.SUPPORTED, Verdict.HOLDS, Verdict.REPRODUCED, Verdict.SO_HERE), "good"),
    **dict.fromkeys((Verdict.CONTRADICTED, Verdict.FAILS, Verdict.NOT_REPRODUCED, Verdict.NOT_HERE), "bad"),
    **dict.fromkeys((Verdict.UNDECIDED, Verdict.OPEN), "open"),
}


_SHARES = {  # head -> what is shown of a row, in per cent
    "covered": lambda r: r.covered,
    "certified": lambda r: r.certified,
    "cost": lambda r: r.cost,
    "exhausted": lambda r: r.exhausted,
    "no anchors": lambda r: r.no_anchors,
    "evidence": lambda r: r.budget,
}
_COSTS = {
    "evaluations": lambda r: r.evaluations,
    "probe kB": lambda r: r.probe_bytes / 1e3,
    "probe ms": lambda r: r.probe_seconds * 1e3,
}


def _sweeps(rows: Sequence[SweepRow]) -> Iterator[tuple[str, str, list[str]]]:
    """Option, value and means over cells."""
    for sweep, value in dict.fromkeys((r.sweep, r.value) for r in rows):
        of = [r for r in rows if (r.sweep, r.value) == (sweep, value)]
        shares = [f"{fmean(map(read, of)):.1%}" for read in _SHARES.values()]
        yield sweep, value, shares + [f"{fmean(map(read, of)):.1f}" for read in _COSTS.values()]


# The claims as text -------------------------------------------------------------------------------------------------


def claims_markdown(findings: Findings) -> str:
    """The claims as a Markdown page."""
    opening = [f"{n}. {line}" for n, line in enumerate(findings.answer, start=1)] or list(counted(findings))
    out = ["# Claims", "", *opening, "", RULE, ""]
    for j in findings.judged:
        out += [f"## {j.claim.id}", "", f"> {j.claim.quote}", "", j.claim.where, ""]
        out += [f"- By its tables: {j.tables}"] if findings.published else []
        out += [f"- By one run a cell: {j.printed}", f"- Over seeds: {_seeds(j)}"] if findings.records else []
        out.append("")
    return "\n".join(out)


def _seeds(j: Judged) -> str:
    """What the runs say over seeds; its numbers only where they are others than those of one run a cell."""
    return j.runs.short if j.runs.detail == j.printed.detail else str(j.runs)


def claims_csv(judged: Sequence[Judged]) -> str:
    """One line per claim."""
    parts = ("", "_leans", "_detail", "_scope")
    heads = [f"{by}{part}" for by in ("runs", "printed") for part in parts]
    rows: list[tuple[str, ...]] = [("id", "where", "quote", "tables", "tables_detail", *heads)]
    for j in judged:
        tables = (j.tables.verdict.value, j.tables.detail)
        rows.append((j.claim.id, j.claim.where, j.claim.quote, *tables, *_columns(j.runs), *_columns(j.printed)))
    return csv_text(rows)


def _columns(finding: Finding) -> tuple[str, str, str, str]:
    leans = "" if finding.leans is None else "for" if finding.leans else "against"
    return finding.verdict.value, leans, finding.detail, finding.scope
