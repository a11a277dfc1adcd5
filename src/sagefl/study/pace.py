"""How far a study is: cells done, running and left, and about how much longer it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .matrix import Cell
from .runner import Failure, done


class Pace:
    """A watcher that only counts. The time left is estimated from the work done since the start, not from cells."""

    def __init__(self, cells: Sequence[Cell], folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = len(cells)
        self._clock, self._began = clock, clock()
        self._left = {c.name: c.work for c in cells if not done(c, folder)}
        self.before = self.total - len(self._left)
        self.finished_now = 0
        self.failures: list[Failure] = []
        self.running: dict[str, float] = {}  # share done of each cell under way
        self._resumed: dict[str, float] = {}  # share that was there when it was started
        self._worked = 0.0

    @property
    def done(self) -> int:
        """Cells with an end result."""
        return self.before + self.finished_now

    @property
    def left(self) -> int:
        """Cells that nobody has begun."""
        return self.total - self.done - len(self.running) - len(self.failures)

    @property
    def seconds_left(self) -> float | None:
        """Roughly how long it still takes; None before there is anything to go by."""
        under_way = sum((share - self._resumed.get(n, share)) * self._left[n] for n, share in self.running.items())
        worked = self._worked + under_way
        if worked <= 0:
            return None
        open_work = sum(work * (1 - self.running.get(name, 0.0)) for name, work in self._left.items())
        return open_work * (self._clock() - self._began) / worked

    def started(self, cell: Cell) -> None:
        """A cell has begun."""
        self.running[cell.name] = 0.0

    def round(self, cell: Cell, rounds: int) -> None:
        """It has done this many rounds."""
        share = rounds / cell.config.rounds
        self._resumed.setdefault(cell.name, share)
        self.running[cell.name] = share

    def finished(self, cell: Cell, seconds: float) -> None:
        """A cell is done."""
        self._worked += self._left.pop(cell.name, 0.0) * (1 - self._resumed.get(cell.name, 0.0))
        self.running.pop(cell.name, None)
        self.finished_now += 1

    def failed(self, failure: Failure) -> None:
        """It cannot be finished."""
        self._left.pop(failure.cell.name, None)
        self.running.pop(failure.cell.name, None)
        self.failures.append(failure)

    def line(self) -> str:
        """How far it is, in one line."""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"{self.done} of {self.total} cells done, {len(self.running)} running, {self.left} left{failed}, {self.eta}"
        )

    @property
    def eta(self) -> str:
        """The time left in words."""
        seconds = self.seconds_left
        if seconds is None:
            return "time left unknown yet"
        if seconds < 90:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / 60:.0f} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"
