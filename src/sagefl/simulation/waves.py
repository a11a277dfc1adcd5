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
from typing import Any

import numpy as np
import numpy.typing as npt

from ..selection import ME, Decision, Inspect, Probe, Read, State
from ..streams import stream
from ..topology import View, flattering, wrong_labels
from .engine import Engine
from .world import World

__all__ = ["Waves"]

BLOCKS = (16, 32, 64, 128)  # how far ahead fine-grained looks are fetched
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
        states: Mapping[int, State],
    ) -> None:
        self.world, self.engine, self.view, self.round = world, engine, view, round
        self.training_losses, self.states = losses, states
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

    def complete(self, decisions: Mapping[int, Decision], upto: int, kind: str, loss: str) -> dict[int, Losses]:
        """All losses up to `upto` anchors whether asked or not: for the record, charged to nobody."""
        errands: list[_Errand] = []
        for client, decision in sorted(decisions.items()):
            peers, stop = decision.hood.peers, min(upto, decision.hood.anchors)
            if peers and stop:
                probe = Probe(peers, 0, stop, kind, loss)  # type: ignore[arg-type]
                errands += self._errands(client, decision, probe)
        self._fetch(errands)
        return {
            client: self._desk(client).fetched[(kind, loss)][:, : min(upto, d.hood.anchors)]
            for client, d in decisions.items()
            if d.hood.peers and d.hood.anchors
        }

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
        errands = []
        for i, peer in enumerate(probe.peers):
            row = decision.ledger.rows[peer]
            missing = np.isnan(losses[row, probe.start : stop])
            if probe.mask is not None:
                missing &= probe.mask[i]
            if missing.any():
                columns = probe.start + np.flatnonzero(missing)
                errands.append(_Errand(client, row, _number(peer), columns, probe))
        return errands

    def _fetch(self, errands: Sequence[_Errand]) -> None:
        """One batch per (peer, age, kind), in client order; scored at the receivers."""
        groups: dict[tuple[int, int, str], list[_Errand]] = defaultdict(list)
        for errand in errands:
            groups[(errand.peer, self._ages.get((errand.client, errand.peer), 0), errand.probe.kind)].append(errand)
        calls, weights = [], []
        for (peer, age, kind), group in sorted(groups.items()):
            inputs = np.concatenate([self._desks[e.client].anchors[e.columns] for e in group])
            calls.append((peer, self.round, age, inputs, kind))
            weights.append(float(len(inputs)))
        answers = self.engine.map("answer", calls, weights)
        latents: list[tuple[_Errand, npt.NDArray[np.float32]]] = []
        for (_, group), answer in zip(sorted(groups.items()), answers, strict=True):
            at = 0
            for errand in group:
                part = answer[at : at + len(errand.columns)]
                at += len(errand.columns)
                if errand.probe.kind == "latents":
                    latents.append((errand, part))
                else:
                    self._file(errand, self._score(errand, part))
        self._score_latents(latents)

    def _file(self, errand: _Errand, losses: npt.ArrayLike) -> None:
        desk = self._desks[errand.client]
        desk.fetched[(errand.probe.kind, errand.probe.loss)][errand.row, errand.columns] = losses

    def _score(self, errand: _Errand, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Labels or log-probabilities scored at home; misbehaving peers lie first."""
        truth = self.world.dataset.train_y[self._desks[errand.client].anchors[errand.columns]]
        if errand.probe.kind == "labels":
            return np.asarray(self._as_told(errand, answer, truth) != truth)
        if errand.probe.loss == "error":
            return np.asarray(self._as_told(errand, answer.argmax(1), truth) != truth)
        ceiling = 2 * np.log(self.world.dataset.classes)
        return np.asarray(np.minimum(-answer[np.arange(len(truth)), truth], ceiling) / ceiling)

    def _as_told(self, errand: _Errand, labels: npt.NDArray[Any], truth: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """What a misbehaving peer says instead of what its model answered."""
        world = self.world
        if not world.culprits[errand.peer]:
            return labels
        if world.misbehaviour.lies:
            key = (self.round, errand.client, errand.peer, int(errand.columns[0]))
            return wrong_labels(labels, stream(world.config.seed, "lies", *key), world.dataset.classes)
        return flattering(labels, truth) if world.misbehaviour.flatters else labels

    def _score_latents(self, items: Sequence[tuple[_Errand, npt.NDArray[np.float32]]]) -> None:
        calls = [
            (e.client, self.round, z[None], self._desks[e.client].anchors[e.columns], e.probe.loss) for e, z in items
        ]
        for (errand, _), losses in zip(items, self.engine.map("score", calls), strict=True):
            self._file(errand, losses[0])

    # Inspections and readings -------------------------------------------------------------------------------------

    def _inspect(self, decisions: Mapping[int, Decision]) -> None:
        calls = []
        for client, decision in decisions.items():
            asked = decision.request
            assert isinstance(asked, Inspect)
            roles = self.world.federation.roles[client]
            indices = roles.train if asked.split == "train" else roles.anchor
            models = [None if p == ME else (_number(p), self._ages.get((client, _number(p)), 0)) for p in asked.peers]
            at = {p: i for i, p in enumerate(asked.peers)}
            groups = None if asked.groups is None else [[at[p] for p in g] for g in asked.groups]
            calls.append((client, self.round, models, groups, indices, asked.metric))
        weights = [float(len(c[4]) * len(c[3] or c[2])) for c in calls]
        for decision, answer in zip(decisions.values(), self.engine.map("inspect", calls, weights), strict=True):
            decision.answer(answer)

    def _read(self, decisions: Mapping[int, Decision]) -> None:
        for decision in decisions.values():
            asked = decision.request
            assert isinstance(asked, Read)
            peers = [_number(p) for p in asked.peers]
            if asked.what == "degree":
                decision.answer([self.world.graph.degrees[p] for p in peers])
            elif asked.what == "loss":
                decision.answer([self.training_losses[p] for p in peers])
            elif asked.what in ("head", "last-layer"):
                decision.answer(self.engine.map("read", [(p, self.round, asked.what) for p in peers]))
            else:  # whatever else a method keeps about itself, 0 before it has kept anything
                decision.answer([self.states.get(p, {}).get(asked.what, 0.0) for p in peers])


def _number(peer: object) -> int:
    assert isinstance(peer, int)
    return peer
