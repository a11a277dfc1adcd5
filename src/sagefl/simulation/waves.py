"""All decisions that are made together, in lock-step waves.

In a wave every open decision states its request; requests are grouped by the peer that must answer, each peer answers
once in one batch, and every decision gets its rows. Which inputs share a batch is decided here, from the requests
alone and in client order, so it cannot depend on the engine. Fine-grained looks are served from blocks fetched ahead;
only what was requested is charged (the decision's own ledger does that).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..exchange.mixing import client_of
from ..learning.tasks import MODEL_PARTS, Answer, InspectModels, ReadPart, Score
from ..runs.losses import Recorded
from ..selection import ME, Decision, Inspect, Probe, Read, State
from ..selection.desk import Desk, Indices
from ..selection.private import perturbed
from ..selection.scoring import Scoring
from ..selection.theory import SCHEDULE
from ..streams import stream
from ..topology import View, false_answers
from .engines import Engine
from .privacy import peer_answers
from .scripts import Scripts
from .world import World

DIVERGED = float(np.finfo(np.float32).max)  # what peers are told where the training loss is not a number
Answers = npt.NDArray[Any]


@dataclass(frozen=True)
class _Errand:
    """What one receiver wants from one peer in this wave: these anchors, in this form."""

    client: int
    peer: int
    columns: Indices
    form: Scoring


class Sight(Protocol):
    """What those who decide together see of each other."""

    def round(self, client: int) -> int:
        """The round that the client is in."""

    @property
    def ages(self) -> Mapping[tuple[int, int], int]:
        """By how many rounds a peer's published model is behind a receiver's round; of this round where not named."""

    def told(self, client: int, peer: int, what: str) -> Any:
        """A number that a peer publishes, as a receiver sees it."""


@dataclass(frozen=True)
class RoundSight:
    """All clients in the same round."""

    number: int
    view: View
    losses: Mapping[int, float]
    samples: Mapping[int, int]
    states: Mapping[int, State]
    history: int  # how many older models are kept

    def round(self, client: int) -> int:
        """The same round for all clients."""
        return self.number

    @cached_property
    def ages(self) -> Mapping[tuple[int, int], int]:
        """How old the model is that a link carries, for links with delay."""
        if not self.history:
            return {}
        clients = range(len(self.view.indptr) - 1)
        rows = ((k, zip(self.view.peers(k), self.view.ages(k), strict=True)) for k in clients)
        return {(k, int(j)): int(age) for k, row in rows for j, age in row}

    def told(self, client: int, peer: int, what: str) -> Any:
        """A name not known here is something that the peer's method keeps, 0 until it does."""
        if what == "degree":
            return len(self.view.peers(peer))  # the neighbours that are active this round
        return published(what, self.losses.get(peer, DIVERGED), self.samples.get(peer, 0), self.states.get(peer))


def published(what: str, loss: float, samples: int, state: State | None) -> Any:
    """What a peer says of its training, or what its method keeps under this name."""
    if what == "loss":
        return loss if isfinite(loss) else DIVERGED
    return samples if what == "samples" else (state or {}).get(what, 0.0)


