"""The run directory: everything downstream (tables, replay, reports, the page) reads only this.

===================  =========================================================================================
`run.toml`           the full resolved config
`metrics.parquet`    a row per round: evidence, traffic, stop reasons; accuracy where evaluated
`decisions.parquet`  a row per client-round: the audit of every decision
`clients.parquet`    a row per client and evaluation
`timings.parquet`    seconds by phase and round; kept apart, because all else is repeatable byte by byte
`losses/`            packed probe losses, a file per round
`checkpoint/`        the two newest checkpoints
`events.log`         what happened when, a JSON line each
`summary.json`       the end result, once finished
===================  =========================================================================================

`sagefl.runs.columns` says what is in the tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock, Timeout
from polars.exceptions import PolarsError

from .config import RunConfig
from .files import PARTIAL, RunError, explained, tidy, write_text

__all__ = ["RunDirectory", "read_table"]


def read_table(path: Path) -> pl.DataFrame:
    """Read a table whole even while a run replaces it: through one open file, because polars opens a path twice."""
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
        """Read one of the tables: metrics, decisions, clients or timings."""
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            raise RunError(f"{self.path} has no {path.name} yet: the run has not reached its first evaluation")
        return read_table(path)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The end result, or None while the run is not finished."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    # Writing ------------------------------------------------------------------------------------------------------

    def check(self, config: RunConfig) -> bool:
        """Whether this config's run is here already; a place that holds anything else is refused. Changes nothing."""
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
        """Create the directory for this config unless it exists; one that holds another config is refused."""
        if self.check(config):
            return
        with explained(f"run directory {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / "run.toml", config.to_toml())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out, and clean up what a killed one left half done."""
        try:
            with explained(f"lock of {self.path}"):
                lock = FileLock(self.path / ".lock", timeout=0).acquire()
        except Timeout:
            raise RunError(
                f"{self.path} is being written by another process: wait for it, or choose another --out"
            ) from None
        with lock:
            tidy(self.path)
            yield

    def event(self, kind: str, **details: Any) -> None:
        """Append a line to the log."""
        line = json.dumps({"time": round(time.time(), 3), "event": kind, **details})
        log = self.path / "events.log"
        with explained(f"log {log}"), log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the end result."""
        write_text(self.path / "summary.json", json.dumps(summary, indent=1))
