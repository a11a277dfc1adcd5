"""The run directory: everything downstream (tables, replay, reports, the page) reads only this.

===================  =========================================================================================
`run.toml`           the full resolved config
`environment.json`   what it was made of and where: own code and files, versions, CPU, engine, command
`metrics.parquet`    a row per round: evidence, traffic, stop reasons; accuracy where evaluated
`decisions.parquet`  a row per client-round: the audit of every decision
`clients.parquet`    a row per client and evaluation
`timings.parquet`    seconds by phase and round; kept apart, because all else is repeatable byte by byte
`losses/`            packed probe losses, a file per round
`checkpoint/`        the two newest checkpoints while it runs, then the last one
`last-round.json`    the last round as it is measured on the way, for going on with more rounds
`events.log`         what happened when, a JSON line each
`summary.json`       the end result, once finished
`truth.json`         who is in whose group and who misbehaves, where there is such a truth (`sagefl.runs.truth`)
`names.json`         what the clients are called, where the data name their owners
===================  =========================================================================================

`sagefl.runs.columns` says what is in the tables.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock, Timeout
from polars.exceptions import PolarsError

from ..errors import SageflError
from .columns import TABLES
from .config import RunConfig, differences
from .environment import changes, circumstances, differing, made_of, read_by
from .files import PARTIAL, RunError, explained, folders_in, tidy, write_text
from .parquet import MOST_BYTES, check_size

CLIENTS, ROUNDS = 1_000_000, 10_000_000  # beyond any run; a stranger's folder may say anything

FILES = (
    *(f"{name}.parquet" for name in TABLES),
    "summary.json",
    "last-round.json",
    "truth.json",
    "names.json",
    "events.log",
)
FOLDERS = ("losses", "checkpoint")
BEGUN = (".lock", "environment.json")  # all there is of a run that was killed before its config was written


def runs_below(place: Path, depth: int = 4) -> Iterator[Path]:
    """The run directories at or below a folder."""
    if (place / "run.toml").is_file() or (place / "metrics.parquet").is_file():
        yield place
    elif depth > 0 and place.is_dir():
        for inner in folders_in(place):
            yield from runs_below(inner, depth - 1)


class ChangedError(RunError):
    """What made a run has changed since, so it must not be taken for the run that is asked for."""


def read_table(path: Path, most_rows: int | None = None) -> pl.DataFrame:
    """Read a table whole even while a run replaces it: through one open file, because polars opens a path twice.

    A table too large for any run is refused before it is read: the folder may be a stranger's.
    """
    try:
        with path.open("rb") as file:
            check_size(file, path, most_rows)
            found = pl.read_parquet(file)
        words = (found[name] for name, kind in found.schema.items() if kind == pl.String)
        if sum(int(column.str.len_bytes().sum()) for column in words) > MOST_BYTES:
            raise RunError(f"{path} holds words of more than {MOST_BYTES:,} bytes together")
        return found
    except (PolarsError, OSError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.foreword: dict[str, Any] = {}  # what was said before the run began, for its environment

    # Reading ------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> RunConfig:
        """The run's config."""
        if not (self.path / "run.toml").is_file():
            raise RunError(f"{self.path} is not a run directory: it has no run.toml")
        found = RunConfig.read(self.path / "run.toml")
        if found.clients > CLIENTS or found.rounds > ROUNDS:
            raise RunError(
                f"{self.path} is a run of {found.clients:,} clients and {found.rounds:,} rounds; at most "
                f"{CLIENTS:,} and {ROUNDS:,} are read"
            )
        return found

    @property
    def environment(self) -> dict[str, Any] | None:
        """What the run was made of and where; None if it does not say."""
        try:
            held = json.loads((self.path / "environment.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / 'environment.json'} cannot be read: {error}") from None
        return held if isinstance(held, dict) else None

    def differs(self) -> list[str]:
        """Libraries and CPU that are others here than where the run was made."""
        return differing(self.environment or {}, circumstances())

    def table(self, name: str) -> pl.DataFrame:
        """Read one of the tables: metrics, decisions, clients or timings."""
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            raise RunError(f"{self.path} has no {path.name} yet: the run has not reached its first evaluation")
        try:
            config = self.config
        except SageflError:  # of another version, say: the page says so, and shows what there is
            return read_table(path)
        found = read_table(path, config.rounds * config.clients)
        for column, most in (("round", config.rounds), ("client", config.clients)):
            numbers = found[column] if column in found.columns else pl.Series([], dtype=pl.Int32)
            if numbers.dtype.is_integer() and len(numbers.drop_nulls()) and not numbers.is_between(0, most - 1).all():
                raise RunError(f"{path} names a {column} beyond the {most:,} of the run")
        return found

    @property
    def summary(self) -> dict[str, Any] | None:
        """The end result, or None while the run is not finished."""
        path = self.path / "summary.json"
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}") from None
        if not isinstance(found, dict) or not {"method", "rounds"} <= found.keys():
            raise RunError(f"{path} is not the summary of a run")
        return found

    # Writing ------------------------------------------------------------------------------------------------------

    def check(self, config: RunConfig) -> bool:
        """Whether this config's run is here already; a place that holds anything else is refused. Changes nothing."""
        if (self.path / "run.toml").is_file():
            held = self.config
            if held.digest != config.digest:
                raise RunError(
                    f"{self.path} already holds a run with another config: {', '.join(differences(held, config))}; "
                    f"choose another --out, or replace it with --fresh{self._longer(held, config)}"
                )
            if changed := changes(self.environment, config):
                raise ChangedError(
                    f"{self.path} was made by other code than there is now; changed since: {', '.join(changed)}. "
                    "Run it anew with --fresh, or choose another --out (of a study: another --cells)"
                )
            return True
        if self.path.is_file():
            raise RunError(f"{self.path} is a file, not a folder: choose another --out")
        with explained(f"run directory {self.path}"):
            there = self.path.iterdir() if self.path.exists() else ()
            if any(path.name not in BEGUN and not path.name.endswith(PARTIAL) for path in there):
                raise RunError(f"{self.path} is not empty and not a run directory: choose another --out")
        return False

    def _longer(self, held: RunConfig, config: RunConfig) -> str:
        """How to go on, if nothing but more rounds is asked for."""
        if held.rounds < config.rounds and held.model_copy(update={"rounds": config.rounds}).digest == config.digest:
            return f"; `sagefl resume {self.path} --rounds {config.rounds}` goes on with it"
        return ""

    def finished(self, config: RunConfig) -> bool:
        """Whether this config's run is here with its end result, and nothing that made it has changed since."""
        return (self.path / "summary.json").is_file() and not changes(self.environment, config)

    def prepare(self, config: RunConfig, **facts: Any) -> None:
        """Create the directory for this config unless it exists; one that holds another config is refused.

        `facts` are what only the caller knows about how the run is carried out, such as its engine.
        """
        if self.check(config):
            return
        with explained(f"run directory {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            held = circumstances() | facts | self.foreword | {"made_of": made_of(config), "files": read_by(config)}
            write_text(self.path / "environment.json", json.dumps(held, indent=1))
            write_text(self.path / "run.toml", config.to_toml())

    def resumed(self, round: int, **facts: Any) -> list[str]:
        """Note that the run goes on here; returns what is different from where it was begun."""
        held, here = self.environment, circumstances() | facts
        found = differing(held or {}, here)
        if held is not None:
            held["resumed"] = [*held.get("resumed", ()), here | {"round": round}]
            write_text(self.path / "environment.json", json.dumps(held, indent=1))
        return found

    def clear(self) -> None:
        """Remove a run, so that it can be made anew; what no run writes stays."""
        with self.locked(), explained(f"run directory {self.path}"):
            for name in ("run.toml", "environment.json", *FILES):  # its config first: what is left is no run
                (self.path / name).unlink(missing_ok=True)
            for name in FOLDERS:
                shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / ".lock").unlink(missing_ok=True)

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
