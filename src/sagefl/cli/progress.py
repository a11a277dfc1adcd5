"""How a run shows itself: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ..simulation.config import RunConfig

__all__ = ["RunProgress"]


class RunProgress:
    """A callback that prints: rounds, accuracy, evidence, time left."""

    def __init__(self, label: str, out: Console, *, quiet: bool = False) -> None:
        self.label, self.out, self.quiet = label, out, quiet
        self._evidence = self._degrees = 0
        self._accuracy = ""
        self._bar: Progress | None = None

    def start(self, config: RunConfig, first_round: int) -> None:
        """Open the bar."""
        self._rounds, self._first, self._began = config.rounds, first_round, time.monotonic()
        if self.quiet:
            return
        if first_round:
            self.out.print(f"{self.label}: going on at round {first_round + 1} of {config.rounds}")
        if self.out.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
            times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
            self._bar = Progress(*columns, *times, TextColumn("{task.fields[now]}"), console=self.out)
            self._task = self._bar.add_task(self.label, total=config.rounds, completed=first_round, now="")
            self._bar.start()

    def round(self, record: Mapping[str, Any]) -> None:
        """Move on."""
        self._evidence += record["anchor_degree"]
        self._degrees += record["degree"]
        if record.get("accuracy") is not None:
            self._accuracy = f"accuracy {record['accuracy']:.4f}  client {record['client']:.4f}"
        if self._bar is not None:
            self._bar.update(self._task, advance=1, now=self._now())
        elif not self.quiet and record.get("accuracy") is not None:
            done = record["round"] + 1
            left = (time.monotonic() - self._began) / max(done - self._first, 1) * (self._rounds - done)
            self.out.print(f"{self.label}: round {done}/{self._rounds}  {self._now()}  left {left:.0f} s")

    def end(self, summary: Mapping[str, Any]) -> None:
        """Close the bar."""
        self.close()

    def close(self) -> None:
        """Close the bar, also when the run was interrupted."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _now(self) -> str:
        budget = self._evidence / (128 * self._degrees) if self._degrees else 0.0
        return f"{self._accuracy}  evidence {budget:.1%} of budget".strip()
