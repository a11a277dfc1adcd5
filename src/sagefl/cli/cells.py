"""What the commands of `sagefl study` share: how cells are run, followed and listed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import table

if TYPE_CHECKING:
    from rich.console import Console

    from ..study.matrix import Cell
    from ..study.pace import Pace
    from ..study.runner import Failure
    from ..study.study import Study


def command_line() -> str:
    """What was typed."""
    return shlex.join(["sagefl", *sys.argv[1:]])


def carry_out(study: Study, screen: Console, *, quiet: bool, **how: Any) -> None:
    """Run what is not done yet and show how far it is; data sets that are missing are named first."""
    for absence in study.absent():
        screen.print(f"{absence}.\nWays to get it:\n{absence.ways}")
    if old := study.outdated():
        from ..study.collect import changed_parts

        screen.print(f"{len(old)} known cells made before {changed_parts(old)} changed: run again, their rows replaced")
    with Progress(screen, study.folder, quiet=quiet) as progress:
        study.run(watch=progress.follow, **how)


class Progress:
    """Shows how far a study is: one live line on a terminal, a line per cell elsewhere."""

    pace: Pace

    def __init__(self, screen: Console, folder: Path, *, quiet: bool) -> None:
        from rich.live import Live

        self.screen, self.folder, self.quiet = screen, folder, quiet
        shown = screen.is_terminal and not quiet
        self._live = Live(console=screen, refresh_per_second=4, transient=True) if shown else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def follow(self, pace: Pace) -> Progress:
        """Begin to show the study's pace."""
        self.pace = pace
        if not self.quiet:
            self.screen.print(f"{pace.total} cells, {pace.before} done already, in {self.folder}")
        if self._live is not None:
            self._live.start()
        return self

    def started(self, cell: Cell) -> None:
        """A cell has begun."""
        self.pace.started(cell)
        self._refresh()

    def round(self, cell: Cell, rounds: int) -> None:
        """It has done this many rounds."""
        self.pace.round(cell, rounds)
        self._refresh()

    def finished(self, cell: Cell, seconds: float) -> None:
        """A cell is done."""
        self.pace.finished(cell, seconds)
        if not self.quiet:
            self.screen.print(f"{cell.name}: {seconds:.0f} s; {self.pace.line()}")
        self._refresh()

    def failed(self, failure: Failure) -> None:
        """It cannot be finished."""
        self.pace.failed(failure)
        self.screen.print(f"{failure.cell.name} FAILED: {failure.why}; {self.pace.line()}")

    def _refresh(self) -> None:
        if self._live is not None:
            running = "".join(f"\n  {name} {share:.0%}" for name, share in self.pace.running.items())
            self._live.update(f"{self.pace.line()}{running}")


def show_status(study: Study, screen: Console) -> None:
    """Every cell and how it stands."""
    from ..study.study import State

    states = study.status()
    rows = [
        (*cell.configuration.keys, cell.method, str(cell.seed), state, cell.config.digest) for cell, state in states
    ]
    named = any(cell.configuration.world for cell, _ in states)
    heads = (*(("world",) if named else ("dataset", "topology", "alpha")), "method", "seed", "state", "cell")
    screen.print(table(heads, rows, left=("world", "dataset", "topology", "method", "state", "cell")))
    finished = sum(state in (State.DONE, State.KNOWN) for _, state in states)
    left = len(states) - finished
    screen.print(f"\n{finished} of {len(states)} cells done, {left} left, in {study.folder}")
