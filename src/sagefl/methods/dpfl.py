"""DPFL: now and then, average whole models with a collaboration set that is searched on full models.

S. Kharrat, M. Canini, S. Horvath. DPFL: Decentralized Personalized Federated Learning. AISTATS 2025. arXiv:2406.06520.
Read: the abstract, and the authors' code (salmakh1/DPFL: `optimized_rgl_p` in selection/bandits.py, the trainer
fl/train_clients_constrained_rgl.py and config/defaultConf.yaml), line by line.

Established (the released trainer with its default config). Collaborators are chosen as a *set* by the validation loss
of the averaged model, whole models weighed by their numbers of samples. The search is a randomised double greedy:
candidates come in random order; from X = {i} and Y = all, candidate z has the gains a of adding it to X and b of taking
it out of Y (negative ones count 0) and is added with probability a / (a + b), 1 if both are 0, else taken out; it ends
when |X| = B_c = 10, oneself included. Sets are searched every P = 2 rounds from t = 2 on (t counts from 0), and only
then does anybody average: in between clients train alone. The first search looks at everybody, later ones only at the
set that the first one found.

Ours. Candidates are the neighbours in the graph, who may be away: then they are no candidates. "Validation" is the
anchor pool. Everybody averages what was published; the released simulator goes from client to client, so that a later
one averages models that earlier ones have already averaged. Where both gains are equal and positive it uses the
probability of the candidate before, here that is 1/2. Local training is the run's own (theirs: 5 epochs of SGD).

Options. `models=shared` averages the shared block under one's own head, as most rules here do, and is what nodes can
carry out; `between=average` goes on averaging with the set in every round, and builds one as soon as there is none;
`start`, `period` and `pool=all` say when and among whom is searched; `growth=greedy` adds the best candidate while the
loss does not rise (also in the released code), `average=uniform` counts all models the same.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ..exchange import ExchangeLayer, Mix, Sizes, Traffic, account
from ..learning.tasks import MixBlocks, Tasks
from ..selection import (
    ME,
    Deciding,
    Draws,
    Exchange,
    Hood,
    Inspect,
    Read,
    Reason,
    Request,
    Selector,
    Stage,
    State,
    option,
)
from ..selection.outcome import CONTINUE, Fired, Outcome
from ..selection.ranking import best
from ..selection.requests import Peer
from ..selection.scoring import Scoring
from .base import Method

Growing = Generator[Request, Any, tuple[Peer, ...]]


@dataclass(frozen=True)
class DPFLRule(Selector):
    """Collaboration sets searched on full models, from time to time."""

    period: int = option(2, "rounds between searches", symbol="P", ge=1)
    start: int = option(2, "first round, counted from 0, in which a set is searched", ge=0)
    budget: int = option(10, "largest set, oneself included", symbol="B_c", ge=1)
    pool: Literal["first", "all"] = option("first", "later searches look at the first set (first), or at everybody")
    between: Literal["train", "average"] = option("train", "rounds without a search: train alone, or average the set")
    growth: Literal["randomised", "greedy"] = option("randomised", "how the set is searched")
    average: Literal["samples", "uniform"] = option("samples", "how models are weighed: by samples, or alike")
    models: Literal["whole", "shared"] = option("whole", "what is averaged: whole models, or their shared blocks")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Search where it is due; `state` holds the set that was found last and the one that was found first."""
        due = self._due(hood, state)
        if not hood.peers or not (due or self.between == "average"):
            return Exchange.none(state=state)
        trace: list[Stage] = []
        sizes = dict.fromkeys((*hood.peers, ME), 1.0)
        if self.average == "samples":
            counts = np.ravel((yield Read((*hood.peers, ME), "samples")))
            sizes = dict(zip((*hood.peers, ME), np.maximum(counts, 1.0).tolist(), strict=True))
        if due:
            candidates = tuple(p for p in hood.peers if self.pool == "all" or p in state.get("first", hood.peers))
            search = self._randomised if self.growth == "randomised" else self._greedy
            members = yield from search(_Rewards(hood, candidates, sizes, self.models == "whole"), rng, trace)
            state = {"members": members, "first": state.get("first", members)}
        members = state.get("members", ())
        reachable = [p for p in hood.peers if p in members]
        total = sizes[ME] + sum(sizes[p] for p in reachable)
        weights = {p: sizes[p] / total for p in reachable}
        return Exchange.merge(reachable, Reason.COMMITTED, weights, trace=trace, state=state)

    def _due(self, hood: Hood, state: State) -> bool:
        on_time = hood.round % self.period == 0 or (self.between == "average" and "members" not in state)
        return on_time and hood.round >= self.start and hood.anchors > 0

    def _randomised(self, rewards: _Rewards, rng: Draws, trace: list[Stage]) -> Growing:
        """Grow X from {myself} and shrink Y from everybody, in random order, until they meet or X is full."""
        x: tuple[Peer, ...] = ()
        y = rewards.candidates
        order = [y[i] for i in rng("order").permutation(len(y))]
        loss_x, loss_y = yield from rewards.losses(x, y)
        for candidate in order:
            if len(x) + 1 >= self.budget:
                break
            without = tuple(p for p in y if p != candidate)
            added, removed = yield from rewards.losses((*x, candidate), without)
            a, b = max(loss_x - added, 0.0), max(loss_y - removed, 0.0)
            adds = rng("add").random() < (a / (a + b) if a + b else 1.0)
            trace.append(Stage(rewards.hood.anchors, CONTINUE, advantage=loss_x - added))
            if adds:
                x, loss_x = (*x, candidate), added
            else:
                y, loss_y = without, removed
        return x

    def _greedy(self, rewards: _Rewards, rng: Draws, trace: list[Stage]) -> Growing:
        """Grow S from {myself} by the candidate with the largest validation gain while that is not negative."""
        chosen: tuple[Peer, ...] = ()
        (loss,) = yield from rewards.losses(())
        while len(chosen) + 1 < self.budget and len(chosen) < len(rewards.candidates):
            rest = tuple(p for p in rewards.candidates if p not in chosen)
            losses = yield from rewards.losses(*((*chosen, p) for p in rest))
            gains = loss - np.array(losses)
            grows = gains.max() >= 0
            fired: Fired = CONTINUE if grows else Reason.COMMITTED
            trace.append(Stage(rewards.hood.anchors, fired, advantage=float(gains.max())))
            if not grows:
                break
            chosen = (*chosen, *best(rest, gains, 1, rng))
            loss = min(losses)
        return chosen


