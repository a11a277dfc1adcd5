"""A study as data: which runs it consists of, what is asked of them, and what is written about the answer.

A `Design` is all that tells one study from another. The paper's (`paper`) and the extensions' (`beyond`) are two of
them; another one is another value of this class. `Findings` is what a study comes to: the records of its cells, and
everything that follows from them, computed when it is first asked for.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from .claims import Claim, Judged, judge
from .collect import Record, read_records
from .errors import StudyError
from .figures import CHARTS
from .matrix import Cell, scale_of
from .report import write_report
from .results import Results
from .sweeps import SweepRow, read_sweeps
from .tables import TABLES, Layout, Table, build_tables

if TYPE_CHECKING:
    from .canvas import Drawn
    from .trials import Trial

__all__ = ["Chart", "Design", "Findings", "Writer", "environment"]

Chart = Callable[["Findings"], "Drawn | None"]
"""Draws one figure, or returns None where the findings do not hold what it needs."""

Writer = Callable[["Findings", Path], Path]
"""Writes everything into a folder and returns the file to open first."""


@dataclass(frozen=True)
class Design:
    """What a study runs, what it asks, and what it writes."""

    name: str  # of its folder under results/
    title: str
    cells: Sequence[Cell] = ()  # in the order in which they are run
    claims: Sequence[Claim] = ()  # each gets a verdict
    tables: Sequence[Layout] = TABLES
    charts: Sequence[Chart] = CHARTS
    trial: Trial | None = None  # arms that are compared with a reference
    published: Callable[[], Results] = Results  # what stands beside the runs
    scale: Sequence[str] = ()  # what to say about the scale beside what was run
    sweeps: bool = False  # whether recorded losses are replayed under other options
    small: bool = False  # whether cells are small enough to run several at a time by default
    keeps: bool = False  # whether a cells.csv that holds more cells than this study has is left alone
    write: Writer = write_report


@dataclass(frozen=True)
class Findings:
    """What a study came to."""

    design: Design
    records: Sequence[Record] = ()  # of the cells that are finished
    sweeps: Sequence[SweepRow] = ()
    notes: Sequence[str] = ()  # which cells are left out, and why
    provenance: Sequence[str] = ()  # the command and the machine; of merged studies, all of them
    pages: Mapping[str, str] = field(default_factory=dict)  # pages of the runs: title -> file beside the report

    @classmethod
    def read(cls, design: Design, folders: Sequence[Path], command: str = "") -> Findings:
        """One study from the `cells.csv` and `sweeps.csv` of several folders; a cell that stands in two counts once."""
        found = [r for folder in folders for r in read_records(folder / "cells.csv")]
        records = {(r.configuration, r.config.digest): r for r in found}
        sweeps = {row.key: row for folder in folders for row in read_sweeps(folder / "sweeps.csv")}
        if not records:
            raise StudyError(f"no finished cells in {', '.join(map(str, folders))}")
        origins = [line for folder in folders for line in _provenance(folder)]
        return cls(design, list(records.values()), list(sweeps.values()), provenance=origins or made_by(command))

    @cached_property
    def ours(self) -> Results:
        """The records as results."""
        return Results(r.result for r in self.records)

    @cached_property
    def published(self) -> Results:
        """What stands beside them."""
        return self.design.published()

    @cached_property
    def judged(self) -> list[Judged]:
        """A verdict on every claim."""
        return judge(self.design.claims, self.published, self.ours or None)

    @cached_property
    def tables(self) -> list[Table]:
        """The tables that have anything in them."""
        return build_tables(self.ours, self.published, self.design.tables)

    @cached_property
    def figures(self) -> list[Drawn]:
        """The figures that these findings allow."""
        return [drawn for chart in self.design.charts if (drawn := chart(self)) is not None]

    @cached_property
    def scale(self) -> list[str]:
        """What was run, a line per data set; nothing where nothing was."""
        return [*scale_of([r.config for r in self.records]), *self.design.scale] if self.records else []

    def write(self, out: Path) -> Path:
        """Everything into a folder; returns the file to open first."""
        return self.design.write(self, out)


def made_by(command: str) -> list[str]:
    """How findings came about: the command and what it ran on."""
    return [command, f"# {environment()}"]


def environment() -> str:
    """What a study is run on; results are bit-identical on one kind of CPU and one build of torch only."""
    found = [f"sagefl {__version__}", f"Python {platform.python_version()}"]
    with suppress(PackageNotFoundError):
        found.append(f"torch {version('torch')}")
    return ", ".join([*found, f"{platform.system()} {platform.machine()}", f"{os.cpu_count()} cores"])


def _provenance(folder: Path) -> list[str]:
    path = folder / "study.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["provenance"]) if path.is_file() else []
