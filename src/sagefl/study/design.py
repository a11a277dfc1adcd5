"""A study as data: which runs it consists of, what is asked of them, and what is written about the answer.

A `Design` is all that tells one study from another. `Design.read` makes one of a file (`spec`); the paper's has claims,
too (`paper`). `Findings` is what a study comes to: the records of its cells, and
everything that follows from them, computed when it is first asked for.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .account import Sheet, draw_gains, draw_price, layouts
from .claims import Claim
from .collect import Record, changed_parts
from .comparing import with_both
from .errors import StudyError
from .figures import CHARTS
from .judging import Judged, judge
from .matrix import Cell, scale_of
from .published import STAND_INS, as_large_as_printed
from .recalling import gather, newest
from .report import write_report
from .results import ResultSet
from .spec import Trial, read_spec
from .sweeps import SweepRow, read_sweeps
from .tables import TABLES, Layout, Table, build_tables

if TYPE_CHECKING:
    from .canvas import Drawn

Chart = Callable[["Findings"], "Drawn | None"]
"""Draws one figure, or returns None where the findings do not hold what it needs."""


@dataclass(frozen=True)
class Design:
    """What a study runs, what it asks, and what it writes."""

    name: str  # of its folder under results/
    title: str
    cells: Sequence[Cell] = ()  # in the order in which they are run
    claims: Sequence[Claim] = ()  # each gets a verdict
    tables: Sequence[Layout] = TABLES
    charts: Sequence[Chart] = CHARTS
    trial: Trial | None = None  # methods that are compared with one of them
    published: Callable[[], ResultSet] = ResultSet  # what stands beside the runs
    answer: Callable[[Findings], Sequence[str]] | None = None  # the lines that open the report
    opening: Callable[[Findings], Sheet | None] | None = None  # the table after them
    scale: Sequence[str] = ()  # what to say about the scale beside what was run
    sweeps: bool = False  # whether recorded losses are replayed under other options
    small: bool = False  # whether cells are small enough to run several at a time by default
    keeps: bool = False  # whether a cells.csv that holds more cells than this study has is left alone
    source: str = ""  # the text of its file

    @classmethod
    def read(
        cls,
        source: Path | str,
        preset: str | None = None,
        *,
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (),
        first: int | None = None,
        overrides: Mapping[str, Any] | None = None,
        **axes: Sequence[Any],
    ) -> Design:
        """A study of a TOML file, or one that comes with sagefl by name, at the scale of a preset.

        `first` takes only the first so many methods; `+ID` in `methods` adds to those of the file. `axes` are other
        `datasets`, `topologies` or `alphas` of its grid; `overrides` are config keys that win over the file's. Stages
        of the file say what comes first; with methods or seeds of the caller's, the matrix alone is run.
        """
        spec, text, name = read_spec(source, preset)
        spec = spec.narrowed(**axes)
        added = [m[1:] for m in methods if m.startswith("+")]
        chosen = [m for m in methods if not m.startswith("+")] or list(spec.methods[:first])
        if chosen != list(spec.methods) or seeds:
            cells = spec.cells(list(dict.fromkeys([*chosen, *added])), seeds, overrides)
        else:
            cells = spec.staged(added, overrides)
        trial = spec.trial()
        if trial is not None and (added or chosen != list(spec.methods[: len(chosen)])):
            trial = replace(trial, methods=tuple(dict.fromkeys([*trial.methods, *chosen, *added])))
        made = cls(name, spec.title, cells, small=spec.small, source=text)
        if trial is None:
            return made
        return replace(made, trial=trial, tables=layouts(trial), charts=(draw_gains, draw_price), keeps=True)


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
        records = newest(r for some in gather(folders).values() for r in some)
        sweeps = {row.key: row for folder in folders for row in read_sweeps(folder / "sweeps.csv")}
        if not records:
            raise StudyError(f"no finished cells in {', '.join(map(str, folders))}")
        origins = [line for folder in folders for line in _provenance(folder)]
        return cls(design, records, list(sweeps.values()), provenance=origins or made_by(command))

    @cached_property
    def ours(self) -> ResultSet:
        """The records as results."""
        return _results(self.records)

    @property
    def trial(self) -> Trial:
        """What was compared."""
        assert self.design.trial is not None, f"{self.design.name} compares nothing"
        return self.design.trial

    @cached_property
    def published(self) -> ResultSet:
        """What stands beside them."""
        return self.design.published()

    @cached_property
    def large(self) -> ResultSet:
        """Those that were run at the scale of what stands beside them."""
        return _results([r for r in self.records if not self.published or as_large_as_printed(r.config)])

    @cached_property
    def judged(self) -> list[Judged]:
        """A verdict on every claim."""
        return judge(self.design.claims, self.published, self.ours or None, large=self.large)

    @cached_property
    def answer(self) -> list[str]:
        """The lines that open the report; none where the design has none."""
        return list(self.design.answer(self)) if self.design.answer else []

    @cached_property
    def opening(self) -> Sheet | None:
        """The table after them."""
        return self.design.opening(self) if self.design.opening else None

    @cached_property
    def tables(self) -> list[Table]:
        """The tables that have anything in them."""
        made = build_tables(self.ours, self.published, self.design.tables)
        return [replace(table, caption=" ".join([table.caption, *map(_sentence, self.coarse)])) for table in made]

    @cached_property
    def coarse(self) -> list[str]:
        """Where models were computed in bfloat16, in a line; nothing where none was."""
        where = dict.fromkeys(str(r.configuration) for r in self.records if r.config.training.precision != "float32")
        return [f"computed in bfloat16: {', '.join(where)}"] if where else []

    @cached_property
    def figures(self) -> list[Drawn]:
        """The figures that these findings allow."""
        return [drawn for chart in self.design.charts if (drawn := chart(self)) is not None]

    @cached_property
    def scale(self) -> list[str]:
        """What was run, a line per data set; nothing where nothing was."""
        if not self.records:
            return []
        there = {r.configuration.dataset for r in self.records} if self.published else set()
        beside = [f"{ours} stands beside the paper's {theirs}" for ours, theirs in STAND_INS.items() if ours in there]
        return [*scale_of([r.config for r in self.records]), *beside, *self.design.scale, *self.outdated]

    @cached_property
    def outdated(self) -> list[str]:
        """Which cells were made before the code behind them changed, in a line; nothing where none was."""
        old = [r for r in self.records if r.changed]
        return [f"{len(old)} of {len(self.records)} cells made before {changed_parts(old)} changed"] if old else []

    def write(self, out: Path) -> Path:
        """Everything into a folder; returns the file to open first."""
        return write_report(self, out)


def _results(records: Sequence[Record]) -> ResultSet:
    return ResultSet(replace(r.result, values=with_both(r.values)) for r in records)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


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
