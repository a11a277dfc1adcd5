"""The node: train, publish, find who is there, decide, pull, verify, mix, checkpoint, record; at its own pace.

The service answers from published snapshots in other threads meanwhile. Neighbours that fail cost a restart of the
decision at most; no neighbour at all, and the node goes on training.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from ..data import Dataset
from ..exchange import Sizes
from ..learning.corpus import copies
from ..records import type_name
from ..runs.columns import Errors, Evaluated, Evaluation, Writer
from ..runs.recording import Clock
from ..selection import Decision, State
from ..selection.outcome import decode, encode
from ..selection.private import OF_COPIES, PrivateAnswers
from .acceptance import Acceptance
from .account import KeptAccount, beside, secret_beside
from .audit import FILE, Audit, row_hash
from .client import PeerClient
from .config import NodeConfig
from .deciding import Consultation, ConsultationResult, Neighbour
from .errors import Fault
from .identity import Identity
from .journal import Journal
from .learner import Learner
from .metrics import Metrics
from .neighbourhood import Neighbourhood
from .recording import NodeRecorder, decision_row, traffic_of
from .service import Published, Server
from .setting import check_setting, pulling_method
from .snapshots import Snapshots
from .status import write_status
from .verify import Norms, fits
from .watch import Watch


class _AbandonedError(Exception):
    """A round that is not finished because the node is to stop."""


class Node:
    """One peer of a federation."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        insecure: bool = False,
        dataset: Dataset | None = None,
        echo: TextIO | None = None,
    ) -> None:
        self.config = config
        self.identity = None if insecure else Identity.load(Path(config.identity))
        check_setting(config, self.identity, insecure=insecure)
        self.stopping = threading.Event()
        self.journal = Journal(Path(config.directory) / "events.log", echo)
        data = (config.data.load() if dataset is None else config.data.meant(dataset)).narrowed()
        self.method = pulling_method(config, data.classes)
        self.learner = Learner(config, self.method, data)
        self.learner.outputs.try_loss(self.method.selector.scorings, data.train_y)
        self.mechanism = config.mechanism(self.learner.dataset.classes)
        latents = self.mechanism is None and self.learner.latent_shape is not None
        self.method.suited(latents=latents, graded=data.clipped_at is not None)
        special: dict[Writer, bool] = {"values": data.task == "regression", "memory": self.method.selector.remembers}
        self.recorder = NodeRecorder(config, self.mechanism, self.journal, special)
        self.audit = Audit(Path(config.directory) / FILE)
        self.metrics = Metrics()
        self.published = self._published()
        self.around = Neighbourhood(config, self.identity, self.journal, self.learner, self._describe)
        self.gate, self.clients, self.presence = self.around.gate, self.around.clients, self.around.presence
        self.norms = Norms(self.learner.layout, self.learner.kept(), config.exchange)
        self.acceptance = Acceptance(config, self.learner, self.around, self.journal)
        self._watch = Watch()
        self._deciding = self._abandoned = False
        self.state: State | None = None
        self.round = 0
        self._coming: list[int] = []  # neighbours that start at the same time
        self._restarts = 0
        self._record: dict[str, Any] = {}
        self._clock = Clock()
        self.server: Server | None = None

    # Life ---------------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any] | None:
        """Run to the last round or until stopped; returns the summary, or None when stopped before the end."""
        self.recorder.prepare()
        with self.recorder.directory.locked(), self._accounting(), self._serving():
            self._resume()
            if self.round == 0:
                self._coming = self._wait_for(self.clients, lambda client: client.health().serving)
            self._rounds()
            if self.round < self.config.rounds:
                self.journal.event("interrupted", round=self.round)
                return None
            summary = self.recorder.finish(self._restarts)
            self.journal.event("finished", round=self.round)
            self._report("finished")
            self.stopping.wait(self.config.exchange.linger)
            return summary

    def stop(self) -> None:
        """Ask for a clean stop after this round, with a checkpoint and without cutting callers off.

        A decision under way has one more deadline; after that the round is given up, and a restart begins it anew.
        """
        self.stopping.set()
        if self._deciding:
            self._hurry()

    def _hurry(self) -> None:
        self._watch.later(self.config.exchange.deadline, self._give_up)

    def _give_up(self) -> None:
        self._abandoned = self._deciding
        if self._abandoned:
            for client in self.clients.values():
                client.give_up()

    def _rounds(self) -> None:
        while self.round < self.config.rounds and not self.stopping.is_set():
            began = time.monotonic()
            try:
                self._one_round()
            except _AbandonedError:
                return
            if self.round < self.config.rounds:
                self.stopping.wait(max(0.0, self.config.exchange.pace - (time.monotonic() - began)))

    @contextmanager
    def _accounting(self) -> Iterator[None]:
        """Load the privacy account before anything is answered, and close it after the last answer."""
        account = self.published.account
        if account is None:
            yield
            return
        account.load()
        try:
            yield
        finally:
            self.recorder.attempt("privacy account", account.close)

    @contextmanager
    def _serving(self) -> Iterator[None]:
        self.journal.listeners.append(self.metrics.event)
        self.gate.traffic = self._answered
        if self.identity is not None:
            self.identity.trouble = lambda why: self.journal.event("identity", why=why)
        self.server = Server(self.published, self.gate, self.identity, self.config.listen, self.around.room)
        try:
            if self.config.metrics.address is not None:
                self.metrics.serve(self.config.metrics.address)
            self.server.start()
            if self.around.members is not None:
                self.around.members.start()
            self.journal.event("serving", port=self.server.port, metrics=self.metrics.port, pid=os.getpid())
            yield
        finally:
            self.published.closing = True
            self.server.stop()
            self.around.close()
            self.metrics.close()
            self._report("stopped")
            self.journal.flush()

    def _answered(self, peer: str, method: str, received: int, sent: int) -> None:
        self.metrics.answered(peer, method, received, sent)
        self.around.called(peer)

    def _resume(self) -> None:
        """Go on from the newest checkpoint, publishing the model it holds so that neighbours find it at once."""
        self.round, states = self.recorder.resume(self.learner.population, self._checkpoint_identity)
        self.recorder.forget_losses(self.round)
        self.recorder.attempt("audit log", lambda: self.audit.resume(self.round))
        if "selector" in states:
            self.state = decode(states["selector"])
        self._restarts = int(states.get("restarts", 0))
        if "presence" in states:
            self.presence.restore(states["presence"])
            self.norms.restore(states["norms"])
        if self.round:
            self._publish(float(states.get("loss", 0.0)), int(states.get("samples", 0)))
        self.journal.event("resumed" if self.round else "started", round=self.round, name=self.config.name)
        self._look_at_anchors()
        self._report("running")

    def _look_at_anchors(self) -> None:
        """Warn of inputs that are in the pool more than once, where neighbours perturb their answers."""
        pool = self.learner.roles.anchor
        if self.mechanism is not None and (found := copies(self.learner.dataset.train_x[pool])):
            why = f"{found} of {len(pool)} anchors are copies of another: {OF_COPIES}"
            self.journal.event("copied-anchors", why=why)

    def _wait_for(self, numbers: Iterable[int], ready: Callable[[PeerClient], bool]) -> list[int]:
        """Wait for neighbours that start at the same time, as long as configured; returns those that are ready."""
        end = time.monotonic() + self.config.exchange.wait
        missing = set(numbers)
        found: list[int] = []
        while missing and time.monotonic() < end and not self.stopping.is_set():
            for number in sorted(missing):
                with suppress(Fault):
                    if ready(self.clients[number]):
                        found.append(number)
            missing -= set(found)
            if missing:
                self.stopping.wait(0.1)
        return found

    # One round ----------------------------------------------------------------------------------------------------

    def _one_round(self) -> None:
        number = self.round
        self._clock = Clock()
        self._look_at_identity()
        self.around.look(number)
        with self._clock.phase("train"):
            loss, samples = self.learner.train(number)
            self.norms.trained(self.learner.kept())
            self._publish(loss, samples)
        before = self._evaluate(number)
        with self._clock.phase("neighbours"):
            if number == 0:
                self._wait_for(self._coming, lambda client: bool(client.describe().digest))
            wire = self.around.wire_bytes()
            active = self.presence.active(number)
            self.published.degree = len(active)
        with self._clock.phase("decide"):
            result = self._decide(number, active)
        with self._clock.phase("mix"):
            result = self.acceptance.merge(number, result)
            self._note_pace(number, active, result)
        self._keep_state(result)
        after = self._evaluate(number)
        with self._clock.phase("record"):
            evaluated = None if before is None or after is None else Evaluated(before, after)
            facts = {"train_loss": loss, "samples": samples, "wire_bytes": self.around.wire_bytes() - wire}
            self._write_down(result, active, evaluated, **facts)
        self.round = number + 1
        self._checkpoint(loss, samples)
        self.metrics.round(self.round, len(active), self._record, self._clock.seconds)
        self._report("running")

    def _look_at_identity(self) -> None:
        """Take over a renewed certificate, and warn of an end that is near."""
        if self.identity is None:
            return
        if self.identity.refresh():
            self.journal.event("renewed", why=f"the certificate is valid for {self.identity.days_left:.0f} more days")
        self.metrics.certificate(self.identity.days_left)
        for kind, why in self.identity.warnings():
            if self.round == 0 or self.journal.total(kind) == 0 or self.round % 100 == 0:
                self.journal.event(kind, why=why)

    def _publish(self, loss: float, samples: int) -> None:
        self.published.snapshots.publish(self.learner.snapshot(self.round, loss, samples))
        self.published.round = self.round
        if self.published.account is not None:
            self.published.account.next_round()

    def _describe(self, client: PeerClient) -> Any:
        client.recheck()
        client.allow(inf)
        found = client.describe()
        data = self.learner.dataset
        fits(
            found,
            self.learner.layout,
            data.classes,
            data.train_x.shape[1:],
            type_name(data.train_x.dtype),
            self.mechanism,
        )
        if not found.digest:
            raise Fault("not-ready", "it has not published yet, or is shutting down")
        return found

    def _decide(self, number: int, active: Mapping[int, Neighbour]) -> ConsultationResult:
        c, anchors, rule = self.config, self.learner.anchors(number), self.method.selector
        decision: Decision = rule.begin(
            tuple(active),
            len(anchors),
            (c.seed, number, c.number),
            state=self.state,
            round=number,
            rounds=c.rounds,
            me=c.number,
            ever=self.around.ever,
            price=self.learner.sizes(self.mechanism).price(rule.scoring),
            mine=self.learner.own_risk(number) if rule.wants_mine and self.mechanism is None else None,
        )
        for neighbour in active.values():
            neighbour.client.allow(c.exchange.decision)
        with self._decision_under_way(), ThreadPoolExecutor(max(len(active), 1)) as pool:
            consultation = Consultation(
                self.learner,
                active,
                number,
                anchors,
                self.mechanism,
                pool,
                c.training.mixing,
                self.norms,
                c.limits.model_bytes,
                self._own,
                self.around.heard,
            )
            result = consultation.run(decision)
        if self._abandoned:
            raise _AbandonedError
        return result

    @contextmanager
    def _decision_under_way(self) -> Iterator[None]:
        self._deciding = True
        if self.stopping.is_set():
            self._hurry()
        try:
            yield
        finally:
            self._deciding = False

    def _note_pace(self, number: int, active: Mapping[int, Neighbour], result: ConsultationResult) -> None:
        """Leave neighbours alone that cost a decision their whole deadline."""
        for peer in active:
            if (fault := result.lost.get(peer)) is None:
                self.presence.did_well(peer, "slow")
            elif fault.slow:
                self.presence.leave_alone(peer, "slow", number)

    def _own(self, what: str) -> npt.ArrayLike:
        """What this node itself publishes, as a neighbour would read it."""
        newest = self.published.snapshots.find()
        if what in ("loss", "samples") and newest is not None:
            return newest.told(what)
        if what == "degree":
            return self.published.degree
        return np.asarray((self.state or {}).get(what, 0.0), dtype=np.float64)

    def _keep_state(self, result: ConsultationResult) -> None:
        if result.outcome.state is not None:
            self.state = result.outcome.state
            self.published.state = dict(result.outcome.state)
        self._restarts += result.restarts

    def _evaluate(self, number: int) -> Evaluation | Errors | None:
        last = number + 1 == self.config.rounds
        if not last and (number + 1) % self.config.evaluation.every:
            return None
        with self._clock.phase("evaluate"):
            return self.learner.evaluate(last=last)

    # Writing down -------------------------------------------------------------------------------------------------

    def _write_down(
        self, result: ConsultationResult, active: Mapping[int, Neighbour], evaluated: Evaluated | None, **facts: Any
    ) -> None:
        client, outcome = self.config.number, result.outcome
        traffic = traffic_of(client, result, self.method.exchange, self._sizes())
        merged = outcome.peers if result.mix is not None else ()
        digest = ",".join(active[int(p)].digest.hex() for p in merged)  # type: ignore[call-overload]
        row = decision_row(self.round, client, result, traffic, digest)
        self.recorder.decisions.add([row])
        published = self.published.snapshots.find()
        model = "" if published is None else published.digest.hex()
        entry = {"round": self.round, "row": row_hash(row), "model": model, "tested": result.tested}
        self.recorder.attempt("audit log", lambda: self.audit.enter(entry))
        record = self.recorder.enter([row], evaluated, [client], round=self.round, restarts=result.restarts, **facts)
        self.recorder.time(self.round, self._clock)
        self.recorder.losses(self.round, result)
        self._record = {**record, "reason": outcome.reason.value, "chosen": [self._name(p) for p in outcome.peers]}
        self.journal.event("round", round=self.round, **_brief(self._record))

    def _checkpoint(self, loss: float, samples: int) -> None:
        states: dict[str, Any] = {
            "restarts": self._restarts,
            "loss": float(np.nan_to_num(loss)),
            "samples": samples,
            "presence": self.presence.state(),
            "norms": self.norms.state(),
            "audit": self.audit.head,
        }
        if self.state is not None:
            states["selector"] = encode(self.state)
        with self._clock.phase("checkpoint"):
            self.published.writing = self.recorder.checkpoint(
                self.round, self.learner.population, self._checkpoint_identity, states, self.audit.flush
            )

    def _report(self, phase: str) -> None:
        """Write the status file; on a full disk it merely gets old."""
        account = self.published.account
        content: dict[str, Any] = {
            "name": self.config.name,
            "phase": phase,
            "round": self.round,
            "rounds": self.config.rounds,
            "port": self.server.port if self.server else None,
            "metrics_port": self.metrics.port or None,
            "ready": self.published.ready,
            "unwritten": self.journal.lost,
            "last": self._record,
            "restarts": self._restarts,
            "events": self.journal.totals(),
            "privacy": None if account is None else account.report(),
        }
        if account is not None:
            self.metrics.privacy(account.report())
            for peer in account.held():
                self.metrics.spent(str(peer), account.spent(peer), self.published.budget)
        self.recorder.attempt("status", lambda: write_status(Path(self.config.directory), content))

    # Pieces -------------------------------------------------------------------------------------------------------

    def _published(self) -> Published:
        c, data = self.config, self.learner.dataset
        private = account = None
        if self.mechanism is not None:
            private = PrivateAnswers(self.mechanism, secret_beside(Path(c.directory)))
            account = KeptAccount(self.mechanism.epsilon, beside(Path(c.directory), "account"))
        return Published(
            layout=self.learner.layout,
            outputs=self.learner.outputs,
            input_shape=data.train_x.shape[1:],
            dtype=type_name(data.train_x.dtype),
            limits=c.limits,
            snapshots=Snapshots(c.limits.snapshots),
            threads=c.threads,
            inspect=c.serve.inspect,
            reads=frozenset(c.serve.reads),
            private=private,
            account=account,
            budget=c.privacy.budget or inf,
            degree=len(c.neighbours),
        )

    def _sizes(self) -> Sizes:
        return self.learner.sizes(self.mechanism)

    def _name(self, peer: Any) -> str:
        return self.around.names[int(peer)]

    @property
    def _checkpoint_identity(self) -> str:
        run, learner = self.recorder.run_config, self.learner
        return f"{run.digest}-{self.config.number}-{learner.federation.digest[:12]}-{learner.layout.digest[:12]}"


def _brief(record: Mapping[str, Any]) -> dict[str, Any]:
    names = ("degree", "reason", "chosen", "evaluations", "merged", "wire_bytes", "accuracy", "mae", "train_loss")
    return {name: record.get(name) for name in names}
