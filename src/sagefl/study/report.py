"""The folder a study writes: tables, figures, claims and cells as files, and one HTML page with everything in it."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from .account import WORDS, comparisons_csv, primary_lines, sheets
from .account import to_markdown as to_account
from .canvas import inline
from .claims import RULE, Finding, Judged, Verdict
from .collect import write_records
from .comparing import compare
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
        tone=_tone,
    )


def counted(findings: Findings) -> Iterator[str]:
    """Verdicts in numbers, a sentence for published tables and one for runs, where there are any."""
    if findings.published:
        yield f"By the paper's own tables: {count([j.tables for j in findings.judged])}."
    if findings.records:
        yield f"By these runs: {count([j.runs for j in findings.judged])}."


def count(findings: Sequence[Finding]) -> str:
    """Verdicts in numbers."""
    found = Counter(f.verdict for f in findings)
    return ", ".join(f"{found[v]} {v}" for v in Verdict if found[v])


def _plain(text: str) -> str:
    """Without Markdown's marks."""
    return text.replace("**", "").replace("`", "").replace("*", "")


def _tone(finding: Finding) -> str:
    tone = finding.verdict.split()[0]
    return tone if tone in ("supported", "holds", "contradicted", "fails", "undecided") else "other"


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
    out = ["# Claims", "", *counted(findings), "", RULE, ""]
    for j in findings.judged:
        out += [f"## {j.claim.id}", "", f"> {j.claim.quote}", "", j.claim.where, ""]
        out += [f"- By its tables: {j.tables}"] if findings.published else []
        out += [f"- By these runs: {j.runs}"] if findings.records else []
        out.append("")
    return "\n".join(out)


def claims_csv(judged: Sequence[Judged]) -> str:
    """One line per claim."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("id", "where", "quote", "tables", "tables_detail", "runs", "runs_leans", "runs_detail", "runs_scope")
    )
    for j in judged:
        leans = "" if j.runs.leans is None else "for" if j.runs.leans else "against"
        tables = (j.tables.verdict.value, j.tables.detail)
        runs = (j.runs.verdict.value, leans, j.runs.detail, j.runs.scope)
        writer.writerow((j.claim.id, j.claim.where, j.claim.quote, *tables, *runs))
    return text.getvalue()
