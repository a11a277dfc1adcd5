"""All decisions of a round in lock-step waves.

In a wave every open decision states its request; requests are grouped by the peer that must answer, each peer answers
once in one batch, and every decision gets its rows. Which inputs share a batch is decided here, from the requests
alone and in client order, so it cannot depend on the engine. Fine-grained looks are served from blocks fetched ahead;
only what was requested is charged (the decision's own ledger does that).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from ..learning.scoring import answer_losses
from ..learning.tasks import MODEL_PARTS, Answer, InspectModels, ReadPart, Score
from ..runs.losses import Recorded
from ..selection import ME, Decision, Inspect, Probe, Read, State
from ..streams import stream
from ..topology import View, poison_row, wrong_labels
from .engines import Engine
from .privacy import peer_answers
from .world import World

__all__ = ["Waves"]

BLOCKS = (16, 32, 64, 128)  # how far ahead fine-grained looks are fetched
DIVERGED = float(np.finfo(np.float32).max)  # a training loss that is no number any more, as peers hear it
Losses = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass
class _Desk:
    """One receiver's side: its anchors and the losses fetched so far, per kind of probe."""

    anchors: Indices
    fetched: dict[tuple[str, str], Losses] = field(default_factory=dict)

    def losses(self, decision: Decision, probe: Probe) -> Losses:
        key = (probe.kind, probe.loss)
        if key not in self.fetched:
            self.fetched[key] = np.full((len(decision.hood.peers), len(self.anchors)), np.nan)
        return self.fetched[key]


@dataclass(frozen=True)
class _Errand:
    """What one receiver wants from one peer in this wave: these anchors, scored this way."""

    client: int
    row: int
    peer: int
    columns: Indices
    probe: Probe


