"""Sweeps that the paper left open, by replaying the losses that AQ-128 cells recorded: nothing is trained again.

One option of SAGE-OS is varied at a time: lambda, delta, the schedule, the radius, the price of a stage.
AQ-128 records every loss up to its largest stage, so every rule with stages among them is covered. Overhead is given
in evaluations, bytes and seconds; bytes and seconds per evaluation are those of the recorded run.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from ..runs.files import RunError, csv_text, write_text
from ..runs.rundir import RunDirectory
from ..selection import make
from ..selection.theory import SCHEDULE
from .errors import StudyError
from .matrix import Cell
from .runner import done

SOURCE = "aq-128"
SWEEPS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "lambda": ("probe_cost", (0.0, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)),
    "delta": ("delta", (0.01, 0.05, 0.1, 0.2, 0.4)),
    "schedule": ("schedule", (SCHEDULE, (8, 16, 32, 64, 128), (32, 64, 128), (64, 128), (16, 128), (128,))),
    "radius": ("radius", ("printed", "tight")),
    "cost": ("cost", ("incremental", "cumulative")),
}


@dataclass(frozen=True)
class SweepRow:
    """What one rule would have done on one cell's evidence; shares are of the covered decisions."""

    digest: str
    dataset: str
    topology: str
    alpha: float
    seed: int
    sweep: str
    value: str
    covered: float
    certified: float
    cost: float
    exhausted: float
    no_anchors: float
    evaluations: float  # a decision
    budget: float
    probe_bytes: float  # a decision
    probe_seconds: float  # a decision

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it."""
        return self.digest, self.sweep, self.value


def run_sweeps(cells: Sequence[Cell], folder: Path, known: Sequence[SweepRow] = ()) -> Iterator[SweepRow]:
    """The sweeps of every AQ-128 cell that is finished or has `known` rows; those are not computed again."""
    had = {row.key: row for row in known}
    rules = list(_rules())
    for cell in cells:
        if cell.method == SOURCE:
            found = [had.get((cell.config.digest, sweep, value)) for sweep, value, _ in rules]
            kept = [row for row in found if row is not None]
            yield from _cell(cell, folder) if len(kept) < len(rules) and done(cell, folder) else kept


def _rules() -> Iterator[tuple[str, str, Any]]:
    for sweep, (option, values) in SWEEPS.items():
        for value in values:
            yield sweep, _text(value), make("sage-os", **{option: value})


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(cell: Cell, folder: Path) -> Iterator[SweepRow]:
    from ..runs.replaying import replay_run

    run = RunDirectory(cell.folder(folder))
    rules = list(_rules())
    different = list(dict.fromkeys(rule for _, _, rule in rules))  # every sweep passes through the defaults
    try:
        replayed = dict(zip(different, replay_run(run, [("", rule) for rule in different]), strict=True))
    except RunError:
        return  # no losses were recorded: every pool is below the first stage
    per_byte, per_second = _prices(run)
    for sweep, value, rule in rules:
        r = replayed[rule]
        shares = (r.covered, r.certified, r.cost, r.exhausted, r.no_anchors)
        spent = (r.evaluations, r.budget, r.evaluations * per_byte, r.evaluations * per_second)
        yield SweepRow(cell.config.digest, *cell.configuration[:3], cell.seed, sweep, value, *shares, *spent)


def _prices(run: RunDirectory) -> tuple[float, float]:
    """Bytes and seconds of one anchor-peer evaluation in a run."""
    summary = run.summary or {}
    evaluations = max(float(summary.get("evaluations", 0)), 1.0)
    moved = float(summary.get("probe_input_bytes", 0)) + float(summary.get("probe_answer_bytes", 0))
    return moved / evaluations, float(run.table("timings")["decide"].sum()) / evaluations


def write_sweeps(path: Path, rows: Sequence[SweepRow]) -> None:
    """Write `sweeps.csv`."""
    write_text(path, csv_text([[f.name for f in fields(SweepRow)], *map(astuple, rows)]))


def read_sweeps(path: Path) -> list[SweepRow]:
    """Read `sweeps.csv`; nothing where there is no file."""
    if not path.is_file():
        return []
    numbers = {f.name: f.type for f in fields(SweepRow)}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [SweepRow(**{k: _parsed(numbers[k], v) for k, v in row.items()}) for row in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{path} does not hold sweeps ({error}); delete it and they are computed again") from None


def _parsed(type_: Any, text: str) -> Any:
    return {"float": float, "int": int}.get(type_, str)(text)
