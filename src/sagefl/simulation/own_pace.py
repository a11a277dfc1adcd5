"""Clients at their own pace: everybody trains, decides and mixes in virtual time, from what is published by then.

A client that has trained publishes, and in the same moment sees of every neighbour the newest model that is published
by then. Its whole decision and its mixing are about these models; when its calls are answered and its transfers are
through, it trains again. A round of the tables is as many such turns as there are clients, in the order in which they
ended: a fast client has more of them. What is measured then are the models that clients have at that moment.

Work is done many clients at a time although time is a single line: whoever finishes training before anybody can publish
once more sees nothing that is not known already. Within such a stretch a client publishes once at most, so two
published models of each client are all that is ever in use. Pushed models alone are merged event by event, because they
may arrive within the stretch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..clock import Clockwork, Ended, Network, Trained
from ..clock.network import NetworkError
from ..exchange.mixing import Mix, client_of, resolve
from ..learning.tasks import Ensemble, Train
from ..runs.columns import Evaluated
from ..runs.losses import Recorded
from ..runs.recording import Clock
from ..selection import Decision, Outcome, Reason, State
from ..selection.scoring import filed_as
from ..topology import View
from .engines import Engine
from .evaluation import Measured, check_proxy, diversity, evaluate
from .misbehaving import betray
from .recording import Round
from .timing import moments
from .waves import Waves, published

if TYPE_CHECKING:
    from .simulator import Simulator


CLEARLY = 2.0  # how much longer than the whole run a training must take to be refused, which goes by an estimate


class Handover(NamedTuple):
    """What a client handed over at the end of a training."""

    turn: int
    at: float
    loss: float
    samples: int
    degree: int
    state: State | None  # what its rule remembered then


@dataclass(frozen=True)
class OwnSight:
    """Those who decide together, each in a round of its own."""

    turns: Mapping[int, int]
    seen: Mapping[int, Mapping[int, Handover]]  # by receiver, of each peer and of itself

    def round(self, client: int) -> int:
        """The client's own count."""
        return self.turns[client]

    @cached_property
    def ages(self) -> Mapping[tuple[int, int], int]:
        """By how many turns a peer is behind the receiver's own count; negative where it is ahead."""
        return {(k, p): self.turns[k] - seen.turn for k, peers in self.seen.items() for p, seen in peers.items()}

    def told(self, client: int, peer: int, what: str) -> Any:
        """What the peer published together with its model."""
        seen = self.seen[client][peer]
        return seen.degree if what == "degree" else published(what, seen.loss, seen.samples, seen.state)


@dataclass
class _Open:
    """A turn whose exchange is still going on."""

    row: dict[str, Any]
    trained: float
    loss: float
    samples: int
    pushed: list[int]
    recorded: Recorded | None


