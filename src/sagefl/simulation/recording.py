"""What the simulator records of a round: the audit of every decision, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ..exchange import ExchangeLayer
from ..runs.columns import Decided, Evaluated, Writer
from ..runs.recording import Recorder
from ..runs.rundir import RunDirectory
from ..selection import Decision, Outcome
from .evaluation import Measured, gini
from .world import World


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


class SimulationRecorder(Recorder):
    """The tables of a simulated run."""

    def __init__(self, directory: RunDirectory, world: World, layer: ExchangeLayer) -> None:
        special: dict[Writer, bool] = {"private": world.mechanism is not None, "world": world.special}
        super().__init__(directory, *(writer for writer, has in special.items() if has))
        self.world, self.layer = world, layer

    def add(self, happened: Round, privacy: Mapping[str, float]) -> dict[str, Any]:
        """Record a round and what the privacy account says about it; returns its row of metrics."""
        rows = [self._decision_row(happened, client) for client in happened.decisions]
        self.decisions.add(rows)
        facts: dict[str, Any] = {"train_loss": float(np.mean(list(happened.losses.values())))}
        facts |= {"round": happened.number, "samples": sum(happened.samples.values()), **privacy}
        if self.world.special:
            facts |= self.world.truth.pulls(rows)
        evaluated = None
        if (measured := happened.measured) is not None:
            evaluated = Evaluated(measured.before, measured.after)
            facts |= {"test_images": measured.test_images, "diversity": measured.diversity}
            if self.world.config.evaluation.mechanisms:
                facts["pull_gini"] = self._concentration(happened.number)
        return self.enter(rows, evaluated, range(self.world.clients), **facts)

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers, with whom was pulled where that is recorded."""
        pulls = self.world.truth.pulls(self.decisions.frame().iter_rows(named=True)) if self.world.special else {}
        return super().summary() | pulls

    def _decision_row(self, happened: Round, client: int) -> dict[str, Any]:
        decision, measured = happened.decisions[client], happened.measured
        outcome = decision.outcome
        traffic = self.layer.traffic(client, outcome, decision.ledger.asked, self.world.sizes)
        proxy = measured and measured.proxies.get(client)
        return Decided(happened.number, client, decision.hood, outcome, traffic).row() | {
            "eval_pulled_risk": proxy and proxy.pulled,
            "eval_gossip_risk": proxy and proxy.gossip,
            "eval_gain": _gain(client, measured) if outcome.peers else None,
            "eval_risks": proxy and proxy.risks,
        }

    def _concentration(self, number: int) -> float | None:
        """Gini coefficient of how often each client was pulled since the last evaluation."""
        every = self.world.config.evaluation.every
        recent = pl.col("round") >= number // every * every
        pulled = self.decisions.frame().filter(recent & (pl.col("direction") == "pull"))
        counts = np.bincount(pulled["chosen"].explode().drop_nulls().to_numpy(), minlength=self.world.clients)
        return gini(counts)


def _gain(client: int, measured: Measured | None) -> float | None:
    """What mixing did to the client's accuracy on its own evaluation data."""
    return None if measured is None else float(measured.after.client[client] - measured.before.client[client])
