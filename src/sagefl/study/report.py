"""The report: one HTML file with everything in it, for light and dark screens, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import fmean

from .canvas import Drawn, inline
from .claims import RULE, Finding, Judged, Verdict
from .render import to_html
from .sweeps import SweepRow
from .tables import Table

__all__ = ["Report", "claims_csv", "claims_markdown", "count", "to_page"]

_CSS = """
:root { --paper: #fdfdfb; --ink: #1a1a2e; --muted: #6b6b7b; --line: #dcdce4; --card: #f4f4f0;
  --good: #00694d; --bad: #b23c00; --open: #6b5b00; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --paper: #15161c; --ink: #ececf1; --muted: #9a9aab; --line: #33343f;
  --card: #1d1e26; --good: #4fd1a5; --bad: #ff9466; --open: #e6cf5a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
nav a { margin-right: 1rem; } a { color: inherit; }
.note { background: var(--card); border-left: 4px solid var(--open); padding: .6rem 1rem; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: .82rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .18rem .55rem; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; } thead th { border-bottom: 1px solid var(--muted); text-align: right; }
thead th:nth-child(-n+3) { text-align: left; } summary { cursor: pointer; }
tr.first td, tr.first th { border-top: 1px solid var(--line); }
tr.published td, tr.published th { color: var(--muted); }
tr.mean td, tr.mean th { background: var(--card); }
figure { margin: 1.5rem 0; } figure svg { width: 100%; height: auto; }
figcaption { color: var(--muted); font-size: .9rem; max-width: 62rem; }
.claim { border-top: 1px solid var(--line); padding: .7rem 0; display: grid; gap: .2rem 1.5rem;
  grid-template-columns: minmax(16rem, 1fr) minmax(18rem, 1.3fr); }
.claim q { font-style: italic; } .claim small, .claim code { color: var(--muted); }
.claim p { margin: 0 0 .3rem; font-size: .88rem; overflow-wrap: anywhere; }
b.supported, b.holds { color: var(--good); } b.contradicted, b.fails { color: var(--bad); }
b.undecided { color: var(--open); } b.other { color: var(--muted); }
pre { background: var(--card); padding: .8rem; overflow-x: auto; }
@media (max-width: 46rem) { .claim { grid-template-columns: 1fr; } }
"""


@dataclass(frozen=True)
class Report:
    """What a report is made of."""

    title: str
    scale: Sequence[str]  # what was run, beside what the paper prints
    provenance: Sequence[str]  # commands and environment
    judged: Sequence[Judged]
    tables: Sequence[Table]
    figures: Sequence[Drawn]
    sweeps: Sequence[SweepRow] = ()
    notes: Sequence[str] = ()  # cells missing or failed
    measured: bool = True
    pages: Mapping[str, str] = field(default_factory=dict)  # frozen views of the runs: title -> file beside the report


def to_page(report: Report) -> str:
    """The whole page."""
    parts = [
        f"<h1>{escape(report.title)}</h1>",
        _summary(report),
        '<nav><a href="#claims">Claims</a><a href="#tables">Tables</a><a href="#figures">Figures</a>'
        + ('<a href="#sweeps">Sweeps</a>' if report.sweeps else "")
        + '<a href="#how">How</a></nav>',
        '<h2 id="claims">Claims</h2>',
        _glance(report.judged, measured=report.measured),
        *(_claim(j, measured=report.measured) for j in report.judged),
        '<h2 id="tables">Tables</h2>',
        *(to_html(table) for table in report.tables),
        '<h2 id="figures">Figures</h2>',
        *(_figure(drawn) for drawn in report.figures),
        _sweeps(report.sweeps),
        '<h2 id="how">How this was made</h2>',
        f"<p>The rule by which claims are judged. {escape(RULE)}</p>",
        f"<pre>{escape(chr(10).join(report.provenance))}</pre>",
        "<p>Everything above is computed from <code>cells.csv</code> and <code>sweeps.csv</code> beside this file and "
        "the published tables shipped with sagefl; <code>sagefl study paper --from FOLDER --out FOLDER</code> builds "
        "it again.</p>",
        _runs(report.pages) if report.measured else "",
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_CSS}</style></head>"
    )
    return f"{head}<body>{chr(10).join(p for p in parts if p)}</body></html>\n"


def count(findings: Sequence[Finding]) -> str:
    """Verdicts in numbers."""
    counted = Counter(f.verdict for f in findings)
    return ", ".join(f"{counted[v]} {v}" for v in Verdict if counted[v])


def _summary(report: Report) -> str:
    lines = [f"By the paper's own tables: {count([j.tables for j in report.judged])}."]
    if report.measured:
        lines.append(f"By these runs: {count([j.runs for j in report.judged])}.")
    scale = "".join(f"<li>{escape(line)}</li>" for line in report.scale)
    notes = "".join(f"<li>{escape(line)}</li>" for line in report.notes)
    return (
        f"<p>{'<br>'.join(escape(line) for line in lines)}</p>"
        + (
            f'<div class="note"><p>Scale. Every number of ours is about this, not about more:</p><ul>{scale}</ul></div>'
            if scale
            else ""
        )
        + (f"<div><p>Left out:</p><ul>{notes}</ul></div>" if notes else "")
    )


def _glance(judged: Sequence[Judged], *, measured: bool) -> str:
    """All verdicts in one list, folded away."""
    rows = []
    for j in judged:
        link = f'<th><a href="#claim-{escape(j.claim.id)}">{escape(j.claim.id)}</a></th>'
        findings = [j.tables, j.runs] if measured else [j.tables]
        verdicts = "".join(f'<th><b class="{_tone(f)}">{escape(f.short)}</b></th>' for f in findings)
        rows.append(f"<tr>{link}{verdicts}</tr>")
    heads = "<th>claim</th><th>by its own tables</th>" + ("<th>by these runs</th>" if measured else "")
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return (
        f'<details><summary>All verdicts at a glance</summary><div class="wide"><table>{body}</table></div></details>'
    )


def _claim(judged: Judged, *, measured: bool) -> str:
    claim = judged.claim
    sides = [f"<p>by its tables: {_verdict(judged.tables)}</p>"]
    if measured:
        sides.append(f"<p>by these runs: {_verdict(judged.runs)}</p>")
    where = f"<small>{escape(claim.where)}</small> <code>{escape(claim.id)}</code>"
    words = f"<div><q>{escape(claim.quote)}</q><br>{where}</div>"
    return f'<div class="claim" id="claim-{escape(claim.id)}">{words}<div>{"".join(sides)}</div></div>'


def _verdict(finding: Finding) -> str:
    scope = f" <small>[{escape(finding.scope)}]</small>" if finding.scope else ""
    return f'<b class="{_tone(finding)}">{escape(finding.short)}</b>: {escape(finding.detail)}{scope}'


def _tone(finding: Finding) -> str:
    tone = finding.verdict.split()[0]
    return tone if tone in ("supported", "holds", "contradicted", "fails", "undecided") else "other"


def _figure(drawn: Drawn) -> str:
    caption = f"<b>{escape(drawn.title)}.</b> {escape(drawn.caption)}"
    return f"<figure>{inline(drawn)}<figcaption>{caption}</figcaption></figure>"


def _runs(pages: Mapping[str, str]) -> str:
    """Where the runs themselves can be seen."""
    if not pages:
        return (
            "<p>The runs themselves, round by round and decision by decision: <code>sagefl report CELLS -o runs.html"
            "</code> freezes them into one page, <code>sagefl view CELLS</code> shows them live.</p>"
        )
    links = ", ".join(f'<a href="{escape(file)}">{escape(title)}</a>' for title, file in pages.items())
    return f"<p>The runs themselves, round by round and decision by decision (first seed): {links}.</p>"


def _sweeps(rows: Sequence[SweepRow]) -> str:
    if not rows:
        return ""
    heads = ("option", "value", "covered", "certified", "cost", "exhausted", "no anchors", "evidence", "evaluations",
             "probe kB", "probe ms")  # fmt: skip
    body = []
    for sweep, value in dict.fromkeys((r.sweep, r.value) for r in rows):
        of = [r for r in rows if (r.sweep, r.value) == (sweep, value)]
        shares = [
            fmean(x)
            for x in zip(
                *((r.covered, r.certified, r.cost, r.exhausted, r.no_anchors, r.budget) for r in of), strict=True
            )
        ]
        costs = [
            fmean(x)
            for x in zip(*((r.evaluations, r.probe_bytes / 1e3, r.probe_seconds * 1e3) for r in of), strict=True)
        ]
        cells = [*(f"{v:.1%}" for v in shares), *(f"{v:.1f}" for v in costs)]
        body.append(
            f"<tr><th>{escape(sweep)}</th><th>{escape(value)}</th>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"
        )
    cells_used = len({r.digest for r in rows})
    return (
        f'<h2 id="sweeps">Sweeps by replay</h2><p>SAGE-OS on the losses recorded by {cells_used} AQ-128 cell(s), one '
        "option at a time, means over cells. Per decision; bytes and seconds per evaluation are those of the recorded "
        'run.</p><div class="wide"><table><thead><tr>'
        + "".join(f"<th>{h}</th>" for h in heads)
        + f"</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


# The claims as text -------------------------------------------------------------------------------------------------


def claims_markdown(judged: Sequence[Judged], *, measured: bool) -> str:
    """The claims as a Markdown page."""
    out = ["# Claims", "", f"By the paper's own tables: {count([j.tables for j in judged])}."]
    if measured:
        out.append(f"By these runs: {count([j.runs for j in judged])}.")
    out += ["", RULE, ""]
    for j in judged:
        out += [
            f"## {j.claim.id}",
            "",
            f"> {j.claim.quote}",
            "",
            f"{j.claim.where}",
            "",
            f"- By its tables: {j.tables}",
        ]
        out += [f"- By these runs: {j.runs}"] if measured else []
        out.append("")
    return "\n".join(out)


def claims_csv(judged: Sequence[Judged]) -> str:
    """One line per claim."""
    import csv
    import io

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
