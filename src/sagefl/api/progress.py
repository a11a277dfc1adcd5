"""How a run shows its progress: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..runs.columns import leading
from ..selection.theory import SCHEDULE

if TYPE_CHECKING:
    from ..runs.config import RunConfig


class RunProgress:
    """A callback that prints: rounds, accuracy, evidence, time left."""

    def __init__(self, label: str, out: Console, *, quiet: bool = False) -> None:
        self.label, self.out, self.quiet = label, out, quiet
        self._rounds = self._first = self._evidence = self._degrees = 0
        self._began = 0.0
        self._measured = ""
        self._bar: Progress | None = None

    def start(self, config: RunConfig, first_round: int) -> None:
        """Open the bar."""
        self._rounds, self._first, self._began = config.rounds, first_round, time.monotonic()
        if self.quiet:
            return
        if first_round:
            self.out.print(f"{self.label}: going on at round {first_round + 1} of {config.rounds}")
        if self.out.is_terminal:
            bar = (TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn())
            left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[now]}"))
            self._bar = Progress(*bar, *left, console=self.out)
            self._bar.add_task(self.label, total=config.rounds, completed=first_round, now="")
            self._bar.start()

    def round(self, record: Mapping[str, Any]) -> None:
        """Advance the bar."""
        self._evidence += record["evaluations"]
        self._degrees += record["degree"]
        lead = leading(record)[0]
        evaluated = record.get(lead) is not None
        if evaluated:
            self._measured = f"{'MAE' if lead == 'mae' else lead} {record[lead]:.4f}  "
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=1, now=self._now())
        elif evaluated and not self.quiet:
            done = record["round"] + 1
            left = (time.monotonic() - self._began) / (done - self._first) * (self._rounds - done)
            self.out.print(f"{self.label}: round {done}/{self._rounds}  {self._now()}  left {left:.0f} s")

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Close the bar, also when the run was interrupted."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _now(self) -> str:
        budget = self._evidence / (SCHEDULE[-1] * self._degrees) if self._degrees else 0.0
        return f"{self._measured}evidence {budget:.1%}"