@dataclass
class _Sums:
    """What a round of the tables is made of."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    records: list[Recorded] = field(default_factory=list)
    samples: int = 0


class OwnPace:
    """The asynchronous part of a run."""

    def __init__(self, simulator: Simulator, machines: Network) -> None:
        self.run, self.world = simulator, simulator.world
        clients = range(self.world.clients)
        self.seconds = [machines.training(k, self.world.workload(k)) for k in clients]
        _refuse_starvation(machines, self.seconds, self.world.sizes.shared_block, simulator.config.rounds)
        self.works = Clockwork(machines)
        self._turns = [0 for _ in clients]
        self._began = [0.0 for _ in clients]
        self._shelf: list[list[Handover]] = [[] for _ in clients]  # the last two of each, the newest last
        self._inbox: list[list[int]] = [[] for _ in clients]  # who has pushed since the client's last turn
        self._open: dict[int, _Open] = {}
        self._view = lru_cache(maxsize=16)(self.world.view)
        for client in clients:
            self.works.train(client, self.seconds[client])

    # One round of the tables --------------------------------------------------------------------------------------

    def round(self, engine: Engine, number: int, clock: Clock) -> Round:
        """So many turns as there are clients, and what is measured after them."""
        sums, options = _Sums(), self.run.config.evaluation
        last = number + 1 == self.run.config.rounds
        due = last or (number + 1) % options.every == 0
        while len(sums.rows) < self.world.clients:
            event = self.works.advance()
            assert event is not None, "clients train for ever"
            if isinstance(event, Ended):
                self._end(event, number, sums)
                continue
            if event.client not in self._open:  # otherwise it was dealt with together with an earlier one
                together = self._together(event, self.world.clients - len(sums.rows))
                self._turn(engine, together, clock, check=due and options.mechanisms)
            with clock.phase("mix"):
                self._receive(engine, event)
        with clock.phase("record"):
            self.run.keep_losses(number, sums.records)
        with clock.phase("evaluate"):
            measured = self._measure(engine, number, last) if due else None
        return Round(number, sums.losses, sums.samples, sums.rows, measured, {"minutes": self.works.now / 60})

    def _together(self, first: Trained, wanted: int) -> list[Trained]:
        """Those whose training ends before anybody can publish once more, and before this round can be over.

        Whoever trains publishes again one training later at the earliest, whoever exchanges one training from now. And
        the round cannot be over while fewer turns are going on than it wants.
        """
        coming = [first, *(t for t in self.works.coming if t.client not in self._open)]
        again = [t.at + self.seconds[t.client] for t in coming]
        again += [self.works.now + self.seconds[k] for k in self._open]
        most = max(1, wanted - len(self._open))
        return [t for t in coming if t.at < min(again)][:most]

    def _end(self, ended: Ended, number: int, sums: _Sums) -> None:
        """A client is through: write its turn down, and let it train again."""
        client, turn = ended.client, self._open.pop(ended.client)
        sums.rows.append(turn.row | {"round": number} | moments(self._began[client], turn.trained, ended))
        sums.losses.append(turn.loss)
        sums.samples += turn.samples
        sums.records += [] if turn.recorded is None else [turn.recorded]
        for receiver in turn.pushed:
            if client not in self._inbox[receiver]:
                self._inbox[receiver].append(client)
        self._began[client] = ended.at
        self._turns[client] += 1
        self.works.train(client, ended.at + self.seconds[client])

    # Turns --------------------------------------------------------------------------------------------------------

    def _turn(self, engine: Engine, together: Sequence[Trained], clock: Clock, *, check: bool) -> None:
        """Train, publish, decide and mix those whose training has ended; their exchanges then take their time."""
        turns = {t.client: self._turns[t.client] for t in sorted(together)}
        roles = self.world.federation.roles
        with clock.phase("train"):
            done = engine.map([Train(k, turn, len(roles[k].train)) for k, turn in turns.items()])
            betray(self.world, engine, turns)
        trained = dict(zip(turns, done, strict=True))
        self.run.recorder.say_diverged(min(turns.values()), {k: loss for k, (loss, _) in trained.items()})
        with clock.phase("decide"):
            at = {t.client: t.at for t in together}
            sight = self._publish(at, turns, trained)
            waves = Waves(self.world, engine, sight)
            mine = self.run.own_risks(engine, turns)
            decisions = {k: self._begin(k, at[k], sight, mine.get(k)) for k in turns}
            waves.run(decisions)
        outcomes = {k: d.outcome for k, d in decisions.items()}
        hoods: list[list[int]] = [[] for _ in range(self.world.clients)]
        for k in decisions:
            hoods[k] = [p for p in sight.seen[k] if p != k]
        proxies = {}
        if check:
            rule = self.run.method.selector
            proxies = check_proxy(self.world, engine, turns, outcomes, hoods, sight.ages, rule)
        with clock.phase("mix"):
            self._mix(engine, outcomes, sight)
        recorded = {r.client: r for r in self.run.records(decisions, waves)}
        for k, decision in decisions.items():
            facts = {"turn": turns[k], "ages": decision.hood.ages}
            row = self.run.recorder.row(0, k, decision, proxies.get(k), facts)
            pushed = [client_of(p) for p in decision.outcome.peers if decision.outcome.direction == "push"]
            self._open[k] = _Open(row, at[k], *trained[k], pushed, recorded.get(k))
            self.works.act(k, waves.scripts.of(k, decision, self.run.recorder.traffic(k, decision)), at[k])
        self.run.remember(decisions)

    def _publish(
        self, at: Mapping[int, float], turns: Mapping[int, int], trained: Mapping[int, tuple[float, int]]
    ) -> OwnSight:
        """Everybody's new model stands beside the one before; who sees which goes by the time."""
        for k, turn in turns.items():
            degree = len(self._view(turn).peers(k))
            self._shelf[k].append(Handover(turn, at[k], *trained[k], degree, self.run.states.get(k)))
            del self._shelf[k][:-2]
        seen = {}
        for k in turns:
            view: View = self._view(turns[k])
            seen[k] = {int(p): found for p in view.peers(k) if (found := self._newest(int(p), at[k])) is not None}
            seen[k][k] = self._shelf[k][-1]
        return OwnSight(turns, seen)

    def _newest(self, peer: int, at: float) -> Handover | None:
        """What a peer had published by then."""
        return next((found for found in reversed(self._shelf[peer]) if found.at <= at), None)

    def _begin(self, client: int, at: float, sight: OwnSight, mine: float | None) -> Decision:
        peers = sorted(sight.seen[client].keys() - {client})
        ages = [at - sight.seen[client][p].at for p in peers]
        return self.run.begin(client, sight.turns[client], peers, mine, ages)

    def _mix(self, engine: Engine, outcomes: Mapping[int, Outcome], sight: OwnSight) -> None:
        """Merge what was pulled."""
        by_turn: dict[int, dict[int, Mix]] = {}
        pulled = {k: o for k, o in outcomes.items() if o.direction == "pull"}
        for k, mix in resolve(pulled, sight.ages, self.run.config.training.mixing).items():
            by_turn.setdefault(sight.turns[k], {})[k] = mix
        for turn, mixes in sorted(by_turn.items()):
            self.run.method.exchange.mix(engine, turn, mixes)

    def _receive(self, engine: Engine, now: Trained) -> None:
        """Merge what others have pushed by the time that a training has ended, and not only by when it was computed.

        A push may arrive between those who are dealt with together. Nobody of them publishes twice, so that what is
        newest in that moment is still there.
        """
        client, turn = now.client, self._turns[now.client]
        senders, self._inbox[client] = self._inbox[client], []
        heard = set(self._view(turn).peers(client).tolist())  # what comes over a dropped link is lost
        found = {s: self._newest(s, now.at) for s in senders if s in heard}
        ages = {(client, s): turn - seen.turn for s, seen in found.items() if seen is not None}
        pushed = {s: Outcome((client,), True, Reason.COMMITTED, direction="push") for _, s in ages}
        if mixes := resolve(pushed, ages, self.run.config.training.mixing):
            self.run.method.exchange.mix(engine, turn, mixes)

    # Measuring ----------------------------------------------------------------------------------------------------

    def _measure(self, engine: Engine, number: int, last: bool) -> Measured:
        """Measure everybody as last published, and as at this moment: the same for a client that is exchanging."""
        before, after = self._as_published(range(self.world.clients)), self._as_published(self._open)

        def both(*, last: bool) -> Evaluated:
            tests = self.world.test_sets(last)
            return Evaluated(*(evaluate(self.world, engine, tests, models) for models in (before, after)))

        found = both(last=last)
        spread = diversity(self.world, engine) if self.run.config.evaluation.mechanisms else None
        images = max(map(len, self.world.test_sets(last)))
        if not self.run.along(number):
            return Measured(images, found.before, {}, found.after, spread)
        fewer = max(map(len, self.world.test_sets(False)))
        return Measured(images, found.before, {}, found.after, spread, both(last=False), fewer)

    def _as_published(self, clients: Any) -> dict[int, Ensemble]:
        """The published models of these clients; culprits, who publish something else, are measured as they are."""
        shown = [k for k in clients if self._shelf[k] and not self.world.culprits[k]]
        return {k: Ensemble(self._shelf[k][-1].turn, [(k, 0, 1.0)]) for k in shown}

    # Stopping and going on ----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that is going on, for a checkpoint."""
        return {
            "works": self.works.state(),
            "turns": list(self._turns),
            "began": list(self._began),
            "shelf": [[tuple(found) for found in row] for row in self._shelf],
            "inbox": [list(row) for row in self._inbox],
            "open": {
                k: [turn.row, turn.trained, turn.loss, turn.samples, turn.pushed, _plain(turn.recorded)]
                for k, turn in self._open.items()
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.works.load(state["works"])
        self._turns, self._began = list(state["turns"]), list(state["began"])
        self._shelf = [[Handover(*found) for found in row] for row in state["shelf"]]
        self._inbox = [list(row) for row in state["inbox"]]
        self._open = {
            k: _Open(row, trained, loss, samples, pushed, _recorded(kept))
            for k, (row, trained, loss, samples, pushed, kept) in state["open"].items()
        }


def _plain(kept: Recorded | None) -> tuple[Any, ...] | None:
    if kept is None:
        return None
    return (kept.client, kept.peers, kept.pool, kept.losses, None if kept.scoring is None else kept.scoring.filed)


def _recorded(plain: tuple[Any, ...] | None) -> Recorded | None:
    if plain is None:
        return None
    client, peers, pool, losses, number = plain
    form = None if number is None else filed_as(number)
    return Recorded(client, np.asarray(peers, dtype=np.int32), pool, losses, form)


def _refuse_starvation(machines: Network, training: Sequence[float], size: float, rounds: int) -> None:
    """Refuse a run that would be over before a client has trained once, or has given away or got a single model."""
    clients = range(len(training))
    turns = [training[k] + machines.pulling(k, size) for k in clients]
    ends = len(turns) * rounds / sum(1 / turn for turn in turns)  # about when everybody's turns add up to the run
    slowest = max(clients, key=training.__getitem__)
    if training[slowest] > CLEARLY * ends:
        raise NetworkError(
            f"client {slowest} trains for {training[slowest]:.3g} s, but the others have finished the run after "
            f"about {ends:.3g} s: it would never take part; give it a faster machine, or raise rounds"
        )
    handing = [machines.handing(k, size) for k in clients]
    narrowest = max(clients, key=handing.__getitem__)
    if handing[narrowest] > CLEARLY * ends:
        raise NetworkError(
            f"a model takes {handing[narrowest]:.3g} s on the link of client {narrowest}, but the others have finished "
            f"the run after about {ends:.3g} s: whoever deals with it would wait to the end; give it a better link, or "
            "raise rounds"
        )
