"""How a run records its rounds, for the simulator and nodes alike: tables that grow in memory and on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from ..selection import Reason
from .columns import TABLES, Evaluated, Writer, columns, schema
from .files import RunError, atomic_write, explained
from .rundir import RunDirectory, read_table
from .summary import summarise

Row = Mapping[str, Any]


class Clock:
    """Seconds by phase of one round."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside towards `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class GrowingTable:
    """Rows gathered round by round and written as one parquet file; cells that a row does not name are null."""

    def __init__(self, path: Path, schema: pl.Schema) -> None:
        self.path, self.schema = path, schema
        self._frame = pl.DataFrame(schema=schema)
        self._rows: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        self._rows.extend(rows)

    def frame(self) -> pl.DataFrame:
        """All rows so far."""
        if self._rows:
            self._frame = self._frame.vstack(pl.DataFrame(self._rows, schema=self.schema))
            self._rows = []
        return self._frame

    def replace(self, frame: pl.DataFrame) -> None:
        """Hold these rows instead."""
        self._rows, self._frame = [], frame

    def write(self) -> None:
        """Write the file anew, atomically."""
        whole = self.frame().rechunk()  # otherwise the bytes would depend on how often it was written before
        atomic_write(self.path, lambda p: whole.write_parquet(p, compression="zstd", statistics=False))

    def keep_before(self, round: int) -> None:
        """Go back to what the file held before `round`; rows that an interrupted run wrote after that are dropped."""
        self._rows, self._frame = [], pl.DataFrame(schema=self.schema)
        if self.path.exists():
            self._frame = fitted(read_table(self.path).filter(pl.col("round") < round), self.schema)


def fitted(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """A table of a run that had other columns: missing ones are null, unknown ones are left out."""
    known = frame.select([name for name in frame.columns if name in schema])
    return pl.concat([pl.DataFrame(schema=schema), known], how="diagonal")


class Recorder:
    """The tables of one run, gathered in memory and written together."""

    def __init__(self, directory: RunDirectory, *writers: Writer) -> None:
        self.directory = directory
        self.metrics, self.decisions, self.clients, self.timings = self._tables = tuple(
            GrowingTable(directory.path / f"{name}.parquet", schema(name, *writers)) for name in TABLES
        )

    def enter(
        self,
        decisions: Sequence[Row],
        evaluated: Evaluated | None,
        clients: Sequence[int],
        names: Sequence[str] | None = None,
        **facts: Any,
    ) -> dict[str, Any]:
        """Record a round whose decisions are in the audit already; returns its row of metrics.

        `evaluated` covers `clients` in their order, called by `names`; `facts` are the columns that only the caller
        knows.
        """
        reasons = [row["reason"] for row in decisions]
        record: dict[str, Any] = dict.fromkeys(self.metrics.schema)
        record |= {c.name: sum(row[c.name] for row in decisions) for c in columns("decisions") if c.combine == "sum"}
        record |= {f"reason_{reason}": reasons.count(reason) for reason in Reason}
        if evaluated is not None:
            record |= evaluated.after.summary() | evaluated.before.summary("before_")
            rows = evaluated.rows(facts["round"], clients)
            self.clients.add(rows if names is None else [row | {"owner": names[row["client"]]} for row in rows])
        assert facts.keys() <= record.keys(), facts.keys() - record.keys()
        record |= facts
        self.metrics.add([record])
        return record

    def time(self, round: int, clock: Clock, *, write: bool = False) -> None:
        """Record how long a round took; `write` if the other tables have been written already."""
        self.timings.add([{"round": round, **clock.seconds}])
        if write:
            with explained(f"timings in {self.directory.path}"):
                self.timings.write()

    def write(self) -> None:
        """Write all tables."""
        with explained(f"tables in {self.directory.path}"):
            for table in self._tables:
                table.write()

    def keep_before(self, round: int, clients: int) -> None:
        """Go back to the rows of the rounds before `round`, with a decision of each of the clients in every one."""
        for table in self._tables:
            table.keep_before(round)
        for table, expected in ((self.metrics, round), (self.decisions, round * clients)):
            if (found := table.frame().height) != expected:
                raise RunError(
                    f"{table.path} holds {found} of the {expected} rows up to round {round}, from which the checkpoint "
                    "goes on: it was changed or removed; start in another directory"
                )

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers."""
        return summarise(self.metrics.frame(), self.decisions.frame())
