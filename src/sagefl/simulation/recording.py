"""What the simulator records of a round: the audit of every decision, and what was measured."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import polars as pl

from ..exchange import ExchangeLayer, Traffic
from ..runs.columns import Decided, Evaluated, Writer
from ..runs.recording import Recorder
from ..runs.rundir import RunDirectory
from ..selection import Decision
from .evaluation import Measured, ProxyCheck, gini
from .world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Round:
    """What happened in one round, before it is written down."""

    number: int
    losses: Sequence[float]
    samples: int
    rows: Sequence[dict[str, Any]]  # of the audit; at their own pace, clients may have several or none
    measured: Measured | None
    facts: Mapping[str, Any]  # columns that only some runs have


class SimulationRecorder(Recorder):
    """The tables of a simulated run."""

    def __init__(self, directory: RunDirectory, world: World, layer: ExchangeLayer, *, memory: bool = False) -> None:
        special: dict[Writer, bool] = {
            "private": world.mechanism is not None,
            "world": world.special,
            "clock": world.machines is not None,
            "async": world.config.clock.schedule == "async",
            "values": world.dataset.task == "regression",
            "named": world.names is not None,
            "memory": memory,
        }
        super().__init__(directory, *(writer for writer, has in special.items() if has))
        self.world, self.layer = world, layer
        self._diverged: set[int] = set()  # clients

    def add(self, happened: Round, privacy: Mapping[str, float]) -> dict[str, Any]:
        """Record a round and what the privacy account says about it; returns its row of metrics."""
        rows, measured = happened.rows, happened.measured
        if measured is not None:
            for row in {row["client"]: row for row in rows}.values():  # the last one of each
                row["eval_gain"] = measured.gain(row["client"]) if row["chosen"] else None
        if (names := self.world.names) is not None:
            for row in rows:
                row |= {"owner": names[row["client"]], "chosen_owners": [names[p] for p in row["chosen"] or ()]}
        self.decisions.add(rows)
        facts: dict[str, Any] = {"train_loss": float(np.mean(happened.losses)), **happened.facts}
        facts |= {"round": happened.number, "samples": happened.samples, **privacy}
        if self.world.special:
            facts |= self.world.truth.pulls(rows)
        evaluated = None
        if measured is not None:
            evaluated = Evaluated(measured.before, measured.after)
            facts |= {"test_images": measured.test_images, "diversity": measured.diversity}
            if self.world.config.evaluation.mechanisms:
                facts["pull_gini"] = self._concentration(happened.number)
        return self.enter(rows, evaluated, range(self.world.clients), names, **facts)

    def say_diverged(self, number: int, losses: Mapping[int, float]) -> None:
        """Whose training loss is no longer a number, when it first happens."""
        new = {k for k, loss in losses.items() if not isfinite(loss)} - self._diverged
        if new:
            self._diverged |= new
            called = [str(k) if self.world.names is None else self.world.names[k] for k in sorted(new)]
            told = f"client{'s' if len(new) > 1 else ''} {', '.join(called[:8])}"
            why = f"training of {told}{' and others' if len(new) > 8 else ''} diverged: the loss is not a number"
            logger.warning("round %d: %s; lower training.learning_rate, or scale the data", number + 1, why)
            self.directory.event("diverged", round=number + 1, clients=sorted(new))

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers, with whom was pulled where that is recorded."""
        pulls = self.world.truth.pulls(self.decisions.frame().iter_rows(named=True)) if self.world.special else {}
        return super().summary() | pulls | self._weakest()

    def _weakest(self) -> dict[str, str]:
        """The name of the client that is worst on its own data in the end, where clients have names."""
        if self.world.names is None:
            return {}
        last = self.clients.frame().filter(pl.col("round") == pl.col("round").max())
        own, worst = ("own_mae", pl.Expr.max) if "own_mae" in last.columns else ("own_accuracy", pl.Expr.min)
        return {"weakest": str(last.filter(pl.col(own) == worst(pl.col(own)))["owner"][0])} if last.height else {}

    def traffic(self, client: int, decision: Decision) -> Traffic:
        """What a decision and its exchange cost."""
        return self.layer.traffic(client, decision.outcome, decision.ledger.asked, self.world.sizes)

    def row(
        self, number: int, client: int, decision: Decision, proxy: ProxyCheck | None, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A decision's row of the audit; what mixing gained is filled in when it has been measured."""
        traffic = self.traffic(client, decision)
        found = Decided(number, client, decision.hood, decision.outcome, traffic).row() | {
            "eval_pulled_risk": proxy and proxy.pulled,
            "eval_gossip_risk": proxy and proxy.gossip,
            "eval_risks": proxy and proxy.risks,
        }
        return found | dict(facts)

    def _concentration(self, number: int) -> float | None:
        """Gini coefficient of how often each client was pulled since the last evaluation."""
        every = self.world.config.evaluation.every
        recent = pl.col("round") >= number // every * every
        pulled = self.decisions.frame().filter(recent & (pl.col("direction") == "pull"))
        counts = np.bincount(pulled["chosen"].explode().drop_nulls().to_numpy(), minlength=self.world.clients)
        return gini(counts)
