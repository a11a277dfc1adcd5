"""A short pilot of a world: what clients get by staying at home, by mixing with kin, and by gossip, after a few rounds.

All clients train for a few rounds at home. Everybody's model answers on everybody's held-out samples; with the clients'
label shares that shows who is kin (`sagefl.runs.kinship`). Each tries some kin among its neighbours: their models, half
and half with its own. The same rounds are run once more with random gossip, from the first on, which both share, and
end in trials of some neighbours. Nothing here knows the truth about a world.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..learning.tasks import Answer, MixBlocks, Row, Task, Train
from ..learning.workbench import CHUNK, Indices, Workbench
from ..runs.kinship import Kinship, find_kin, label_overlap
from ..runs.scouting import Cost, Pilot, recommended
from ..selection.scoring import LABEL_ERRORS
from ..streams import stream
from .engines import Engine
from .misbehaving import betray
from .world import World

Errors = npt.NDArray[np.float64]
POOLED = 100  # samples of one's group on which a client is judged
TRIED = 4  # at most so many mixes of a client are judged on them
SHORTEST, LONGEST = 3, 6  # rounds; before the third, groups do not show yet


def pilot_rounds(rounds: int) -> int:
    """How long a pilot is: it takes a tenth of a run of 60 rounds or more. Rounds are run twice, but for the first."""
    return min(max(rounds // 20, SHORTEST), LONGEST)


@dataclass(frozen=True, eq=False)
class Try(Task[npt.NDArray[np.bool_]]):
    """On which samples a client errs: with its own model, and with its mixes with published models, a row each."""

    round: int
    peers: Sequence[tuple[int, int]]  # (client, age)
    indices: Indices
    mixing: float

    @property
    def weight(self) -> float:
        """By how many samples go through a model."""
        return float(len(self.indices) * (1 + len(self.peers)))

    def rows(self) -> list[Row]:
        """The models that are tried."""
        return [Row("snapshots", peer, self.round - age) for peer, age in self.peers]

    def run(self, bench: Workbench) -> npt.NDArray[np.bool_]:
        """Compare without changing anything."""
        p, shared, mine = bench.population, bench.layout.shared, bench.population.params[self.client]
        rows = [mine]
        for peer, age in self.peers:
            rows.append(mine.clone())
            rows[-1][shared].lerp_(p.snapshots[p.slot(self.round, age), peer, shared], self.mixing)
        found = np.empty((len(rows), len(self.indices)), np.bool_)
        bench.model.eval()
        with torch.inference_mode():
            for start in range(0, len(self.indices), CHUNK):
                x, truth = bench.samples(self.indices[start : start + CHUNK])
                for at, row in enumerate(rows):
                    bench.layout.bind(bench.model, row)
                    found[at, start : start + CHUNK] = (bench.model(x).argmax(1) != truth).numpy()
        return found


@dataclass(frozen=True, eq=False)
class _Publish(Task[None]):
    """Let others see the present row."""

    round: int

    def run(self, bench: Workbench) -> None:
        p = bench.population
        p.snapshots[p.slot(self.round), self.client].copy_(p.params[self.client])


class Piloting:
    """A pilot on the way."""

    def __init__(self, world: World, engine: Engine, rounds: int) -> None:
        self.world, self.engine, self.rounds = world, engine, rounds
        self.samples = [np.concatenate([r.anchor, r.eval]) for r in world.federation.roles]
        self.last = rounds - 1
        self.trained = self.moved = self.answered = 0

    def run(self) -> Pilot:
        """All of it."""
        began = time.perf_counter()
        self.engine.population.reset(self.world.initial)
        self._train(0)
        first = self._saved()
        for number in range(1, self.rounds):
            self._train(number)
        answers = self._answers()
        gaps = answers - self._own(answers)[:, None]
        gaps[range(self.world.clients), range(self.world.clients)] = np.nan
        kinship = find_kin(gaps, self._overlap())
        pools = self._pools(kinship)
        local, within = self._within(kinship, pools)
        self._restore(first)
        for number in range(1, self.rounds):
            self._gossip(number - 1)
            self._train(number)
        gossip = self._after_gossip(pools)
        sizes = self.world.sizes
        asked = self.answered * (sizes.anchor_input + sizes.answer(LABEL_ERRORS))
        cost = Cost(time.perf_counter() - began, self.moved * sizes.shared_block + asked, self.trained)
        rule = recommended().suited(latents=self.world.has_latents)
        price, asking = sizes.price(LABEL_ERRORS), sizes.price(rule.scoring)
        whole, names = self.world.layout.local_size == 0, self.world.names
        near = np.zeros((self.world.clients, self.world.clients), np.bool_)
        for client in range(self.world.clients):
            near[client, [peer for peer, _ in self._hood(client)]] = True
        return Pilot(self.rounds, answers, near, kinship, local, within, gossip, cost, price, whole, asking, names)

    # Rounds -------------------------------------------------------------------------------------------------------

    def _train(self, number: int) -> None:
        roles = self.world.federation.roles
        seen = self.engine.map([Train(k, number, len(r.train)) for k, r in enumerate(roles)])
        self.trained += sum(samples for _, samples in seen)
        betray(self.world, self.engine, dict.fromkeys(range(self.world.clients), number))

    def _saved(self) -> Mapping[str, object]:
        held = self.engine.population
        return {name: held.read(name, 0, rows).clone() for name, rows, _ in held.shapes()}

    def _restore(self, saved: Mapping[str, object]) -> None:
        for name, rows in saved.items():
            self.engine.population.write(name, 0, rows)  # type: ignore[arg-type]
        self.engine.map([_Publish(k, 0) for k in range(self.world.clients)])
        betray(self.world, self.engine, dict.fromkeys(range(self.world.clients), 0))

    def _gossip(self, number: int) -> None:
        """One draw each, as `rg` draws."""
        view, mixing = self.world.view(number), self.world.config.training.mixing
        tasks = []
        for client in range(self.world.clients):
            if len(peers := view.peers(client)):
                at = int(stream(self.world.config.seed, "pilot", number, client).integers(len(peers)))
                pull = (int(peers[at]), int(view.ages(client)[at]), mixing)
                tasks.append(MixBlocks(client, number, 1 - mixing, (pull,)))
        self.engine.map(tasks)
        self.moved += len(tasks)

    # Measuring ----------------------------------------------------------------------------------------------------

    def _answers(self) -> Errors:
        """[receiver, peer, sample]: everybody's errors on everybody's samples, one's own on the diagonal."""
        clients, truth = self.world.clients, self.world.dataset.train_y
        form = self.world.prediction
        everything = np.concatenate(self.samples)
        ends = np.cumsum([len(s) for s in self.samples])[:-1]
        found = np.full((clients, clients, max(map(len, self.samples))), np.nan)
        labels = self.engine.map([Answer(k, self.last, 0, everything, form) for k in range(clients)])
        for peer, answer in enumerate(labels):
            for receiver, part in enumerate(np.split(form.losses(answer, truth[everything]), ends)):
                found[receiver, peer, : len(part)] = part
        self.answered += (clients - 1) * len(everything)
        return found

    def _own(self, answers: Errors) -> Errors:
        """Everybody's errors on its own samples, with the model that it has, whatever it shows to others."""
        own = answers[range(self.world.clients), range(self.world.clients)].copy()
        nobody: Sequence[Sequence[tuple[int, int]]] = [()] * self.world.clients
        for client, (errors, *_) in enumerate(self._try(nobody, self.samples)):
            own[client, : len(errors)] = errors
        return own

    def _overlap(self) -> Errors:
        """From the label shares of what clients train on."""
        strata = self.world.dataset.strata
        kinds = int(strata.max()) + 1
        held = [np.bincount(strata[r.train], minlength=kinds) for r in self.world.federation.roles]
        return label_overlap(np.stack([counts / counts.sum() for counts in held]))

    def _hood(self, client: int) -> list[tuple[int, int]]:
        view = self.world.view(self.last)
        return [(int(p), int(a)) for p, a in zip(view.peers(client), view.ages(client), strict=True)]

    def _try(
        self, peers: Sequence[Sequence[tuple[int, int]]], samples: Sequence[Indices]
    ) -> list[npt.NDArray[np.bool_]]:
        mixing = self.world.config.training.mixing
        return self.engine.map([Try(k, self.last, peers[k], samples[k], mixing) for k in range(self.world.clients)])

    def _pools(self, kinship: Kinship) -> list[Indices]:
        """What a client is judged on: samples of its group, and its own where all are one."""
        if kinship.between is None:
            return self.samples
        pools = []
        for client in range(self.world.clients):
            pool = np.concatenate([self.samples[k] for k in (client, *kinship.kin(client))])
            rng = stream(self.world.config.seed, "pilot-pool", 0, client)
            pools.append(rng.permutation(pool)[:POOLED])
        return pools

    def _within(self, kinship: Kinship, pools: Sequence[Indices]) -> tuple[Errors, Errors]:
        """Accuracy at home, and after mixing with kin (at home without any)."""
        near = [[(p, a) for p, a in self._hood(k) if p in kinship.kin(k)][:TRIED] for k in range(self.world.clients)]
        self.moved += sum(map(len, near))
        tried = self._try(near, pools)
        local = np.array([1 - errors[0].mean() for errors in tried])
        within = np.array([1 - (errors[1:].mean() if len(errors) > 1 else errors[0].mean()) for errors in tried])
        return local, within

    def _after_gossip(self, pools: Sequence[Indices]) -> Errors:
        """Accuracy after one more draw, in the mean over neighbours."""
        hoods = []
        for client in range(self.world.clients):
            hood, rng = self._hood(client), stream(self.world.config.seed, "pilot-hood", 0, client)
            hoods.append([hood[i] for i in sorted(rng.permutation(len(hood))[:TRIED])])
        self.moved += sum(map(len, hoods))
        tried = self._try(hoods, pools)
        return np.array([1 - (errors[1:].mean() if len(errors) > 1 else errors[0].mean()) for errors in tried])


def run_pilot(world: World, engine: Engine, rounds: int | None = None) -> Pilot:
    """A pilot of this world on an engine made for it."""
    return Piloting(world, engine, rounds or pilot_rounds(world.config.rounds)).run()
