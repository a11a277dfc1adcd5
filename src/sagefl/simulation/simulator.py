"""The round loop: train, publish, decide, mix, measure, record; and how a run starts, stops and goes on.

A round's way: every client trains in place and publishes its row; all decisions advance in lock-step waves on the
published rows; all mixing reads the same snapshot; metrics and the audit of every decision are recorded.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from ..errors import UsageError
from ..exchange import delivered
from ..learning.tasks import Ensemble, InspectModels, Train
from ..methods import Method, method
from ..references import place
from ..runs import checkpoint
from ..runs.columns import Errors, Evaluated, Evaluation
from ..runs.config import Execution, RunConfig
from ..runs.files import RunError, explained, write_text
from ..runs.losses import Recorded, losses_path, write_losses
from ..runs.names import write_names
from ..runs.recording import Clock
from ..runs.rundir import RunDirectory
from ..runs.truth import write_truth
from ..selection import Decision, Outcome, State
from ..selection.outcome import decode, encode
from ..signals import stoppable
from .engines import Engine, make_engine
from .engines.base import LostRowsError
from .evaluation import Measured, ProxyCheck, check_proxy, diversity, evaluate
from .extending import extend, last_round
from .misbehaving import betray
from .own_pace import OwnPace
from .privacy import PrivacyLedger
from .recording import Round, SimulationRecorder
from .timing import RoundClock, among, refuse_rounds
from .waves import RoundSight, Waves
from .world import World

logger = logging.getLogger(__name__)

LOSSES = 3  # how often in a row a run goes back to the same checkpoint before it gives up


class InterruptedRunError(RunError):
    """The run was asked to stop and has left a checkpoint."""


class Callback(Protocol):
    """Somebody who follows a run: progress bars, experiment trackers."""

    def start(self, config: RunConfig, first_round: int) -> None:
        """The run begins, or goes on at `first_round`."""

    def round(self, record: Mapping[str, Any]) -> None:
        """A round is done; `record` is its row of metrics."""

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """The run is over: finished with `summary`, or stopped before its end (None). Always called after `start`."""


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
        fresh: bool = False,
        extends: bool = False,
    ) -> None:
        self.config, self.directory, self.fresh, self.extends = config, directory, fresh, extends
        self.execution = execution or Execution()
        unused = self._new_method()  # before the world: a mistake shows at once
        self.world = world or World.build(config)
        self.callbacks = callbacks
        self._told = 0  # rounds that callbacks have been told about
        self._stop = threading.Event()
        self._begin_with(unused)

    def _new_method(self) -> Method:
        made = method(self.config.method.id, **self.config.method.options)
        return made.asked_in(self.config.data.anchor_order)

    def _begin_with(self, fresh: Method) -> None:
        """Reset everything that accumulates over rounds."""
        graded = self.world.dataset.clipped_at is not None
        self.method = fresh.answered_privately(self.world.mechanism)
        self.method.suited(latents=self.world.has_latents, graded=graded)
        self.world.try_loss(self.method.selector.scorings)
        if self.method.needs_truth:
            self.method.tell(self.world.truth.helps)
        self._price = self.world.sizes.price(self.method.selector.scoring)
        self.privacy: PrivacyLedger | None = None
        if (how := self.world.mechanism) is not None:
            self.privacy = PrivacyLedger(how.epsilon, self.world.clients)
        self.states: dict[int, State] = {}
        self.timing = self._new_clock()
        memory = self.method.selector.remembers
        self.recorder = SimulationRecorder(self.directory, self.world, self.method.exchange, memory=memory)

    def _new_clock(self) -> RoundClock | OwnPace | None:
        """Virtual time from its beginning, where the config has a clock."""
        machines, schedule = self.world.machines, self.config.clock.schedule
        if schedule != "rounds":
            refuse_rounds(self.method, schedule)
        if machines is None:
            return None
        return OwnPace(self, machines) if schedule == "async" else RoundClock(self.world, machines)

    @property
    def asked_to_stop(self) -> bool:
        """Whether a signal asked this run to stop, however it ended; then a caller that runs several stops, too."""
        return self._stop.is_set()

    # A run --------------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Run to the end (going on from the newest good checkpoint, if any) and return the summary.

        The engine comes before the directory, so that one that cannot be made (a missing device) leaves nothing. If
        `fresh`, whatever run is there makes way; if `extends`, it is this one with fewer rounds and goes on.
        """
        if not self.fresh and not self.extends:
            self.directory.check(self.config)
        engine = make_engine(
            self.execution.engine,
            self.world,
            self.method.training,
            workers=self.execution.workers,
            device=self.execution.device,
            ray_address=self.execution.ray_address,
            extras=self.method.exchange.extras(self.world.layout.width, self.world.layout.shared_stop),
        )
        try:
            if self.fresh and (self.directory.path / "run.toml").is_file():
                self.directory.clear()
            if self.extends:
                extend(self.directory, self.config)
            self.directory.prepare(self.config, **_described(engine))
            with self._undone_if_mistaken(), self.directory.locked(), stoppable(self._asked):
                write_truth(self.directory.path, self.world.truth)
                write_names(self.directory.path, self.world.names)
                return self._run(engine)
        finally:
            engine.close()

    @contextmanager
    def _undone_if_mistaken(self) -> Iterator[None]:
        """Leave nothing in the way of a corrected rule where a mistake in it ends a run that has no checkpoint yet."""
        try:
            yield
        except LostRowsError:  # nobody's mistake, whoever's engine lost them
            raise
        except Exception as error:
            mistaken = isinstance(error, UsageError) or place(error) is not None
            if mistaken and not checkpoint.any_of(self.directory.path):
                self.directory.clear()
                with suppress(OSError):  # somebody's own files are there
                    self.directory.path.rmdir()
            raise

    def _asked(self) -> None:
        self._stop.set()
        logger.warning("stopping after this round; once more stops at once")

    def _run(self, engine: Engine) -> dict[str, Any]:
        first = self._resume(engine)
        summary = None
        for callback in self.callbacks:
            callback.start(self.config, first)
        try:
            self._keep_going(engine, first)
            summary = self._finish()
            return summary
        finally:
            for callback in self.callbacks:
                callback.end(summary)

    def _keep_going(self, engine: Engine, first: int) -> None:
        """Run all rounds; if rows are lost with the workers that held them, go back to the last checkpoint."""
        losses = 0
        while True:
            try:
                self._rounds(engine, first)
                return
            except LostRowsError as lost:
                back = self._go_back(engine, lost)
                losses = losses + 1 if back == first else 1
                if losses > LOSSES:
                    raise
                first = back

    def _go_back(self, engine: Engine, lost: LostRowsError) -> int:
        """Restore the last checkpoint on new workers, of which more may be lost meanwhile."""
        for _ in range(LOSSES):
            logger.warning("%s; going back to the last checkpoint", lost)
            self.directory.event("lost", why=str(lost))
            try:
                lost.rebuild()
                self._begin_with(self._new_method())
                return self._resume(engine)
            except LostRowsError as again:
                lost = again
        raise lost

    def _rounds(self, engine: Engine, first: int) -> None:
        rounds, every = self.config.rounds, self.execution.checkpoint_every
        for done in range(first + 1, rounds + 1):
            clock = Clock()
            happened = self._round(engine, done - 1, clock)
            record = self._record(happened, clock)
            if done == rounds:
                self._keep_last_round(happened)
            for callback in self.callbacks if done > self._told else ():
                callback.round(record)
            self._told = max(self._told, done)
            stopping = self._stop.is_set() and done < rounds
            if due := done == rounds or stopping or done % every == 0:
                with clock.phase("checkpoint"):
                    self._checkpoint(engine, done)
            elif happened.measured is not None:
                with clock.phase("record"):
                    self.recorder.write()
            self.recorder.time(done - 1, clock, write=due)
            if stopping:
                self.directory.event("interrupted", round=done)
                raise InterruptedRunError(
                    f"stopped after round {done} of {rounds}; go on with: sagefl resume {self.directory.path}"
                )

    def _finish(self) -> dict[str, Any]:
        summary = {"method": self.config.method.id, **self.recorder.summary()}
        with explained(f"results in {self.directory.path}"):
            self.directory.finish(summary)
        checkpoint.keep_last(self.directory.path, self.config.rounds)
        self.directory.event("finished", rounds=self.config.rounds)
        return summary

    def _keep_last_round(self, happened: Round) -> None:
        """For whoever wants more rounds later."""
        kept = last_round(happened.measured, due=self.config.rounds % self.config.evaluation.every == 0)
        with explained(f"results in {self.directory.path}"):
            write_text(self.directory.path / "last-round.json", json.dumps(kept))

    # One round ----------------------------------------------------------------------------------------------------

    def _round(self, engine: Engine, number: int, clock: Clock) -> Round:
        layer, timing = self.method.exchange, self.timing
        if isinstance(timing, OwnPace):
            return timing.round(engine, number, clock)
        with clock.phase("train"):
            view = self.world.view(number)
            active: list[list[int]] = [view.peers(k).tolist() for k in range(self.world.clients)]
            there = range(self.world.clients) if timing is None else timing.begin()
            peers = active if len(there) == len(active) else among(active, there)
            trained = self._train(engine, number, peers, there)
        losses = {k: loss for k, (loss, _) in trained.items()}
        self.recorder.say_diverged(number, losses)
        samples = {k: seen for k, (_, seen) in trained.items()}
        with clock.phase("decide"):
            sight = RoundSight(number, view, losses, samples, self.states, self.world.history)
            waves = Waves(self.world, engine, sight)
            mine = self.own_risks(engine, dict.fromkeys(trained, number))
            decisions = {k: self.begin(k, number, peers[k], mine.get(k)) for k in range(self.world.clients)}
            waves.run(decisions)
        outcomes = {k: d.outcome for k, d in decisions.items()}
        with clock.phase("record"):
            self.keep_losses(number, self.records(decisions, waves))
        with clock.phase("evaluate"):
            before = self._before_mixing(engine, number, outcomes, peers, sight.ages)
        with clock.phase("mix"):
            mixes = layer.resolve(delivered(outcomes, peers), sight.ages, self.config.training.mixing)
            layer.mix(engine, number, mixes)
        with clock.phase("evaluate"):
            measured = self._after_mixing(engine, number, before)
        times = {} if timing is None else timing.end(
            {k: waves.scripts.of(k, decisions[k], self.recorder.traffic(k, decisions[k])) for k in sorted(there)},
            [k for k in there if len(peers[k]) < len(active[k])],
        )  # fmt: skip
        proxies = before[1] if before else {}
        self.remember(decisions)
        rows = [self.recorder.row(number, k, d, proxies.get(k), times.get(k, {})) for k, d in decisions.items()]
        facts = {} if timing is None else {"minutes": timing.minutes}
        return Round(number, list(losses.values()), sum(samples.values()), rows, measured, facts)

    def remember(self, decisions: Mapping[int, Decision]) -> None:
        """Keep what the rule remembers of finished decisions, and what answering them gave away."""
        for client, decision in decisions.items():
            if decision.outcome.state is not None:
                self.states[client] = decision.outcome.state
        if self.privacy is not None:
            self.privacy.enter(decisions)

    def _train(
        self, engine: Engine, number: int, peers: Sequence[Sequence[int]], there: Collection[int]
    ) -> dict[int, tuple[float, int]]:
        """Everybody who is in time trains, group by group where the exchange says so, and publishes."""
        layer = self.method.exchange
        trained: dict[int, tuple[float, int]] = {}
        for everybody in layer.groups(peers, number):
            group = [k for k in everybody if k in there]
            layer.reuse(engine, number, group, peers)
            roles = self.world.federation.roles
            results = engine.map([Train(k, number, len(roles[k].train)) for k in group])
            trained.update(zip(group, results, strict=True))
        layer.publish(engine, self.world.clients, number)
        betray(self.world, engine, dict.fromkeys(sorted(trained), number))
        return dict(sorted(trained.items()))

    def own_risks(self, engine: Engine, turns: Mapping[int, int]) -> Mapping[int, float]:
        """Which share of its pool each client's own model gets wrong, for rules that ask; none with noisy answers."""
        if not self.method.selector.wants_mine or self.world.mechanism is not None:
            return {}
        roles = self.world.federation.roles
        pools = {k: roles[k].anchor for k in turns if len(roles[k].anchor)}
        risks = engine.map([InspectModels(k, turns[k], [None], None, pool, "error") for k, pool in pools.items()])
        return {k: float(risk[0]) for k, risk in zip(pools, risks, strict=True)}

    def begin(
        self, client: int, number: int, peers: Sequence[int], mine: float | None, ages: Sequence[float] = ()
    ) -> Decision:
        """Begin a client's decision among these peers."""
        return self.method.selector.begin(
            peers,
            len(self.world.federation.roles[client].anchor),
            (self.config.seed, number, client),
            state=self.states.get(client),
            round=number,
            rounds=self.config.rounds,
            me=client,
            ever=int(self.world.graph.degrees[client]),
            price=self._price,
            mine=mine,
            ages=ages,
        )

    def records(self, decisions: Mapping[int, Decision], waves: Waves) -> list[Recorded]:
        """The losses of decisions that are to be kept."""
        wanted = self.config.evaluation.losses
        if wanted == "none":
            return []
        return waves.complete(decisions) if wanted == "full" else waves.asked(decisions)

    def keep_losses(self, number: int, records: Sequence[Recorded]) -> None:
        """Write a round's losses, if there are any."""
        if records:
            with explained(f"losses of round {number + 1}"):
                how = self.world.mechanism
                classes = None if how is None else how.classes
                write_losses(losses_path(self.directory.path, number), records, classes)

    # Measuring and writing down -----------------------------------------------------------------------------------

    def _before_mixing(
        self,
        engine: Engine,
        number: int,
        outcomes: Mapping[int, Outcome],
        peers: Sequence[Sequence[int]],
        ages: Mapping[tuple[int, int], int],
    ) -> tuple[Evaluation | Errors, Mapping[int, ProxyCheck]] | None:
        """Evaluate the trained models and the choices among them, where an evaluation is due."""
        options, last = self.config.evaluation, number + 1 == self.config.rounds
        if not (last or (number + 1) % options.every == 0):
            return None
        before = evaluate(self.world, engine, self.world.test_sets(last))
        if self.along(number):
            self._before_along = evaluate(self.world, engine, self.world.test_sets(False))
        proxies: Mapping[int, ProxyCheck] = {}
        if options.mechanisms:
            proxies = check_proxy(
                self.world, engine, dict.fromkeys(outcomes, number), outcomes, peers, ages, self.method.selector
            )
        return before, proxies

    def _after_mixing(
        self, engine: Engine, number: int, before: tuple[Evaluation | Errors, Mapping[int, ProxyCheck]] | None
    ) -> Measured | None:
        """Evaluate the mixed models, if the trained ones were evaluated."""
        if before is None:
            return None
        tests = self.world.test_sets(number + 1 == self.config.rounds)
        together = {k: Ensemble(number, members) for k, members in self.method.exchange.ensembles().items()}
        after = evaluate(self.world, engine, tests, together)
        spread = diversity(self.world, engine) if self.config.evaluation.mechanisms else None
        images = max(map(len, tests))
        if not self.along(number):
            return Measured(images, *before, after=after, diversity=spread)
        fewer = self.world.test_sets(False)
        along = Evaluated(self._before_along, evaluate(self.world, engine, fewer, together))
        return Measured(images, *before, after=after, diversity=spread, along=along, along_images=max(map(len, fewer)))

    def along(self, number: int) -> bool:
        """Whether this is the last round, and would be evaluated on fewer images if it were one on the way."""
        if number + 1 != self.config.rounds or self.config.rounds % self.config.evaluation.every:
            return False
        return any(
            len(a) < len(b) for a, b in zip(self.world.test_sets(False), self.world.test_sets(True), strict=True)
        )

    def _record(self, happened: Round, clock: Clock) -> dict[str, Any]:
        with clock.phase("record"):
            return self.recorder.add(happened, self.privacy.given() if self.privacy else {})

    # Stopping and going on ----------------------------------------------------------------------------------------

    @property
    def _identity(self) -> str:
        """What a checkpoint must belong to: this config in this world."""
        return f"{self.config.digest}-{self.world.digest[:16]}"

    def _checkpoint(self, engine: Engine, next_round: int) -> None:
        """Write the tables, then the checkpoint, which must never be ahead of them."""
        self.recorder.write()
        states: dict[str, Any] = {
            "clients": {str(client): encode(state) for client, state in sorted(self.states.items())},
            "exchange": encode(self.method.exchange.state()),
        }
        if self.privacy is not None:
            states["privacy"] = self.privacy.state()
        if self.timing is not None:
            states["clock"] = encode(self.timing.state())
        checkpoint.save(self.directory.path, next_round, engine.population, self._identity, states)

    def _resume(self, engine: Engine) -> int:
        """Fill the population from the newest good checkpoint, or start afresh; returns the first round to run."""
        engine.population.reset(self.world.initial)
        found, refused = checkpoint.latest(self.directory.path, self._identity)
        for why in refused:
            logger.warning("%s", why)
            self.directory.event("refused-checkpoint", why=why)
        if found is None and refused:
            raise checkpoint.CheckpointError(
                f"no good checkpoint is left in {self.directory.path}: start in another --out"
            )
        first = 0 if found is None else found.round
        self.recorder.keep_before(first, self.world.clients)
        if found is not None:
            checkpoint.restore(found, engine.population)
            self.method.exchange.load(decode(found.states["exchange"]))
            self.states = {int(client): decode(state) for client, state in found.states["clients"].items()}
            if self.privacy is not None:
                self.privacy.load(found.states["privacy"])
            if self.timing is not None:
                self.timing.load(decode(found.states["clock"]))
        else:
            self.method.exchange.begin(engine, self.world.clients)
        if found is not None:
            for what in self.directory.resumed(first + 1, **_described(engine)):
                logger.warning("the run was begun elsewhere (%s): its last digits may differ", what)
        self.directory.event("started" if first == 0 else "resumed", round=first, engine=self.execution.engine)
        return first


def _described(engine: Engine) -> dict[str, Any]:
    """The engine that is really used, whatever was asked for."""
    found: dict[str, Any] = {"engine": type(engine).__name__.removesuffix("Actors").lower()}
    for name in ("workers", "device"):
        if (value := getattr(engine, name, None)) is not None:
            found[name] = value if isinstance(value, int) else str(value)
    return found
