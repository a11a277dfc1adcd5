"""What a node leaves on disk: the same run directory as a simulated run, with this node as its only client.

Beyond the simulator's columns, ``decisions.parquet`` has how often a decision restarted, whom it lost, and the digest
of what was merged; ``metrics.parquet`` has the bytes of all messages. Failing to write never ends a node: it is an
event, and the next round tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError
from safetensors import SafetensorError

from ..exchange import ExchangeLayer, Sizes, Traffic
from ..learning.population import Population
from ..runs import checkpoint
from ..runs.files import RunError, explained
from ..runs.losses import Recorded, losses_path, write_losses
from ..runs.rundir import CLIENTS, DECISIONS, METRICS, TIMINGS, RunDirectory, Table, audit_row
from ..runs.summary import summarise
from ..selection.private import RandomisedResponse
from .config import NodeConfig
from .deciding import Verdict
from .journal import Journal

__all__ = ["NODE_DECISIONS", "NODE_METRICS", "NODE_TIMINGS", "Recorder", "decision_row", "traffic_of"]

_DECIDED: dict[str, Any] = {"restarts": pl.Int32, "lost": pl.List(pl.Int32), "digest": pl.String, "rejected": pl.Int32}
_ROUND: dict[str, Any] = {"wire_bytes": pl.Int64, "restarts": pl.Int32}
_TIMED: dict[str, Any] = {"neighbours": pl.Float64}
NODE_DECISIONS = pl.Schema({**DECISIONS, **_DECIDED})
NODE_METRICS = pl.Schema({**METRICS, **_ROUND})
NODE_TIMINGS = pl.Schema({**TIMINGS, **_TIMED})


class Recorder:
    """One node's run directory."""

    def __init__(self, config: NodeConfig, mechanism: RandomisedResponse | None, journal: Journal) -> None:
        self.config, self.journal = config, journal
        self.run_config = config.run_config()
        self._classes = None if mechanism is None else mechanism.classes
        self.directory = RunDirectory(Path(config.directory))
        path = self.directory.path
        self.metrics = Table(path / "metrics.parquet", NODE_METRICS)
        self.decided = Table(path / "decisions.parquet", NODE_DECISIONS)
        self.per_client = Table(path / "clients.parquet", CLIENTS)
        self.timings = Table(path / "timings.parquet", NODE_TIMINGS)

    @property
    def _tables(self) -> tuple[Table, ...]:
        return self.metrics, self.decided, self.per_client, self.timings

    def prepare(self) -> None:
        """Make the directory this node's, or find it so."""
        self.directory.prepare(self.run_config)

    def resume(self, population: Population, identity: str) -> tuple[int, dict[str, Any]]:
        """Fill the population from the newest good checkpoint; returns the first round to run and the states."""
        found, refused = checkpoint.latest(self.directory.path, identity)
        for why in refused:
            self.journal.event("refused-checkpoint", why=why)
        if found is None and refused:
            raise checkpoint.CheckpointError(
                "; ".join(refused) + ": no good checkpoint is left; give this node another directory"
            )
        if found is not None:
            checkpoint.restore(found, population)
        first = 0 if found is None else found.round
        for table in self._tables:
            table.keep_before(first)
        return first, {} if found is None else found.states

    def attempt(self, what: str, write: Callable[[], None]) -> bool:
        """Write something; a disk that is full or gone is an event, not the end."""
        try:
            with explained(what):
                write()
        except (RunError, OSError, SafetensorError, PolarsError) as error:
            self.journal.event("write-failed", what=what, why=str(error))
            return False
        return True

    def checkpoint(self, round: int, population: Population, identity: str, states: dict[str, Any]) -> bool:
        """Write the tables and the checkpoint from which `round` is the next; False if that failed."""

        def write() -> None:
            for table in self._tables:
                table.write()
            checkpoint.save(self.directory.path, round, population, identity, states)

        return self.attempt(f"checkpoint of round {round}", write)

    def losses(self, round: int, verdict: Verdict) -> None:
        """Keep the losses a decision paid for; of several kinds of probe the first one used."""
        if self.config.evaluation.losses == "none" or not verdict.losses:
            return
        record = Recorded.of(self.config.number, verdict.decision, *next(iter(verdict.losses.items())))
        path = losses_path(self.directory.path, round)
        self.attempt(f"losses of round {round}", lambda: write_losses(path, [record], self._classes))

    def forget_losses(self, first: int) -> None:
        """Remove losses of rounds that a resumed node will run again."""
        for path in (self.directory.path / "losses").glob("round-*.safetensors"):
            if int(path.stem.split("-")[1]) >= first:
                path.unlink(missing_ok=True)

    def finish(self, restarts: int) -> dict[str, Any]:
        """Write the end result."""
        summary = summarise(self.metrics.frame(), self.decided.frame())
        summary = {"method": self.config.method.id, **summary, "restarts": restarts}

        def write() -> None:
            for table in self._tables:
                table.write()
            self.directory.finish(summary)

        self.attempt(f"results in {self.directory.path}", write)
        return summary


def traffic_of(client: int, verdict: Verdict, exchange: ExchangeLayer, sizes: Sizes) -> Traffic:
    """What a decision and its exchange cost, in the simulator's encodings; models refused were paid for too."""
    traffic = exchange.traffic(client, verdict.outcome, verdict.decision.ledger.asked, sizes)
    return replace(
        traffic,
        models=traffic.models + verdict.rejected_bytes,
        merged=traffic.merged if verdict.mix is not None else 0,
        transferred=traffic.transferred + verdict.rejected_models,
    )


def decision_row(round: int, client: int, verdict: Verdict, traffic: Traffic, digest: str) -> dict[str, Any]:
    """The audit of one decision, as the simulator writes it."""
    return audit_row(round, client, verdict.decision.hood, verdict.outcome, traffic) | {
        "restarts": verdict.restarts,
        "lost": sorted(verdict.lost),
        "digest": digest,
        "rejected": verdict.rejected_models,
    }
