"""The round loop: train, publish, decide, mix, measure, record; and how a run starts, stops and goes on.

A round's way: every client trains in place and publishes its row; all decisions advance in lock-step waves on the
published rows; all mixing reads the same snapshot; metrics and the audit of every decision are recorded.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from ..exchange import Mix, Traffic
from ..learning.workbench import Workbench
from ..methods import Method, method
from ..selection import Decision, Outcome, State
from ..selection.outcome import decode, encode
from ..streams import stream
from ..topology import View, poison_row
from . import checkpoint
from .config import Execution, RunConfig
from .engine import Engine, make_engine
from .evaluation import Evaluation, ProxyCheck, check_proxy, diversity, evaluate, gini
from .files import RunError, explained
from .losses import Recorded, losses_path, write_losses
from .rundir import CLIENTS, DECISIONS, RunDirectory, Table
from .summary import summarise
from .waves import Waves
from .world import World

__all__ = ["Callback", "InterruptedRunError", "Simulator"]


class InterruptedRunError(RunError):
    """The run was asked to stop and has left a checkpoint."""


class Callback(Protocol):
    """Somebody who follows a run: progress bars, experiment trackers."""

    def start(self, config: RunConfig, first_round: int) -> None:
        """The run begins, or goes on at `first_round`."""

    def round(self, record: Mapping[str, Any]) -> None:
        """A round is done; `record` is its row of metrics."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run is finished."""