class Waves:
    """Drives decisions that are made together to their end."""

    def __init__(self, world: World, engine: Engine, sight: Sight) -> None:
        self.world, self.engine, self.sight = world, engine, sight
        self.scripts = Scripts(world, sight.ages)
        self._desks: dict[int, Desk] = {}
        self._anchors: dict[int, Indices] = {}  # each receiver's pool in the order of its round
        self._ages = sight.ages

    def run(self, decisions: Mapping[int, Decision]) -> None:
        """Answer every request until no decision is open."""
        opened = {client: d for client, d in sorted(decisions.items()) if d.request is not None}
        steps = ((Probe, self._probe), (Inspect, self._inspect), (Read, self._read))
        while opened:
            for kind, step in steps:
                asking = {client: d for client, d in opened.items() if isinstance(d.request, kind)}
                if self.world.machines is not None:
                    for client, decision in asking.items():  # a decision that this wave has answered may ask again
                        self.scripts.note(client, decision)
                step(asking)
            opened = {client: d for client, d in opened.items() if d.request is not None}

    # For the record -----------------------------------------------------------------------------------------------

    def asked(self, decisions: Mapping[int, Decision]) -> list[Recorded]:
        """The losses that decisions paid for, scaled to [0, 1]; of several forms of answer the first one used."""
        return [
            Recorded.of(client, decision, self.world.form(form), losses)
            for client, decision in sorted(decisions.items())
            if decision.ledger.books
            for form, losses in list(self._desk(client, decision).paid(decision.ledger).items())[:1]
        ]

    def complete(self, decisions: Mapping[int, Decision]) -> list[Recorded]:
        """All losses that the rule can reach, and at least the paper's largest stage; charged to nobody."""
        probes: dict[int, Probe] = {}
        for client, decision in sorted(decisions.items()):
            hood, rule = decision.hood, decision.selector
            stop = min(max(rule.reach, SCHEDULE[-1]), hood.anchors)
            if hood.peers and stop:
                probes[client] = Probe(hood.peers, 0, stop, rule.scoring)
        self._fetch([e for client, probe in probes.items() for e in self._errands(client, decisions[client], probe)])
        return [
            Recorded.of(client, decisions[client], self.world.form(form), desk.upto(form, probe.peers, probe.stop))
            for client, probe in probes.items()
            for form, desk in [(probe.scoring, self._desk(client, decisions[client]))]
        ]

    # Probes -------------------------------------------------------------------------------------------------------

    def _probe(self, decisions: Mapping[int, Decision]) -> None:
        errands: list[_Errand] = []
        for client, decision in decisions.items():
            assert isinstance(decision.request, Probe)
            errands += self._errands(client, decision, decision.request)
        self._fetch(errands)
        for client, decision in decisions.items():
            self._desk(client, decision).answer(decision)

    def _desk(self, client: int, decision: Decision) -> Desk:
        if client not in self._desks:
            self._anchors[client] = self.world.anchors(client, self.sight.round(client))
            self._desks[client] = Desk(decision.hood.peers, decision.hood.anchors)
        return self._desks[client]

    def _errands(self, client: int, decision: Decision, probe: Probe) -> list[_Errand]:
        """What of `probe`, or of the block it lies in, has not been fetched yet."""
        ahead = min([b for b in SCHEDULE if b >= probe.stop] or [probe.stop])
        missing = self._desk(client, decision).missing(probe, ahead)
        return [_Errand(client, client_of(peer), columns, probe.scoring) for peer, columns in missing]

    def _fetch(self, errands: Sequence[_Errand]) -> None:
        """One batch per (peer, model, kind of answer), in client order; scored at the receivers."""
        grouped: dict[tuple[int, int, str], list[_Errand]] = defaultdict(list)
        for errand in errands:
            grouped[(errand.peer, self._version(errand.client, errand.peer), errand.form.kind)].append(errand)
        groups = sorted(grouped.items(), key=lambda item: item[0])
        answers = self.engine.map(
            [
                Answer(
                    peer, version, 0, np.concatenate([self._inputs(e) for e in group]), self.world.form(group[0].form)
                )
                for (peer, version, _), group in groups
            ]
        )
        arrived: list[tuple[_Errand, Answers]] = []
        for (_, group), answer in zip(groups, answers, strict=True):
            ends = np.cumsum([len(e.columns) for e in group])
            arrived += [(e, self._sent(e, part)) for e, part in zip(group, np.split(answer, ends[:-1]), strict=True)]
        self._score([item for item in arrived if not item[0].form.at_home])
        self._score_at_home([item for item in arrived if item[0].form.at_home])

    def _age(self, client: int, peer: int) -> int:
        return self._ages.get((client, peer), 0)

    def _version(self, client: int, peer: int) -> int:
        """Of which of its rounds the peer's model is that the client sees."""
        return self.sight.round(client) - self._age(client, peer)

    def _inputs(self, errand: _Errand) -> Indices:
        return self._anchors[errand.client][errand.columns]

    def _sent(self, errand: _Errand, answer: Answers) -> Answers:
        """What leaves the peer: its model's answer, falsified if it lies, perturbed if answers are private."""
        world, how, number = self.world, self.world.mechanism, self.sight.round(errand.client)
        if world.misbehaviour.lies and world.culprits[errand.peer]:
            rng = stream(world.config.seed, "lies", number, errand.client, errand.peer, int(errand.columns[0]))
            answer = false_answers(world.form(errand.form).kind, answer, rng, world.dataset.classes)
        if how is None:
            return answer
        snapshot = f"round {self._version(errand.client, errand.peer)}"
        return peer_answers(how, world.config.seed, errand.peer).answer(answer, snapshot, self._inputs(errand))

    def _score(self, arrived: Sequence[tuple[_Errand, Answers]]) -> None:
        """Score answers for which the receiver's labels are enough."""
        for errand, answer in arrived:
            truth = self.world.dataset.train_y[self._inputs(errand)]
            self._file(errand, perturbed(self.world.form(errand.form), self.world.mechanism).losses(answer, truth))

    def _score_at_home(self, arrived: Sequence[tuple[_Errand, Answers]]) -> None:
        """Score answers through the receiver's own head: all it got about the same anchors in one task."""
        grouped: dict[tuple[int, Scoring, bytes], list[tuple[_Errand, Answers]]] = defaultdict(list)
        for errand, z in arrived:
            grouped[errand.client, errand.form, errand.columns.tobytes()].append((errand, z))
        tasks = [
            Score(
                client,
                self.sight.round(client),
                np.stack([z for _, z in group]),
                self._inputs(group[0][0]),
                self.world.form(form),
            )
            for (client, form, _), group in grouped.items()
        ]
        for group, losses in zip(grouped.values(), self.engine.map(tasks), strict=True):
            for (errand, _), row in zip(group, losses, strict=True):
                self._file(errand, row)

    def _file(self, errand: _Errand, losses: npt.ArrayLike) -> None:
        """Put losses on the receiver's desk; a flatterer's answers always turn out to be right."""
        if self.world.misbehaviour.flatters and self.world.culprits[errand.peer]:
            losses = 0.0
        self._desks[errand.client].file(errand.peer, errand.columns, errand.form, losses)

    # Inspections and readings -------------------------------------------------------------------------------------

    def _inspect(self, decisions: Mapping[int, Decision]) -> None:
        tasks = []
        for client, decision in decisions.items():
            asked = decision.request
            assert isinstance(asked, Inspect)
            roles = self.world.federation.roles[client]
            indices = roles.train if asked.split == "train" else roles.anchor
            alone = asked.groups is None or ME in asked.peers
            wanted = asked.peers if alone else (*asked.peers, ME)  # oneself may stand in any group
            models = [None if p == ME else (client_of(p), self._age(client, client_of(p))) for p in wanted]
            at = {p: i for i, p in enumerate(wanted)}
            groups = None if asked.groups is None else [[at[p] for p in g] for g in asked.groups]
            number = self.sight.round(client)
            what = (asked.metric, asked.weights, asked.whole)
            tasks.append(InspectModels(client, number, models, groups, indices, *what))
        for decision, answer in zip(decisions.values(), self.engine.map(tasks), strict=True):
            decision.answer(answer)

    def _read(self, decisions: Mapping[int, Decision]) -> None:
        asked: dict[int, tuple[str, list[int]]] = {}
        for client, decision in decisions.items():
            assert isinstance(decision.request, Read)
            peers = [client if p == ME else client_of(p) for p in decision.request.peers]
            asked[client] = (decision.request.what, peers)
        parts = sorted(
            {(p, what, self._version(c, p)) for c, (what, peers) in asked.items() if what in MODEL_PARTS for p in peers}
        )
        read = self.engine.map([ReadPart(p, version, what) for p, what, version in parts])
        models: dict[tuple[int, str, int], Any] = dict(zip(parts, read, strict=True))
        for client, (what, peers) in asked.items():
            known = what in MODEL_PARTS
            found = [
                models[p, what, self._version(client, p)] if known else self.sight.told(client, p, what) for p in peers
            ]
            decisions[client].answer(found)
