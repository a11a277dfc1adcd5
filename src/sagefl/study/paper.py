"""The study of the paper put together: judge, tabulate, draw and write, from records or from the tables alone."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import __version__
from .claims import Judged, judge
from .collect import Record, read_records, results_of, write_records
from .figures import build_figures
from .matrix import Cell, StudyError, scale_of
from .published import published
from .render import to_csv, to_latex, to_markdown
from .report import Report, claims_csv, claims_markdown, to_page
from .results import Results
from .runner import Failure
from .statements import STATEMENTS
from .sweeps import SweepRow, read_sweeps, write_sweeps
from .tables import Table, build_tables

__all__ = ["Findings", "audit", "environment", "find", "left_out", "merge", "write"]

TITLE = "Does the paper hold? SAGE: Optimal-Stopping Peer Selection for Decentralised Federated Learning"


@dataclass(frozen=True)
class Findings:
    """Everything a study found, before it is drawn or written."""

    ours: Results
    judged: list[Judged]
    tables: list[Table]
    scale: list[str]
    records: Sequence[Record] = ()
    sweeps: Sequence[SweepRow] = ()
    provenance: Sequence[str] = ()  # of studies that were merged


def audit() -> Findings:
    """The paper by its own tables alone."""
    theirs = published()
    return Findings(Results(), judge(STATEMENTS, theirs, None), build_tables(Results(), theirs), [])


def find(records: Sequence[Record], sweeps: Sequence[SweepRow] = ()) -> Findings:
    """What finished cells say."""
    ours, theirs = results_of(records), published()
    tables = build_tables(ours, theirs)
    return Findings(
        ours, judge(STATEMENTS, theirs, ours), tables, scale_of([r.config for r in records]), records, sweeps
    )


def merge(folders: Sequence[Path]) -> Findings:
    """One study from the ``cells.csv`` and ``sweeps.csv`` of several; each cell once."""
    records = {(r.configuration, r.config.digest): r for folder in folders for r in read_records(folder / "cells.csv")}
    sweeps = {row.key: row for folder in folders for row in read_sweeps(folder / "sweeps.csv")}
    if not records:
        raise StudyError(f"no finished cells in {', '.join(map(str, folders))}")
    origins = [line for folder in folders for line in _origin(folder)]
    return replace(find(list(records.values()), list(sweeps.values())), provenance=origins)


def environment() -> str:
    """What a study is carried out on; results are bit-identical on one kind of CPU and one torch build only."""
    found = [f"sagefl {__version__}", f"Python {platform.python_version()}"]
    with suppress(PackageNotFoundError):
        found.append(f"torch {version('torch')}")
    return ", ".join([*found, f"{platform.system()} {platform.machine()}", f"{os.cpu_count()} cores"])


def _origin(folder: Path) -> list[str]:
    path = folder / "study.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["provenance"]) if path.is_file() else []


def left_out(missing: dict[str, tuple[str, list[Cell]]], failures: Sequence[Failure], unfinished: int) -> list[str]:
    """What is not in the study and why, a line each; missing data sets name their cells."""
    lines = []
    for dataset, (_, cells) in missing.items():
        worlds = ", ".join(dict.fromkeys(f"{c.configuration} seed {c.seed}" for c in cells))
        methods = ", ".join(dict.fromkeys(c.method for c in cells))
        lines.append(f"{dataset} is not on this machine: {len(cells)} cells left out ({worlds}; each with {methods})")
    lines += [f"{f.cell.name} failed: {f.why}" for f in failures]
    if unfinished:
        lines.append(f"{unfinished} cells are not finished")
    return lines


def write(
    out: Path, findings: Findings, command: str, notes: Sequence[str] = (), pages: Mapping[str, str] | None = None
) -> Path:
    """Tables, figures, claims, cells and the report into a folder; returns the report, which links `pages`."""
    for folder in (out, out / "tables", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
    for table in findings.tables:
        for ending, text in (("md", to_markdown(table)), ("tex", to_latex(table)), ("csv", to_csv(table))):
            (out / "tables" / f"{table.name}.{ending}").write_text(text, encoding="utf-8")
    figures = build_figures(findings.ours, published(), findings.sweeps)
    for drawn in figures:
        (out / "figures" / f"{drawn.name}.svg").write_text(drawn.svg, encoding="utf-8")
        (out / "figures" / f"{drawn.name}.png").write_bytes(drawn.png)
    measured = bool(findings.ours)
    (out / "claims.md").write_text(claims_markdown(findings.judged, measured=measured), encoding="utf-8")
    (out / "claims.csv").write_text(claims_csv(findings.judged), encoding="utf-8")
    provenance = list(findings.provenance) or [command, f"# {environment()}"]
    if measured:
        write_records(out / "cells.csv", findings.records)
        write_sweeps(out / "sweeps.csv", findings.sweeps)
        study = {"provenance": provenance, "scale": findings.scale, "left_out": list(notes)}
        (out / "study.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    report = Report(
        TITLE,
        findings.scale,
        provenance,
        findings.judged,
        findings.tables,
        figures,
        findings.sweeps,
        notes,
        measured,
        pages or {},
    )
    (out / "report.html").write_text(to_page(report), encoding="utf-8")
    return out / "report.html"
