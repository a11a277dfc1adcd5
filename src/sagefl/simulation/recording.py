"""What a run writes down: a row per round, the audit of every decision, a row per client and evaluation, timings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ..exchange import ExchangeLayer
from ..runs.files import RunError, explained
from ..runs.rundir import CLIENTS, DECISIONS, METRICS, PRIVACY, SUMMED, TIMINGS, RunDirectory, Table, audit_row
from ..runs.summary import summarise
from ..selection import Decision, Outcome
from .evaluation import Measured, gini
from .world import World

__all__ = ["Clock", "Recorder", "Round"]


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


@dataclass(frozen=True)
class Round:
    """What happened in one round, before it is written down."""

    number: int
    losses: Mapping[int, float]
    samples: Mapping[int, int]
    decisions: Mapping[int, Decision]
    measured: Measured | None

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """Every client's finished decision."""
        return {client: decision.outcome for client, decision in self.decisions.items()}


class Recorder:
    """The tables of one run, gathered in memory and written together."""

    def __init__(self, directory: RunDirectory, world: World, layer: ExchangeLayer) -> None:
        self.directory, self.world, self.layer = directory, world, layer
        path = directory.path
        private = world.mechanism is not None
        self.metrics = Table(path / "metrics.parquet", pl.Schema({**METRICS, **PRIVACY}) if private else METRICS)
        self.decisions = Table(path / "decisions.parquet", DECISIONS)
        self.clients = Table(path / "clients.parquet", CLIENTS)
        self.timings = Table(path / "timings.parquet", TIMINGS)

    def add(self, happened: Round, privacy: Mapping[str, float]) -> dict[str, Any]:
        """Take a round down, with what the privacy account says of it; returns its row of metrics."""
        rows = [self._decision_row(happened, client) for client in happened.decisions]
        self.decisions.add(rows)
        record = {**self._metrics_row(happened, rows), **privacy}
        self.metrics.add([record])
        if happened.measured is not None:
            self.clients.add(_client_rows(happened.number, happened.measured))
        return record

    def write(self) -> None:
        """Write all tables."""
        with explained(f"tables in {self.directory.path}"):
            for table in (self.metrics, self.decisions, self.clients, self.timings):
                table.write()

    def time(self, number: int, clock: Clock, *, write: bool) -> None:
        """Take down what a round took, its checkpoint included."""
        self.timings.add([{"round": number, **clock.seconds}])
        if write:
            with explained(f"timings in {self.directory.path}"):
                self.timings.write()

    def keep_before(self, round: int) -> None:
        """Go back to the rows of the rounds before `round`."""
        for table in (self.metrics, self.decisions, self.clients, self.timings):
            table.keep_before(round)
        for table, expected in ((self.metrics, round), (self.decisions, round * self.world.clients)):
            if (found := table.frame().height) != expected:
                raise RunError(
                    f"{table.path} holds {found} of the {expected} rows up to round {round}, from which the checkpoint "
                    "goes on: it was changed or removed; start in another --out"
                )

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers."""
        return summarise(self.metrics.frame(), self.decisions.frame())

    # Rows ---------------------------------------------------------------------------------------------------------

    def _decision_row(self, happened: Round, client: int) -> dict[str, Any]:
        decision, measured = happened.decisions[client], happened.measured
        outcome = decision.outcome
        traffic = self.layer.traffic(client, outcome, decision.ledger.asked, self.world.sizes)
        proxy = measured and measured.proxies.get(client)
        return audit_row(happened.number, client, decision.hood, outcome, traffic) | {
            "eval_pulled_risk": proxy and proxy.pulled,
            "eval_gossip_risk": proxy and proxy.gossip,
            "eval_gain": _gain(client, measured) if outcome.peers else None,
            "eval_risks": proxy and proxy.risks,
        }

    def _metrics_row(self, happened: Round, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The round in numbers; evaluation columns are null where nothing was evaluated."""
        reasons = [row["reason"] for row in rows]
        record: dict[str, Any] = dict.fromkeys(METRICS)
        record |= {
            "round": happened.number,
            "train_loss": float(np.mean(list(happened.losses.values()))),
            "samples": sum(happened.samples.values()),
            "degree": sum(row["degree"] for row in rows),
        }
        record |= {name: sum(row[name] for row in rows) for name in SUMMED}
        record |= {name: reasons.count(name.removeprefix("reason_")) for name in METRICS if name.startswith("reason_")}
        if (measured := happened.measured) is not None:
            record |= measured.after.summary() | measured.before.summary("before_")
            record |= {"test_images": measured.test_images, "diversity": measured.diversity}
            if self.world.config.evaluation.mechanisms:
                record["pull_gini"] = self._concentration(happened.number)
        return record

    def _concentration(self, number: int) -> float | None:
        """Gini coefficient of how often each client was pulled since the evaluation before."""
        every = self.world.config.evaluation.every
        recent = pl.col("round") >= number // every * every
        pulled = self.decisions.frame().filter(recent & (pl.col("direction") == "pull"))
        counts = np.bincount(pulled["chosen"].explode().drop_nulls().to_numpy(), minlength=self.world.clients)
        return gini(counts)


def _gain(client: int, measured: Measured | None) -> float | None:
    """What mixing did to the client's accuracy on its own evaluation data."""
    return None if measured is None else float(measured.after.client[client] - measured.before.client[client])


def _client_rows(number: int, measured: Measured) -> list[dict[str, Any]]:
    before, after = measured.before, measured.after
    return [
        {
            "round": number,
            "client": k,
            "accuracy": float(after.accuracy[k]),
            "macro_f1": float(after.f1[k]),
            "own_accuracy": float(after.client[k]),
            "own_accuracy_before": float(before.client[k]),
        }
        for k in range(len(after.client))
    ]
