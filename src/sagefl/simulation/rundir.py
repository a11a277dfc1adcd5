"""The run directory: everything downstream (tables, replay, reports, the page) reads only this.

====================  =========================================================================================
``run.toml``          the full resolved config
``metrics.parquet``   a row per round: evidence, traffic, stop reasons; accuracy where evaluated
``decisions.parquet`` a row per client-round: the audit of every decision
``clients.parquet``   a row per client and evaluation
``losses/``           packed probe losses, a file per round
``timings.parquet``   seconds by phase and round (kept apart: everything else is repeatable byte by byte)
``checkpoint/``       the two newest checkpoints
``events.log``        what happened when, a JSON line each
``summary.json``      the end result, once finished
====================  =========================================================================================
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from .config import RunConfig
from .files import RunError, atomic_write, explained, write_text

__all__ = ["CLIENTS", "DECISIONS", "RunDirectory", "Table"]

_AUDIT: dict[str, Any] = {
    "round": pl.Int32,
    "client": pl.Int32,
    "degree": pl.Int32,
    "pool": pl.Int32,
    "peers": pl.List(pl.Int32),
    "chosen": pl.List(pl.Int32),
    "weights": pl.List(pl.Float64),
    "direction": pl.String,
    "selected": pl.Boolean,
    "reason": pl.String,
    "anchors": pl.Int32,
    "evaluations": pl.Int32,
    "stages": pl.Int32,
    "test": pl.String,
    "risks": pl.List(pl.Float64),
    "advantage": pl.Float64,
    "gap": pl.Float64,
    "radius": pl.Float64,
    "width": pl.Float64,
    "next_cost": pl.Float64,
    "wealth": pl.List(pl.Float64),
    "threshold": pl.Float64,
    "inspected": pl.Int32,
    "merged": pl.Int32,
    "transferred": pl.Int32,
    "probe_input_bytes": pl.Int64,
    "probe_answer_bytes": pl.Int64,
    "model_bytes": pl.Int64,
    "control_bytes": pl.Int64,
    "eval_pulled_risk": pl.Float64,
    "eval_gossip_risk": pl.Float64,
    "eval_gain": pl.Float64,
}
DECISIONS = pl.Schema(_AUDIT)
CLIENTS = pl.Schema(
    {
        "round": pl.Int32,
        "client": pl.Int32,
        "accuracy": pl.Float64,
        "macro_f1": pl.Float64,
        "own_accuracy": pl.Float64,
        "own_accuracy_before": pl.Float64,
    }
)


class Table:
    """Rows gathered round by round and written as one parquet file."""

    def __init__(self, path: Path, schema: pl.Schema | None = None) -> None:
        self.path, self.schema = path, schema
        self._parts: list[pl.DataFrame] = []
        self._rows: list[dict[str, Any]] = []

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows."""
        self._rows.extend(dict(row) for row in rows)

    def frame(self) -> pl.DataFrame:
        """All rows so far."""
        if self._rows:
            self._parts.append(pl.DataFrame(self._rows, schema=self.schema, infer_schema_length=None))
            self._rows = []
        if not self._parts:
            return pl.DataFrame(schema=self.schema)
        whole = pl.concat(self._parts, how="vertical" if self.schema else "diagonal_relaxed")
        self._parts = [whole]
        return whole

    def write(self) -> None:
        """Write the file anew, atomically."""
        frame = self.frame()
        atomic_write(self.path, lambda p: frame.write_parquet(p, compression="zstd", statistics=False))

    def keep_before(self, round: int) -> None:
        """Go back to what stood before `round` was run: rows of an interrupted stretch are dropped."""
        self._rows = []
        self._parts = []
        if self.path.exists():
            self._parts = [pl.read_parquet(self.path).filter(pl.col("round") < round)]


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    # Reading ------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> RunConfig:
        """The run's config."""
        if not (self.path / "run.toml").is_file():
            raise RunError(f"{self.path} is not a run directory: it has no run.toml")
        return RunConfig.read(self.path / "run.toml")

    def table(self, name: str) -> pl.DataFrame:
        """One of metrics, decisions, clients, timings."""
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            raise RunError(f"{self.path} has no {path.name} yet: the run has not reached its first evaluation")
        return pl.read_parquet(path)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The end result, or None while the run is not finished."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    # Writing ------------------------------------------------------------------------------------------------------

    def prepare(self, config: RunConfig) -> None:
        """Make the directory this config's; one that holds another config is refused untouched."""
        if (self.path / "run.toml").is_file():
            if self.config != config:
                raise RunError(
                    f"{self.path} already holds a run with another config ({self.config.digest}, not {config.digest}): "
                    "choose another --out, or resume that one"
                )
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise RunError(f"{self.path} is not empty and not a run directory: choose another --out")
        with explained(f"run directory {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / "run.toml", config.to_toml())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes here meanwhile."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.path} is being written by another process") from None
            yield

    def event(self, kind: str, **details: Any) -> None:
        """Append to the log."""
        line = json.dumps({"time": round(time.time(), 3), "event": kind, **details})
        with (self.path / "events.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the end result."""
        write_text(self.path / "summary.json", json.dumps(summary, indent=1))