class Waves:
    """Drives the decisions of one round to their end."""

    def __init__(
        self,
        world: World,
        engine: Engine,
        view: View,
        round: int,
        losses: Mapping[int, float],
        samples: Mapping[int, int],
        states: Mapping[int, State],
    ) -> None:
        self.world, self.engine, self.view, self.round = world, engine, view, round
        self.training_losses, self.samples, self.states = losses, samples, states
        self._desks: dict[int, _Desk] = {}
        self._ages = {
            (k, int(j)): int(age)
            for k in range(world.clients)
            for j, age in zip(view.peers(k), view.ages(k), strict=True)
        } if world.links.history else {}  # fmt: skip

    @property
    def ages(self) -> Mapping[tuple[int, int], int]:
        """How stale each stale link is."""
        return self._ages

    def run(self, decisions: Mapping[int, Decision]) -> None:
        """Answer every request until no decision is open."""
        opened = {client: d for client, d in sorted(decisions.items()) if d.request is not None}
        while opened:
            self._probe({c: d for c, d in opened.items() if isinstance(d.request, Probe)})
            self._inspect({c: d for c, d in opened.items() if isinstance(d.request, Inspect)})
            self._read({c: d for c, d in opened.items() if isinstance(d.request, Read)})
            opened = {client: d for client, d in opened.items() if d.request is not None}

    # For the record -----------------------------------------------------------------------------------------------

    def asked(self, decisions: Mapping[int, Decision]) -> list[Recorded]:
        """The losses that decisions paid for, scaled to [0, 1]; of several kinds of probe the first one used."""
        records = []
        for client, decision in sorted(decisions.items()):
            for key, book in list(decision.ledger.books.items())[:1]:
                losses = np.where(np.isnan(book), np.nan, self._desk(client).fetched[key])
                width = int(np.flatnonzero((~np.isnan(book)).any(axis=0))[-1]) + 1
                records.append(_recorded(client, decision, losses[:, :width], key))
        return records

    def complete(self, decisions: Mapping[int, Decision]) -> list[Recorded]:
        """All losses up to the largest stage, whether asked or not, charged to nobody."""
        probes: dict[int, Probe] = {}
        for client, decision in sorted(decisions.items()):
            rule = decision.selector
            schedule: Any = getattr(rule, "schedule", ())
            stop = min(max(*BLOCKS, *(schedule if isinstance(schedule, tuple) else ())), decision.hood.anchors)
            if decision.hood.peers and stop:
                probes[client] = Probe(decision.hood.peers, 0, stop, *rule.scoring)
        self._fetch([e for client, probe in probes.items() for e in self._errands(client, decisions[client], probe)])
        return [
            _recorded(
                client,
                decisions[client],
                self._desk(client).losses(decisions[client], probe)[:, : probe.stop],
                (probe.kind, probe.loss),
            )
            for client, probe in probes.items()
        ]

    # Probes -------------------------------------------------------------------------------------------------------

    def _probe(self, decisions: Mapping[int, Decision]) -> None:
        errands: list[_Errand] = []
        for client, decision in decisions.items():
            assert isinstance(decision.request, Probe)
            errands += self._errands(client, decision, decision.request)
        self._fetch(errands)
        for client, decision in decisions.items():
            probe = decision.request
            assert isinstance(probe, Probe)
            rows = [decision.ledger.rows[p] for p in probe.peers]
            losses = self._desk(client).losses(decision, probe)[rows, probe.start : probe.stop]
            decision.answer(losses * decision.selector.bound)

    def _desk(self, client: int) -> _Desk:
        if client not in self._desks:
            self._desks[client] = _Desk(self.world.anchors(client, self.round))
        return self._desks[client]

    def _errands(self, client: int, decision: Decision, probe: Probe) -> list[_Errand]:
        """What of `probe` has not been fetched yet, by peer."""
        desk = self._desk(client)
        losses = desk.losses(decision, probe)
        ahead = min([b for b in BLOCKS if b >= probe.stop] or [probe.stop])
        stop = probe.stop if probe.mask is not None else min(ahead, len(desk.anchors))
        rows = [decision.ledger.rows[peer] for peer in probe.peers]
        missing = np.isnan(losses[rows, probe.start : stop])
        if probe.mask is not None:
            missing &= probe.mask
        every = np.arange(probe.start, stop)
        errands = []
        for peer, row, lacking, count in zip(probe.peers, rows, missing, missing.sum(axis=1).tolist(), strict=True):
            if count:
                columns = every if count == len(every) else every[lacking]
                errands.append(_Errand(client, row, _number(peer), columns, probe))
        return errands

    def _fetch(self, errands: Sequence[_Errand]) -> None:
        """One batch per (peer, age, kind), in client order; scored at the receivers."""
        grouped: dict[tuple[int, int, str], list[_Errand]] = defaultdict(list)
        for errand in errands:
            grouped[(errand.peer, self._age(errand.client, errand.peer), errand.probe.kind)].append(errand)
        groups = sorted(grouped.items(), key=lambda item: item[0])
        tasks = [
            Answer(peer, self.round, age, np.concatenate([self._inputs(e) for e in group]), kind)
            for (peer, age, kind), group in groups
        ]
        answers = self.engine.map(tasks)
        told: list[tuple[_Errand, npt.NDArray[Any]]] = []
        for (_, group), answer in zip(groups, answers, strict=True):
            ends = np.cumsum([len(e.columns) for e in group])
            parts = zip(group, np.split(answer, ends[:-1]), strict=True)
            told += [(e, self._perturbed(e, self._told(e, part))) for e, part in parts]
        self._score([item for item in told if item[0].probe.kind != "latents"])
        self._score_latents([item for item in told if item[0].probe.kind == "latents"])

    def _age(self, client: int, peer: int) -> int:
        return self._ages.get((client, peer), 0)

    def _inputs(self, errand: _Errand) -> Indices:
        return self._desks[errand.client].anchors[errand.columns]

    def _told(self, errand: _Errand, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the peer says: what its model answered, or what a liar makes of that."""
        world, classes = self.world, self.world.dataset.classes
        if not (world.misbehaviour.lies and world.culprits[errand.peer]):
            return answer
        rng = stream(world.config.seed, "lies", self.round, errand.client, errand.peer, int(errand.columns[0]))
        if errand.probe.kind == "labels":
            return wrong_labels(answer, rng, classes)
        if errand.probe.kind == "probs":  # every class with the probability of another one
            shift = rng.integers(1, classes, size=(len(answer), 1))
            return np.take_along_axis(answer, (np.arange(classes) + shift) % classes, axis=1)
        return poison_row(answer, rng)  # as long as the honest latents, pointing anywhere

    def _perturbed(self, errand: _Errand, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What leaves the peer: labels through the privacy mechanism, if there is one."""
        how = self.world.mechanism
        if how is None:
            return answer
        if errand.probe.kind != "labels":
            raise ValueError(f"private answers are labels, but a rule asked for {errand.probe.kind}")
        snapshot = f"round {self.round - self._age(errand.client, errand.peer)}"
        layer = peer_answers(how, self.world.config.seed, errand.peer)
        return layer.answer(answer, snapshot, self._inputs(errand))

    def _score(self, told: Sequence[tuple[_Errand, npt.NDArray[Any]]]) -> None:
        """Labels and log-probabilities, scored at the receiver."""
        how = self.world.mechanism
        for errand, answer in told:
            truth, probe = self.world.dataset.train_y[self._inputs(errand)], errand.probe
            if how is not None:
                self._file(errand, how.losses(answer, truth))
            else:
                self._file(errand, answer_losses(answer, truth, probe.kind, probe.loss))

    def _score_latents(self, told: Sequence[tuple[_Errand, npt.NDArray[Any]]]) -> None:
        """Latents go through the receiver's own head, all that it got about the same anchors in one call."""
        grouped: dict[tuple[int, str, bytes], list[tuple[_Errand, npt.NDArray[Any]]]] = defaultdict(list)
        for errand, z in told:
            grouped[errand.client, errand.probe.loss, errand.columns.tobytes()].append((errand, z))
        tasks = [
            Score(client, self.round, np.stack([z for _, z in group]), self._inputs(group[0][0]), loss)
            for (client, loss, _), group in grouped.items()
        ]
        for group, losses in zip(grouped.values(), self.engine.map(tasks), strict=True):
            for (errand, _), row in zip(group, losses, strict=True):
                self._file(errand, row)

    def _file(self, errand: _Errand, losses: npt.ArrayLike) -> None:
        """Put an errand's losses on the receiver's desk; whoever flatters found the answers that please it."""
        if self.world.misbehaviour.flatters and self.world.culprits[errand.peer]:
            losses = 0.0
        desk = self._desks[errand.client]
        desk.fetched[(errand.probe.kind, errand.probe.loss)][errand.row, errand.columns] = losses

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
            models = [None if p == ME else (_number(p), self._age(client, _number(p))) for p in wanted]
            at = {p: i for i, p in enumerate(wanted)}
            groups = None if asked.groups is None else [[at[p] for p in g] for g in asked.groups]
            tasks.append(InspectModels(client, self.round, models, groups, indices, asked.metric))
        for decision, answer in zip(decisions.values(), self.engine.map(tasks), strict=True):
            decision.answer(answer)

    def _read(self, decisions: Mapping[int, Decision]) -> None:
        asked: dict[int, tuple[str, list[int]]] = {}
        for client, decision in decisions.items():
            assert isinstance(decision.request, Read)
            peers = [client if p == ME else _number(p) for p in decision.request.peers]
            asked[client] = (decision.request.what, peers)
        parts = sorted(
            {(p, what, self._age(c, p)) for c, (what, peers) in asked.items() if what in MODEL_PARTS for p in peers}
        )
        read = self.engine.map([ReadPart(p, self.round, what, age) for p, what, age in parts])
        models: dict[tuple[int, str, int], Any] = dict(zip(parts, read, strict=True))
        for client, (what, peers) in asked.items():
            known = what in MODEL_PARTS
            found = [models[p, what, self._age(client, p)] if known else self._published(p, what) for p in peers]
            decisions[client].answer(found)

    def _published(self, peer: int, what: str) -> Any:
        """A number a peer gives away; anything not known here is what its method keeps, 0 before it has kept it."""
        if what == "degree":
            return len(self.view.peers(peer))  # of the round: the neighbours that are there
        if what == "loss":
            loss = self.training_losses[peer]
            return loss if isfinite(loss) else DIVERGED
        return self.samples[peer] if what == "samples" else self.states.get(peer, {}).get(what, 0.0)


def _recorded(client: int, decision: Decision, losses: Losses, scoring: tuple[str, str]) -> Recorded:
    return Recorded(client, np.array(decision.hood.peers, dtype=np.int32), decision.hood.anchors, losses, scoring)


def _number(peer: object) -> int:
    assert isinstance(peer, int)
    return peer
