"""`Study(design).run().report()`: plan, run, collect and report, whatever the design asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..data import FileDataset, datasets
from ..runs.config import Execution
from .collect import Record, collect, differ, read_records
from .design import Design, Findings, made_by
from .distributed import run_cells_on_ray
from .errors import InterruptedStudyError, StudyError
from .matrix import Cell
from .pace import Pace
from .recalling import Kept, recall
from .runner import Failure, Watcher, done, run_cells
from .sweeps import read_sweeps, run_sweeps


class State(StrEnum):
    """How a cell stands."""

    DONE = "done"
    KNOWN = "known"
    OUTDATED = "outdated"
    NO_DATA = "no data"
    BEGUN = "begun"
    NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Absence:
    """A data set that is not on this machine, and the cells that need it."""

    dataset: str
    ways: str  # to get it
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        worlds = ", ".join(dict.fromkeys(f"{c.configuration} seed {c.seed}" for c in self.cells))
        methods = ", ".join(dict.fromkeys(c.method for c in self.cells))
        return (
            f"{self.dataset} is not on this machine: {len(self.cells)} cells left out ({worlds}; each with {methods})"
        )


def absent(cells: Sequence[Cell]) -> list[Absence]:
    """The named data sets that these cells need and this machine does not have."""
    named = datasets().items()
    ways = {name: e.ways_to_get() for name, e in named if isinstance(e, FileDataset) and e.find() is None}
    needing: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.configuration.dataset in ways:
            needing.setdefault(cell.configuration.dataset, []).append(cell)
    return [Absence(name, ways[name], tuple(some)) for name, some in needing.items()]


class Study:
    """A design, the folder in which its cells are run, and the folder in which it is written up.

    `known` are folders whose `cells.csv` is trusted: cells that stand there are not run again, unless the code behind
    them has changed since. Cells are kept by the hash of their config and code and shared between studies, so a study
    that is interrupted goes on when it is run again.
    """

    def __init__(
        self,
        design: Design,
        cells: Path | str = "runs/cells",
        *,
        out: Path | str | None = None,
        known: Sequence[Path] = (),
    ) -> None:
        self.design, self.folder = design, Path(cells)
        self.out = Path("results") / design.name if out is None else Path(out)
        self.kept: Kept = recall(design.cells, known)
        self._trusted = known
        self.failures: list[Failure] = []
        self._absent: list[Absence] | None = None  # None until somebody has looked

    # How it stands --------------------------------------------------------------------------------------------------

    def status(self) -> list[tuple[Cell, State]]:
        """Every cell and how it stands."""
        without_data = {cell.config.digest for absence in absent(self.design.cells) for cell in absence.cells}
        return [(cell, self._state(cell, without_data)) for cell in self.design.cells]

    def _state(self, cell: Cell, without_data: set[str]) -> State:
        if done(cell, self.folder):
            return State.DONE
        if cell.config.digest in self.kept.known:
            return State.KNOWN
        if cell.config.digest in without_data:
            return State.NO_DATA
        if cell.folder(self.folder).is_dir():
            return State.BEGUN
        return State.OUTDATED if cell.config.digest in self.kept.outdated else State.NOT_BEGUN

    def absent(self) -> list[Absence]:
        """The data sets that cells still to be run lack on this machine; their cells are left out."""
        if self._absent is None:
            self._absent = absent([cell for cell in self._open() if not done(cell, self.folder)])
        return self._absent

    def _open(self) -> list[Cell]:
        return [cell for cell in self.design.cells if cell.config.digest not in self.kept.known]

    def outdated(self) -> list[Record]:
        """Cells whose code has changed since they were made: they are run again, and reported until then."""
        there = self.kept.outdated
        return [there[c.config.digest] for c in self._open() if c.config.digest in there and not done(c, self.folder)]

    # Running --------------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        jobs: int | None = None,
        workers: int | None = None,
        checkpoint_every: int = 10,
        ray: bool = False,
        ray_address: str | None = None,
        watch: Callable[[Pace], Watcher] = lambda pace: pace,
    ) -> Study:
        """Run what is neither done nor known; `failures` says what could not be finished.

        `jobs` cells at a time on a core each, or one at a time on `workers` cores; the default follows the design. On
        Ray, a cell is a task. `watch` is given the study's pace and returns who is told of every step.
        """
        self._refuse_to_lose()
        execution = Execution.parse({"workers": workers, "checkpoint_every": checkpoint_every})
        lacking = {cell.config.digest for absence in self.absent() for cell in absence.cells}
        cells = [cell for cell in self._open() if cell.config.digest not in lacking]
        if lacking and not cells:
            raise StudyError("none of the study's data sets is on this machine: `sagefl data get NAME` fetches them")
        if cells:
            watcher = watch(Pace(cells, self.folder))
            try:
                if ray or ray_address is not None:
                    found = run_cells_on_ray(cells, self.folder, watcher, address=ray_address, execution=execution)
                else:
                    found = run_cells(cells, self.folder, watcher, jobs=self._jobs(jobs), execution=execution)
            except InterruptedStudyError as error:
                finished = sum(done(cell, self.folder) for cell in cells)
                raise InterruptedStudyError(f"{error}; {finished} of {len(cells)} cells are done") from None
            self.failures = found
            self._write_traces()
        return self

    def _jobs(self, asked: int | None) -> int:
        if asked is not None:
            return asked
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cores if self.design.small else 1

    def _write_traces(self) -> None:
        """Errors that nobody foresaw, with their tracebacks, into a file."""
        if traces := [f"{f.cell.name}\n{f.trace}" for f in self.failures if f.trace]:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / "failures.txt").write_text("\n".join(traces), encoding="utf-8")

    def _refuse_to_lose(self) -> None:
        """The runs behind a `cells.csv` may be gone; then it is all there is, and is never written with fewer cells."""
        path = self.out / "cells.csv"
        if not self.design.keeps or not path.is_file():
            return
        held = read_records(path)
        gone = [r for r in held if not done(Cell(r.configuration, r.method, r.config), self.folder)]
        if lost := [record for record in gone if not self.kept.accounts_for(record)]:
            raise StudyError(
                f"{path} holds {len(lost)} of {len(held)} cells that this account would drop: `--known {self.out}` "
                "goes on from those that are in the plan, another --out keeps them all"
            )

    # Reporting ------------------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """What the cells came to, in the design's order. Where a known cell was run here as well, the run counts."""
        found = self.kept.reported | {r.config.digest: r for r in collect(self.design.cells, self.folder)}
        return [found[cell.config.digest] for cell in self.design.cells if cell.config.digest in found]

    def contradicted(self) -> int:
        """How many known cells were run here as well and came out differently."""
        known = [cell for cell in self.design.cells if cell.config.digest in self.kept.known]
        return sum(differ(self.kept.known[r.config.digest], r) for r in collect(known, self.folder))

    def notes(self, finished: int) -> list[str]:
        """What is left out and why, a line each; every missing cell for one reason."""
        absences, planned = self._absent or [], len(self.design.cells)
        told = [*(failure.cell for failure in self.failures), *(cell for a in absences for cell in a.cells)]
        unfinished = planned - finished - sum(cell.config.digest not in self.kept.instead for cell in told)
        rest = [f"{unfinished} of {planned} planned cells are not finished"] if unfinished else []
        return [*map(str, absences), *map(str, self.failures), *rest, *self.kept.notes()]

    def find(self, *, sweeps: bool = True, command: str = "", pages: Mapping[str, str] | None = None) -> Findings:
        """What the finished cells say; `command` is how people can do it again, `pages` are linked in the report."""
        self._refuse_to_lose()
        records = self.records()
        notes = self.notes(len(records))
        if not records:
            raise StudyError("no cell is finished, so there is nothing to report" + "".join(f"\n{n}" for n in notes))
        rows = []
        if sweeps and self.design.sweeps:
            held = [row for folder in (self.out, *self._trusted) for row in read_sweeps(folder / "sweeps.csv")]
            rows = list(run_sweeps(self.design.cells, self.folder, held))
        provenance = made_by(command or f"Study({self.design.name!r}).run().report()")
        return Findings(self.design, records, rows, notes, provenance, pages or {})

    def report(self, *, sweeps: bool = True) -> Path:
        """Write everything into `out`; returns the file to open first."""
        return self.find(sweeps=sweeps).write(self.out)

    def first_runs(self) -> dict[str, list[Path]]:
        """The finished runs of the first seed by configuration: those worth a look one by one."""
        first = min((cell.seed for cell in self.design.cells), default=0)
        runs: dict[str, list[Path]] = {}
        for cell in self.design.cells:
            if cell.seed == first and done(cell, self.folder):
                runs.setdefault(" ".join(cell.configuration.keys), []).append(cell.folder(self.folder))
        return runs
