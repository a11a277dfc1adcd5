"""What the commands of `sagefl study` share: finding, running and following cells."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError
from .common import fail, table

if TYPE_CHECKING:
    from rich.console import Console

    from ..study.matrix import Cell
    from ..study.pace import Pace
    from ..study.runner import Failure

__all__ = ["Progress", "Where", "carry_out", "command_line", "failed", "jobs_of", "present", "show_status"]


def jobs_of(preset: str, jobs: int | None) -> int:
    """Cells at a time: as asked, else all cores where a preset's cells are small."""
    import os

    from ..study.matrix import PRESETS

    if jobs is not None:
        return jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if PRESETS[preset].several else 1


def present(planned: Sequence[Cell], folder: Path, screen: Console) -> tuple[list[Cell], list[str]]:
    """The cells that are done or whose data is here, and a note naming the others."""
    from ..study.matrix import absent
    from ..study.paper import left_out
    from ..study.runner import done

    missing = absent([cell for cell in planned if not done(cell, folder)])
    notes = left_out(missing, [], 0)
    for note, (ways, _) in zip(notes, missing.values(), strict=True):
        screen.print(f"{note}.\nWays to get it:\n{ways}")
    without = {cell.name for _, cells in missing.values() for cell in cells}
    present = [cell for cell in planned if cell.name not in without]
    if not present:
        raise UsageError("none of the study's data sets is on this machine: `sagefl data get NAME` fetches them")
    return present, notes


class Where(NamedTuple):
    """On what cells are run."""

    jobs: int
    workers: int | None
    checkpoint_every: int
    ray: bool
    address: str | None


def carry_out(cells: Sequence[Cell], folder: Path, screen: Console, where: Where, quiet: bool) -> list[Failure]:
    """Run what is not done yet and show how far it is; returns what failed."""
    from ..runs.config import Execution, checked
    from ..study.distributed import run_cells_on_ray
    from ..study.pace import Pace
    from ..study.runner import InterruptedStudyError, run_cells

    execution = checked(Execution, {"workers": where.workers, "checkpoint_every": where.checkpoint_every})
    pace = Pace(cells, folder)
    watcher = Progress(pace, screen, quiet=quiet)
    if not quiet:
        screen.print(f"{pace.total} cells, {pace.before} done already, in {folder}")
    try:
        if where.ray:
            return run_cells_on_ray(cells, folder, watcher, address=where.address, execution=execution)
        return run_cells(cells, folder, watcher, jobs=where.jobs, execution=execution)
    except InterruptedStudyError as error:
        watcher.close()
        fail(f"{error}; {pace.done} of {pace.total} cells are done")
    finally:
        watcher.close()


def failed(failures: Sequence[Failure], out: Path) -> list[str]:
    """Notes on failed cells; traces of errors that nobody foresaw go into a file."""
    from ..study.paper import left_out

    traces = [f"{f.cell.name}\n{f.trace}" for f in failures if f.trace]
    if traces:
        out.mkdir(parents=True, exist_ok=True)
        (out / "failures.txt").write_text("\n".join(traces), encoding="utf-8")
    return left_out({}, failures, 0)


def command_line() -> str:
    """What was typed."""
    return shlex.join(["sagefl", *sys.argv[1:]])


class Progress:
    """Follows a study: one live line on a terminal, a line per cell elsewhere."""

    def __init__(self, pace: Pace, screen: Console, *, quiet: bool) -> None:
        from rich.live import Live

        self.pace, self.screen, self.quiet = pace, screen, quiet
        self._live = Live(console=screen, refresh_per_second=4, transient=True) if screen.is_terminal else None
        if self._live is not None and not quiet:
            self._live.start()

    def started(self, cell: Cell) -> None:
        """A cell is under way."""
        self.pace.started(cell)
        self._refresh()

    def round(self, cell: Cell, rounds: int) -> None:
        """It has done this many rounds."""
        self.pace.round(cell, rounds)
        self._refresh()

    def finished(self, cell: Cell, seconds: float) -> None:
        """It is done."""
        self.pace.finished(cell, seconds)
        if not self.quiet:
            self.screen.print(f"{cell.name}: {seconds:.0f} s; {self.pace.line()}")
        self._refresh()

    def failed(self, failure: Failure) -> None:
        """It is not going to be done."""
        self.pace.failed(failure)
        self.screen.print(f"{failure.cell.name} FAILED: {failure.why}; {self.pace.line()}")

    def close(self) -> None:
        """Let go of the terminal."""
        if self._live is not None:
            self._live.stop()

    def _refresh(self) -> None:
        if self._live is not None and not self.quiet:
            running = "".join(f"\n  {name} {share:.0%}" for name, share in self.pace.running.items())
            self._live.update(f"{self.pace.line()}{running}")


def show_status(planned: Sequence[Cell], folder: Path, screen: Console, known: Container[str] = ()) -> None:
    """Every cell and how it stands; those whose digest is known need no run."""
    from ..study.matrix import absent
    from ..study.runner import done

    missing = {c.name for _, cells in absent(planned).values() for c in cells}
    rows, left = [], 0
    for cell in planned:
        state = "done" if done(cell, folder) else "begun" if cell.folder(folder).is_dir() else "not begun"
        state = "no data" if cell.name in missing and state != "done" else state
        state = "known" if cell.config.digest in known and state != "done" else state
        left += state not in ("done", "known")
        rows.append((*map(str, cell.configuration), cell.method, str(cell.seed), state, cell.config.digest))
    heads = ("dataset", "topology", "alpha", "method", "seed", "state", "cell")
    screen.print(table(heads, rows, left=("dataset", "topology", "method", "state", "cell")))
    screen.print(f"\n{len(planned) - left} of {len(planned)} cells done, {left} left, in {folder}")