@dataclass
class _Clock:
    """Seconds by phase of one round."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class _Round:
    """What happened in one round, before it is written down."""

    number: int
    view: View
    losses: Mapping[int, float]
    samples: int
    decisions: Mapping[int, Decision]
    mixes: Mapping[int, Mix]
    before: Evaluation | None = None
    after: Evaluation | None = None
    proxies: Mapping[int, ProxyCheck] = field(default_factory=dict)

    @property
    def outcomes(self) -> dict[int, Outcome]:
        return {client: decision.outcome for client, decision in self.decisions.items()}


class Simulator:
    """One run in one directory."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        execution: Execution | None = None,
        *,
        world: World | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config, self.directory = config, directory
        self.execution = execution or Execution()
        self.method: Method = method(config.method.id, **config.method.options)
        self.world = world or World.build(config)
        self.callbacks = callbacks
        self.states: dict[int, State] = {}
        path = directory.path
        self.metrics = Table(path / "metrics.parquet")
        self.decided = Table(path / "decisions.parquet", DECISIONS)
        self.per_client = Table(path / "clients.parquet", CLIENTS)
        self.timings = Table(path / "timings.parquet")
        self._stop = threading.Event()

    # A run --------------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Run to the end (going on from the newest good checkpoint, if any) and return the summary."""
        self.directory.prepare(self.config)
        with self.directory.locked():
            engine = make_engine(
                self.execution.engine,
                self.world,
                self.method.training,
                workers=self.execution.workers,
                extras=self.method.exchange.extras(self.world.layout.width, self.world.layout.shared_stop),
            )
            try:
                with _stoppable(self._stop):
                    return self._run(engine)
            finally:
                engine.close()

    def _run(self, engine: Engine) -> dict[str, Any]:
        first = self._resume(engine)
        for callback in self.callbacks:
            callback.start(self.config, first)
        for number in range(first, self.config.rounds):
            clock = _Clock()
            happened = self._round(engine, number, clock)
            record = self._record(happened, clock)
            for callback in self.callbacks:
                callback.round(record)
            last = number + 1 == self.config.rounds
            if last or self._stop.is_set() or (number + 1) % self.execution.checkpoint_every == 0:
                self._checkpoint(engine, number + 1, clock)
            self.timings.add([{"round": number, **clock.seconds}])
            if self._stop.is_set() and not last:
                self.directory.event("interrupted", round=number + 1)
                raise InterruptedRunError(
                    f"stopped after round {number + 1} of {self.config.rounds}; "
                    f"go on with: sagefl resume {self.directory.path}"
                )
        return self._finish()

    def _finish(self) -> dict[str, Any]:
        with explained(f"results in {self.directory.path}"):
            self.timings.write()
            summary = summarise(self.metrics.frame(), self.decided.frame())
            summary = {"method": self.config.method.id, **summary}
            self.directory.finish(summary)
            self.directory.event("finished", rounds=self.config.rounds)
        for callback in self.callbacks:
            callback.end(summary)
        return summary

    # One round ----------------------------------------------------------------------------------------------------

    def _round(self, engine: Engine, number: int, clock: _Clock) -> _Round:
        world, config = self.world, self.config
        clients = range(world.clients)
        with clock.phase("train"):
            view = world.view(number)
            trained = self._train(engine, number, view)
        losses = {k: loss for k, (loss, _) in trained.items()}
        with clock.phase("decide"):
            waves = Waves(world, engine, view, number, losses, self.states)
            decisions = {k: self._begin(k, number, view) for k in clients}
            waves.run(decisions)
        outcomes = {k: d.outcome for k, d in decisions.items()}
        mixes = self.method.exchange.resolve(outcomes, waves.ages, config.training.mixing)
        with clock.phase("record"):
            self._keep_losses(number, decisions, waves)
        last = number + 1 == config.rounds
        due = last or (number + 1) % config.evaluation.every == 0
        before = after = None
        proxies: Mapping[int, ProxyCheck] = {}
        if due:
            with clock.phase("evaluate"):
                before = evaluate(world, engine, world.test_subset(last))
                if config.evaluation.mechanisms:
                    active = {k: [int(j) for j in view.peers(k)] for k in clients}
                    proxies = check_proxy(world, engine, number, outcomes, active)
        with clock.phase("mix"):
            self._poison(engine, number)
            self.method.exchange.mix(engine, number, mixes)
        if due:
            with clock.phase("evaluate"):
                after = evaluate(world, engine, world.test_subset(last))
        samples = sum(seen for _, seen in trained.values())
        happened = _Round(number, view, losses, samples, decisions, mixes, before, after, proxies)
        if due and config.evaluation.mechanisms:
            with clock.phase("evaluate"):
                self._diversity = diversity(world, engine)
        return happened

    def _train(self, engine: Engine, number: int, view: View) -> dict[int, tuple[float, int]]:
        """Everybody trains, group by group where the exchange says so, and publishes."""
        layer = self.method.exchange
        active = [[int(j) for j in view.peers(k)] for k in range(self.world.clients)]
        trained: dict[int, tuple[float, int]] = {}
        for group in layer.groups(active, number):
            layer.reuse(engine, number, group, active)
            sizes = [float(len(self.world.federation.roles[k].train)) for k in group]
            trained.update(zip(group, engine.map("train", [(k, number) for k in group], sizes), strict=True))
        layer.publish(engine, self.world.clients, number)
        return dict(sorted(trained.items()))

    def _begin(self, client: int, number: int, view: View) -> Decision:
        peers = tuple(int(j) for j in view.peers(client))
        pool = len(self.world.federation.roles[client].anchor)
        return self.method.selector.begin(
            peers,
            pool,
            (self.config.seed, number, client),
            state=self.states.get(client),
            round=number,
            rounds=self.config.rounds,
            me=client,
        )

    def _poison(self, engine: Engine, number: int) -> None:
        """Misbehaving peers hand over a ruined block: decided on honestly, pulled ruined."""
        rule = self.world.misbehaviour
        if rule.poisons:
            culprits = np.flatnonzero(self.world.culprits)
            calls = [(int(k), _ruin, number, self.config.seed, rule.scale, rule.poison) for k in culprits]
            engine.map("apply", calls)

    def _keep_losses(self, number: int, decisions: Mapping[int, Decision], waves: Waves) -> None:
        mode = self.config.evaluation.losses
        if mode == "none":
            return
        if mode == "full":
            kind = getattr(self.method.selector, "kind", "labels")
            books = waves.complete(decisions, 128, kind, getattr(self.method.selector, "loss", "error"))
        else:
            books = {k: book for k, d in decisions.items() for book in list(d.ledger.books.values())[:1]}
        records = [_recorded(k, decisions[k], book) for k, book in sorted(books.items())]
        if records:
            with explained(f"losses of round {number}"):
                write_losses(losses_path(self.directory.path, number), records)

    # Writing down -------------------------------------------------------------------------------------------------

    def _record(self, happened: _Round, clock: _Clock) -> dict[str, Any]:
        outcomes = happened.outcomes
        for client, outcome in outcomes.items():
            if outcome.state is not None:
                self.states[client] = outcome.state
        with clock.phase("record"):
            rows = [self._decision_row(happened, client) for client in outcomes]
            self.decided.add(rows)
            record = self._metrics_row(happened, rows)
            self.metrics.add([record])
            if happened.before is not None and happened.after is not None:
                self.per_client.add(_client_rows(happened.number, happened.before, happened.after))
                self._flush()
        return record

    def _decision_row(self, happened: _Round, client: int) -> dict[str, Any]:
        decision = happened.decisions[client]
        outcome, proxy = decision.outcome, happened.proxies.get(client)
        traffic = self._traffic(decision)
        stage = outcome.trace[-1] if outcome.trace else None
        gain = None
        if happened.before is not None and happened.after is not None and outcome.peers:
            gain = float(happened.after.client[client] - happened.before.client[client])
        return {
            "round": happened.number,
            "client": client,
            "degree": len(decision.hood.peers),
            "pool": decision.hood.anchors,
            "peers": list(decision.hood.peers),
            "chosen": list(outcome.peers),
            "weights": None if outcome.weights is None else [outcome.weights[p] for p in outcome.peers],
            "direction": outcome.direction,
            "selected": outcome.selected,
            "reason": outcome.reason.value,
            "anchors": outcome.anchors,
            "evaluations": outcome.evaluations,
            "stages": len(outcome.trace),
            "test": stage and stage.test,
            "risks": list(stage.risks) if stage and stage.risks else None,
            "advantage": stage and stage.advantage,
            "gap": stage and stage.gap,
            "radius": stage and stage.radius,
            "width": stage and stage.width,
            "next_cost": stage and stage.next_cost,
            "wealth": list(stage.wealth) if stage and stage.wealth else None,
            "threshold": stage and stage.threshold,
            "inspected": len(outcome.inspected),
            "merged": traffic.merged,
            "transferred": traffic.transferred,
            "probe_input_bytes": traffic.probe_inputs,
            "probe_answer_bytes": traffic.probe_answers,
            "model_bytes": traffic.models,
            "control_bytes": traffic.control,
            "eval_pulled_risk": proxy and proxy.pulled,
            "eval_gossip_risk": proxy and proxy.gossip,
            "eval_gain": gain,
        }

    def _traffic(self, decision: Decision) -> Traffic:
        asked = {kind: int((~np.isnan(book)).sum()) for (kind, _), book in decision.ledger.books.items()}
        return self.method.exchange.traffic(decision.outcome, asked, self.world.sizes)

    def _metrics_row(self, happened: _Round, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The round in numbers; evaluation columns are null where nothing was evaluated."""
        reasons = [row["reason"] for row in rows]
        record: dict[str, Any] = {
            "round": happened.number,
            "train_loss": float(np.mean(list(happened.losses.values()))),
            "samples": happened.samples,
            "degree": sum(row["degree"] for row in rows),
            "anchor_degree": sum(row["degree"] * row["anchors"] for row in rows),
        }
        for name in (
            "evaluations",
            "merged",
            "transferred",
            "probe_input_bytes",
            "probe_answer_bytes",
            "model_bytes",
            "control_bytes",
        ):
            record[name] = sum(row[name] for row in rows)
        record |= {f"reason_{reason}": reasons.count(reason) for reason in sorted(set(reasons))}
        if happened.before is not None and happened.after is not None:
            record |= happened.after.summary() | happened.before.summary("before_")
            record["test_images"] = len(self.world.test_subset(happened.number + 1 == self.config.rounds))
            if self.config.evaluation.mechanisms:
                record |= {"diversity": self._diversity, "pull_gini": self._concentration(happened.number)}
        return record

    def _concentration(self, number: int) -> float:
        """Gini coefficient of how often each client was pulled since the evaluation before."""
        since = number - self.config.evaluation.every
        recent = self.decided.frame().filter((pl.col("round") > since) & (pl.col("direction") == "pull"))
        pulls = recent.get_column("chosen").explode().drop_nulls().to_numpy()
        return gini(np.bincount(pulls, minlength=self.world.clients))

    # Stopping and going on ----------------------------------------------------------------------------------------

    @property
    def _identity(self) -> str:
        """What a checkpoint must belong to: this config on this data and this graph."""
        return f"{self.config.digest}-{self.world.federation.digest[:12]}-{self.world.layout.digest[:12]}"

    def _flush(self) -> None:
        with explained(f"tables in {self.directory.path}"):
            for table in (self.metrics, self.decided, self.per_client, self.timings):
                table.write()

    def _checkpoint(self, engine: Engine, next_round: int, clock: _Clock) -> None:
        with clock.phase("checkpoint"):
            self._flush()
            states = {str(client): encode(state) for client, state in sorted(self.states.items())}
            states["exchange"] = encode(self.method.exchange.state())
            checkpoint.save(self.directory.path, next_round, engine.population, self._identity, states)

    def _resume(self, engine: Engine) -> int:
        """Fill the population from the newest good checkpoint, or start afresh; returns the first round to run."""
        engine.population.reset(self.world.initial)
        found, refused = checkpoint.latest(self.directory.path, self._identity)
        for why in refused:
            self.directory.event("refused-checkpoint", why=why)
        if found is None and refused:
            raise checkpoint.CheckpointError(
                "; ".join(refused) + ": no good checkpoint is left; start in another --out"
            )
        first = 0 if found is None else found.round
        if found is not None:
            checkpoint.restore(found, engine.population)
            self.method.exchange.load(decode(found.states.pop("exchange")))
            self.states = {int(client): decode(state) for client, state in found.states.items()}
        else:
            self.method.exchange.begin(engine, self.world.clients)
        for table in (self.metrics, self.decided, self.per_client, self.timings):
            table.keep_before(first)
        self.directory.event("started" if first == 0 else "resumed", round=first, engine=self.execution.engine)
        return first


def _recorded(client: int, decision: Decision, book: npt.NDArray[np.float64]) -> Recorded:
    used = np.flatnonzero((~np.isnan(book)).any(axis=0))
    width = int(used[-1]) + 1 if len(used) else 0
    peers = np.array(decision.hood.peers, dtype=np.int32)
    return Recorded(client, peers, decision.hood.anchors, book[:, :width])


def _client_rows(number: int, before: Evaluation, after: Evaluation) -> list[dict[str, Any]]:
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


def _ruin(bench: Workbench, client: int, round: int, seed: int, scale: float, mode: Any) -> None:
    """Replace a culprit's published block by poison; what it trained itself stays."""
    published = bench.population.snapshots[bench.population.slot(round), client, bench.layout.shared]
    poisoned = poison_row(published.numpy().copy(), stream(seed, "poison", round, client), scale, mode)
    published.copy_(torch.from_numpy(poisoned))


@contextmanager
def _stoppable(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) asks for a clean stop after this round, the second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous: dict[int, Callable[..., Any] | int | None] = {
        number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