@dataclass(frozen=True)
class _Rewards:
    """Validation losses of averages of sets of candidates, each with oneself in it."""

    hood: Hood
    candidates: tuple[Peer, ...]
    sizes: Mapping[Peer, float]
    whole: bool

    def losses(self, *sets: tuple[Peer, ...]) -> Generator[Request, Any, list[float]]:
        """One number per set."""
        everyone = (*self.candidates, ME)
        weights = tuple(self.sizes[p] for p in everyone)
        alike = None if len(set(weights)) == 1 else weights
        groups = tuple((ME, *members) for members in sets)
        answers = yield Inspect(everyone, groups=groups, weights=alike, whole=self.whole)
        return [float(loss) for loss in answers]


class WholeModels(ExchangeLayer):
    """Whole models instead of shared blocks: heads move and merge, too."""

    beyond: ClassVar[str] = "averages whole models (it would work with its option models=shared)"

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Carry the mixing out."""
        tasks.map([MixBlocks(client, round, mix.own, mix.pulls, whole=True) for client, mix in mixes.items()])

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """Every model that moves is a whole one."""
        plain = account(outcome, asked, sizes)
        return replace(plain, models=plain.transferred * sizes.full_model)


class DPFL(Method):
    """Average whole models with a collaboration set, searched by a randomised greedy every other round."""

    id: ClassVar[str] = "dpfl"
    rule = DPFLRule
    evidence: ClassVar[str] = "full models of all candidates, every P rounds"
    communication: ClassVar[str] = "|S|-1 / d in the first search, |S|-1 / |first S|-1 in later ones, 0 / 0 between"
    fidelity: ClassVar[str] = "adapted: candidates are neighbours, everybody averages at once what was published"

    selector: DPFLRule

    def make_exchange(self) -> ExchangeLayer:
        """Whole models, unless only shared blocks are averaged."""
        return WholeModels() if self.selector.models == "whole" else ExchangeLayer()
