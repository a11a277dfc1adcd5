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
from polars.exceptions import PolarsError

from ..exchange.accounting import Traffic
from ..selection import Outcome, Reason
from ..selection.selector import Hood
from .config import RunConfig
from .files import PARTIAL, RunError, atomic_write, explained, tidy, write_text

__all__ = [
    "CLIENTS",
    "DECISIONS",
    "METRICS",
    "PHASES",
    "PRIVACY",
    "SUMMARY",
    "SUMMED",
    "TIMINGS",
    "RunDirectory",
    "Table",
    "audit_row",
]

PHASES = ("train", "decide", "mix", "evaluate", "record", "checkpoint")
SUMMARY = ("accuracy", "macro_f1", "client", "weak", "client_ce")  # what an evaluation comes down to
SUMMED = (
    "evaluations",
    "merged",
    "transferred",
    "probe_input_bytes",
    "probe_answer_bytes",
    "model_bytes",
    "control_bytes",
)  # columns of the decisions whose sums stand in the metrics
_ROUND: dict[str, Any] = {
    "round": pl.Int32,
    "train_loss": pl.Float64,
    "samples": pl.Int64,
    "degree": pl.Int64,
    **dict.fromkeys(SUMMED, pl.Int64),
    **{f"reason_{reason}": pl.Int64 for reason in Reason},
    **dict.fromkeys((*SUMMARY, *(f"before_{name}" for name in SUMMARY)), pl.Float64),
    "test_images": pl.Int32,
    "diversity": pl.Float64,
    "pull_gini": pl.Float64,
}
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
    "eval_risks": pl.List(pl.Float64),
}
METRICS = pl.Schema(_ROUND)
# With private answers: epsilon of one answer; of the worst-off client in this round and so far, towards all receivers
# together and (pair) towards a single one.
_EPSILONS = ("epsilon_answer", "epsilon_round", "epsilon_round_pair", "epsilon_total", "epsilon_total_pair")
PRIVACY = pl.Schema(dict.fromkeys(_EPSILONS, pl.Float64))
DECISIONS = pl.Schema(_AUDIT)
TIMINGS = pl.Schema({"round": pl.Int32, **dict.fromkeys(PHASES, pl.Float64)})
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


def audit_row(round: int, client: int, hood: Hood, outcome: Outcome, traffic: Traffic) -> dict[str, Any]:
    """The audit of one decision as ``decisions.parquet`` keeps it; what evaluation adds to it is null."""
    stage = outcome.trace[-1] if outcome.trace else None
    return dict.fromkeys(DECISIONS) | {
        "round": round,
        "client": client,
        "degree": len(hood.peers),
        "pool": hood.anchors,
        "peers": hood.peers,
        "chosen": outcome.peers,
        "weights": None if outcome.weights is None else [outcome.weights[p] for p in outcome.peers],
        "direction": outcome.direction,
        "selected": outcome.selected,
        "reason": outcome.reason.value,
        "anchors": outcome.anchors,
        "evaluations": outcome.evaluations,
        "stages": len(outcome.trace),
        "test": stage and stage.test,
        "risks": stage and stage.risks,
        "advantage": stage and stage.advantage,
        "gap": stage and stage.gap,
        "radius": stage and stage.radius,
        "width": stage and stage.width,
        "next_cost": stage and stage.next_cost,
        "wealth": stage and stage.wealth,
        "threshold": stage and stage.threshold,
        "inspected": len(outcome.inspected),
        "merged": traffic.merged,
        "transferred": traffic.transferred,
        "probe_input_bytes": traffic.probe_inputs,
        "probe_answer_bytes": traffic.probe_answers,
        "model_bytes": traffic.models,
        "control_bytes": traffic.control,
    }


class Table:
    """Rows gathered round by round and written as one parquet file; cells a row does not name are null."""

    def __init__(self, path: Path, schema: pl.Schema) -> None:
        self.path, self.schema = path, schema
        self._frame = pl.DataFrame(schema=schema)
        self._rows: list[Mapping[str, Any]] = []

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows."""
        self._rows.extend(rows)

    def frame(self) -> pl.DataFrame:
        """All rows so far."""
        if self._rows:
            self._frame = self._frame.vstack(pl.DataFrame(self._rows, schema=self.schema))
            self._rows = []
        return self._frame

    def write(self) -> None:
        """Write the file anew, atomically."""
        whole = self.frame().rechunk()  # or the bytes would tell how often it was written before
        atomic_write(self.path, lambda p: whole.write_parquet(p, compression="zstd", statistics=False))

    def keep_before(self, round: int) -> None:
        """Go back to what stood before `round` was run: rows of an interrupted stretch are dropped."""
        self._rows, self._frame = [], pl.DataFrame(schema=self.schema)
        if self.path.exists():
            kept = _read(self.path).filter(pl.col("round") < round)
            kept = kept.select([name for name in kept.columns if name in self.schema])  # others are gone by now
            self._frame = pl.concat([self._frame, kept], how="diagonal")  # columns that are newer than the run are null


def _read(path: Path) -> pl.DataFrame:
    """A table, whole, while a run goes on replacing it: from one open file, because polars opens a path twice."""
    try:
        with path.open("rb") as file:
            return pl.read_parquet(file)
    except (PolarsError, OSError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None


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
        return _read(path)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The end result, or None while the run is not finished."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    # Writing ------------------------------------------------------------------------------------------------------

    def check(self, config: RunConfig) -> bool:
        """Refuse a place that is not for this config, and change nothing; returns whether the run is there already."""
        if (self.path / "run.toml").is_file():
            if (held := self.config.digest) != config.digest:
                raise RunError(
                    f"{self.path} already holds a run with another config ({held}, not {config.digest}): "
                    "choose another --out, or resume that one"
                )
            return True
        with explained(f"run directory {self.path}"):
            if self.path.exists() and any(not path.name.endswith(PARTIAL) for path in self.path.iterdir()):
                raise RunError(f"{self.path} is not empty and not a run directory: choose another --out")
        return False

    def prepare(self, config: RunConfig) -> None:
        """Make the directory this config's; one that holds another config is refused untouched."""
        if self.check(config):
            return
        with explained(f"run directory {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / "run.toml", config.to_toml())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes here meanwhile; what a killed writer left half done is removed first."""
        with explained(f"lock of {self.path}"):
            lock = (self.path / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(
                    f"{self.path} is being written by another process: wait for it, or choose another --out"
                ) from None
            tidy(self.path)
            yield

    def event(self, kind: str, **details: Any) -> None:
        """Append to the log."""
        line = json.dumps({"time": round(time.time(), 3), "event": kind, **details})
        log = self.path / "events.log"
        with explained(f"log {log}"), log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the end result."""
        write_text(self.path / "summary.json", json.dumps(summary, indent=1))
