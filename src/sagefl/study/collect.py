"""What finished cells came to, as one small table that can be kept without the runs: `cells.csv`.

A row is a cell. It holds the whole config, so that the row means the same when a default changes later, its digest, and
the result: the run's summary, seconds by phase, and a few shares that claims need. Tables, figures and
verdicts are built from these rows alone; only sweeps need the recorded losses.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from ..reading import returned_by
from ..runs.columns import Column, columns, schema
from ..runs.config import RunConfig
from ..runs.environment import address, asked_once, changed_files, is_certain, is_older, made_of
from ..runs.files import csv_text, write_text
from ..runs.rundir import RunDirectory
from ..runs.summary import first_seen, summarise
from ..selection.theory import SCHEDULE
from .errors import StudyError
from .matrix import Cell
from .results import Configuration, Result
from .runner import done

_KEYS = ("dataset", "topology", "alpha", "method", "seed", "digest", "config")
LEVELS = range(10, 100, 10)  # of accuracy, in per cent, for the time that it takes to get there
BOTH = "both"  # the mean of global and Client accuracy, which no run records


@dataclass(frozen=True)
class Record:
    """One finished cell."""

    configuration: Configuration
    method: str
    config: RunConfig
    values: dict[str, float]
    address: str = ""  # of the run, where the code behind it makes it another than its config's digest
    files: Mapping[str, str] = field(default_factory=dict)  # that a user's function read the data from, with digests

    @property
    def result(self) -> Result:
        """As the tables want it."""
        return Result(self.configuration, self.method, self.config.seed, self.values)

    @property
    def at(self) -> str:
        """The address of the run that it came from."""
        return self.address or self.config.digest

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The parts of it that have changed since it was made, by name; nothing where it would be made the same now."""
        made, data = made_of(self.config), f"data {self.config.data.dataset}"
        parts = () if self.at == address(self.config) and is_certain(made) else tuple(made) or ("round loop",)
        if data in self.files and self.files[data] != returned_by(data):
            parts = (*parts, data)  # nobody's function is called for a row of a table
        return (*dict.fromkeys(parts), *changed_files(self.files, self.config))


def measure_names() -> list[str]:
    """The numbers that every finished cell has, by the names that a study reports them under."""
    metrics, decisions, timings = (pl.DataFrame(schema=schema(table)) for table in ("metrics", "decisions", "timings"))
    summary = dict.fromkeys(summarise(metrics, decisions), 0.0)
    more = (*_derived(summary), *_of_decisions(decisions), *_CHECKED, *_seconds(timings))
    timed = ("minutes", *(f"minutes_to_{level}" for level in LEVELS))
    return [BOTH, *summary, *more, *(column.name for column in _of_worlds()), *timed]


def _of_worlds() -> list[Column[Any]]:
    """What only runs whose truth is known record, round by round."""
    return [column for column in columns("metrics", "world") if column.only == "world"]


def collect(cells: Iterable[Cell], folder: Path) -> list[Record]:
    """The records of those cells that are finished."""
    with asked_once():
        return [_of_run(cell, RunDirectory(cell.folder(folder))) for cell in cells if done(cell, folder)]


def _of_run(cell: Cell, run: RunDirectory) -> Record:
    files = (run.environment or {}).get("files", {})
    return Record(cell.configuration, cell.method, cell.config, _values(run), _apart(cell.address, cell.config), files)


def differ(a: Record, b: Record) -> bool:
    """Whether two records of one cell have different results; how long a run took does not matter."""
    return any(
        a.values[name] != b.values[name]
        for name in a.values.keys() & b.values.keys()
        if not name.startswith("seconds_")
    )


def changed_parts(records: Iterable[Record]) -> str:
    """What has changed since these records were made, as a list in words."""
    return ", ".join(sorted({part for record in records for part in record.changed}))


def _values(run: RunDirectory) -> dict[str, float]:
    summary: dict[str, Any] = run.summary or {}
    values = {k: float(v) for k, v in summary.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    metrics = run.table("metrics")
    known = {c.name: metrics[c.name].mean() for c in _of_worlds() if c.name in metrics.columns}
    values |= {name: mean for name, mean in known.items() if isinstance(mean, float)}
    values |= _minutes(metrics)
    return values | _derived(values) | _of_decisions(run.table("decisions")) | _seconds(run.table("timings"))


def _minutes(metrics: pl.DataFrame) -> dict[str, float]:
    """When accuracy was first seen at each level, in minutes of a run with a clock."""
    if "minutes" not in metrics.columns:
        return {}
    found = first_seen(metrics, metrics["minutes"].to_list(), LEVELS)
    return {f"minutes_to_{level}": at for level, at in found.items()}


def _derived(values: dict[str, float]) -> dict[str, float]:
    """CommOH by the paper's name, and megabytes per client-round."""
    count = 1e6 * max(values["decisions"], 1.0)
    probes = values["probe_input_bytes"] + values["probe_answer_bytes"]
    return {
        "comm_oh": values["transferred"],
        "mb_probes": probes / count,
        "mb_models": values["model_bytes"] / count,
    }


_CHECKED = ("pulled_worse", "pulled_excess", "cost_best_gain")


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
        values |= _passed_over(checked.filter(pl.col("reason") == "cost"))
    return values


def _passed_over(stopped: pl.DataFrame) -> dict[str, float]:
    """What the empirically best peer would have gained over gossip where probing stopped for its price.

    In risk on evaluation data, which no rule sees; positive: taking that peer was the better way to stop.
    """
    rows = stopped.filter(pl.col("risks").list.len() == pl.col("eval_risks").list.len())
    best = pl.col("eval_risks").list.get(pl.col("risks").list.arg_min())
    gains = rows.select(pl.col("eval_risks").list.mean() - best).to_series()
    return {"cost_best_gain": float(gains.mean())} if gains.len() else {}  # type: ignore[arg-type]


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
    named, read = any(r.configuration.world for r in records), any(r.files for r in records)
    rows: list[list[object]] = [[*(("world",) if named else ()), *_KEYS, *(("files",) if read else ()), *metrics]]
    for r in records:
        config = json.dumps(r.config.values(), sort_keys=True)
        *world, name = r.configuration
        keys = (*((name,) if named else ()), *world, r.method, r.config.seed, r.at, config)
        files = (json.dumps(dict(r.files)),) if read else ()
        rows.append([*keys, *files, *(repr(r.values[m]) if m in r.values else "" for m in metrics)])
    write_text(path, csv_text(rows))


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
        configuration = Configuration(row["dataset"], row["topology"], float(row["alpha"]), row.get("world", ""))
        config = RunConfig.parse(json.loads(row["config"]))
        values = {k: float(v) for k, v in row.items() if k not in (*_KEYS, "world", "files") and v}
        method, digest, files = row["method"], row["digest"], json.loads(row.get("files") or "{}")
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(f"{path}, line {line}: not a cell of a study ({error})") from None
    if digest not in (config.digest, address(config)) and not is_older(digest, config):
        raise StudyError(
            f"{path}, line {line}: its config is by now another run's ({config.digest}, recorded as {digest}): "
            "a default that the line does not name has changed since"
        )
    return Record(configuration, method, config, values, _apart(digest, config), files)


def _apart(address: str, config: RunConfig) -> str:
    return "" if address == config.digest else address
