"""What finished cells came to, as one small table that can be kept without the runs: `cells.csv`.

A row is a cell. It holds the whole config, so that the row means the same when a default changes later, its digest, and
the result: the run's summary, seconds by phase, and a few shares that claims need. Tables, figures and
verdicts are built from these rows alone; only sweeps need the recorded losses.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from ..runs.config import RunConfig
from ..runs.files import write_text
from ..runs.rundir import RunDirectory
from ..selection.theory import SCHEDULE
from .errors import StudyError
from .matrix import Cell
from .results import Configuration, Result
from .runner import done

__all__ = ["Record", "collect", "differ", "read_records", "recall", "write_records"]

_KEYS = ("dataset", "topology", "alpha", "method", "seed", "digest", "config")


@dataclass(frozen=True)
class Record:
    """One finished cell."""

    configuration: Configuration
    method: str
    config: RunConfig
    values: dict[str, float]

    @property
    def result(self) -> Result:
        """As the tables want it."""
        return Result(self.configuration, self.method, self.config.seed, self.values)


def collect(cells: Iterable[Cell], folder: Path) -> list[Record]:
    """The records of those cells that are finished."""
    return [
        Record(c.configuration, c.method, c.config, _values(RunDirectory(c.folder(folder))))
        for c in cells
        if done(c, folder)
    ]


def recall(cells: Iterable[Cell], folders: Iterable[Path]) -> dict[str, Record]:
    """The cells that are listed in the `cells.csv` of some folders, by digest: they count although their runs are gone.

    What a rule does may change while its config does not, so whoever names a folder vouches for what is in it. Two
    folders that disagree about a cell are refused.
    """
    kept: dict[tuple[Configuration, str], Record] = {}
    for folder in folders:
        for r in read_records(folder / "cells.csv"):
            if differ(kept.setdefault((r.configuration, r.config.digest), r), r):
                where = f"{r.configuration}, {r.method}, seed {r.config.seed}"
                raise StudyError(f"{folder} and a folder before it disagree about {where}: name only one of them")
    found = ((c, kept.get((c.configuration, c.config.digest))) for c in cells)
    return {c.config.digest: replace(r, method=c.method) for c, r in found if r is not None}


def differ(a: Record, b: Record) -> bool:
    """Whether two records of one cell have different results; how long a run took does not matter."""
    return any(
        a.values[name] != b.values[name]
        for name in a.values.keys() & b.values.keys()
        if not name.startswith("seconds_")
    )


def _values(run: RunDirectory) -> dict[str, float]:
    summary: dict[str, Any] = run.summary or {}
    values = {k: float(v) for k, v in summary.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    values["comm_oh"] = values["transferred"]
    count = 1e6 * max(values["decisions"], 1.0)
    values["mb_probes"] = (values["probe_input_bytes"] + values["probe_answer_bytes"]) / count
    values["mb_models"] = values["model_bytes"] / count
    return values | _of_decisions(run.table("decisions")) | _seconds(run.table("timings"))


def _of_decisions(decisions: pl.DataFrame) -> dict[str, float]:
    """Shares over all decisions: plain mean of anchors, what stage 16 decided, and pulls seen on evaluation data.

    Certificates may come early and then stop, which the end of a run does not show; hence their share by thirds.
    """
    early = decisions.filter((pl.col("anchors") == SCHEDULE[0]) & pl.col("reason").is_in(["certified", "cost"]))
    checked = decisions.filter(pl.col("eval_pulled_risk").is_not_null())
    values = {
        "mean_anchors": float(decisions["anchors"].mean() or 0.0),  # type: ignore[arg-type]
        "decided_16": early.height / max(decisions.height, 1),
        **_by_thirds(decisions),
    }
    if checked.height:
        excess = checked["eval_pulled_risk"] - checked["eval_gossip_risk"]
        values |= {"pulled_worse": float((excess > 0).mean() or 0.0), "pulled_excess": float(excess.mean() or 0.0)}  # type: ignore[arg-type]
    return values


def _by_thirds(decisions: pl.DataFrame) -> dict[str, float]:
    """The certified share of decisions in the first and in the last third of the rounds."""
    third, rounds = pl.col("round") * 3, int(decisions["round"].max() or 0) + 1  # type: ignore[arg-type]
    parts = {"certified_first": third < rounds, "certified_last": third >= 2 * rounds}
    certified = {name: decisions.filter(part)["reason"] == "certified" for name, part in parts.items()}
    return {name: float(which.mean() or 0.0) for name, which in certified.items()}  # type: ignore[arg-type]


def _seconds(timings: pl.DataFrame) -> dict[str, float]:
    """Mean seconds a round by phase."""
    phases = [name for name in timings.columns if name != "round"]
    return {f"seconds_{name}": float(timings[name].fill_null(0.0).mean() or 0.0) for name in phases}  # type: ignore[arg-type]


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write `cells.csv`; the same records give the same bytes."""
    metrics = sorted({name for r in records for name in r.values})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_KEYS, *metrics])
    for r in records:
        config = json.dumps(r.config.model_dump(mode="json"), sort_keys=True)
        keys = (*r.configuration, r.method, r.config.seed, r.config.digest, config)
        writer.writerow([*keys, *(repr(r.values[m]) if m in r.values else "" for m in metrics)])
    write_text(path, text.getvalue())


def read_records(path: Path) -> list[Record]:
    """Read `cells.csv`; an error names the line."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}; a study writes it into its --out folder") from None
    return [_record(path, number, row) for number, row in enumerate(rows, start=2)]


def _record(path: Path, line: int, row: dict[str, str]) -> Record:
    try:
        configuration = Configuration(row["dataset"], row["topology"], float(row["alpha"]))
        config = RunConfig.parse(json.loads(row["config"]))
        values = {k: float(v) for k, v in row.items() if k not in _KEYS and v}
        method, digest = row["method"], row["digest"]
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{path}, line {line}: not a cell of a study ({error})") from None
    if config.digest != digest:
        raise StudyError(
            f"{path}, line {line}: its config is by now another run's ({config.digest}, recorded as {digest}): "
            "a default that the line does not name has changed since"
        )
    return Record(configuration, method, config, values)
