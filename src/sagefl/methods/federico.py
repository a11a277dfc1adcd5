"""FedeRiCo: expectation-maximisation over everybody's models; gradients go back to their owners, mixtures predict.

Y. Sui, J. Wen, Y. Lau, B. L. Ross, J. C. Cresswell. Find Your Friends: Personalized Federated Learning with the Right
Collaborators. FL-NeurIPS 2022. arXiv:2210.06597. Read: the abstract; the steps below are from descriptions of the
method by others. No code is public.

Established. Models stay separate: nothing is averaged. E-step: for its sample n client i gives model j the
responsibility r_n(j), proportional to pi_i(j) exp(-loss_j(x_n)); pi_i is the mean responsibility. Only some models are
asked a round, epsilon-greedily. M-step: client i sends the owner of j the gradient of sum_n r_n(j) loss_j(x_n), and
owners add up what arrives. Client i predicts with the mixture sum_j pi_i(j) p_j(y | x).

Ours. pi is a moving average (half old, half new); the models asked keep together the share they had, so that those not
asked keep theirs, and no share falls below 1e-6. Neighbours never asked start with an even share, as oneself does. pi
comes from the anchor pool: on its own training samples a client's own model explains everything (`split="train"`).
Returned gradients are of the cross-entropy, averaged over the round's training samples, and the owner takes a step of
`rate` against their sum; its own share of the M-step is its plain local training. The mixture is of the copies a client
pulled this round; measured before the exchange it is its own model alone. A gradient costs as many bytes as a model.
M = 3, epsilon = .3 and rate = .1 are ours. "Merged" counts the models of the mixture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..exchange import ExchangeLayer, Mix, Sizes, Traffic, account
from ..learning.corpus import sliced
from ..learning.targets import sample_losses
from ..learning.tasks import Row, Task, Tasks
from ..learning.workbench import Indices, Workbench
from ..selection import ME, Deciding, Draws, Exchange, Hood, Inspect, Outcome, Reason, Selector, State, option
from ..selection.ranking import epsilon_greedy
from ..selection.requests import Array, Peer, Split
from ..selection.scoring import Scoring
from .base import Method

FLOOR = 1e-6  # a peer's share never vanishes, or it could not come back
RETURNED = "returned-gradients"


@dataclass(frozen=True)
class FedericoRule(Selector):
    """Pull some models by their share pi, and update the shares by their responsibilities."""

    downloads: int = option(3, "models pulled a round", symbol="M", ge=1)
    epsilon: float = option(0.3, "probability that a pull explores instead of following the shares", ge=0, le=1)
    momentum: float = option(0.5, "how much of the old share is kept in the moving average", ge=0, lt=1)
    split: Split = option("anchor", "samples that are explained")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """One E-step; `state` holds the shares pi of oneself and of every neighbour met so far."""
        if not hood.peers:
            return Exchange.none(state=state)
        shares = self.shares(hood, state)
        pulled = epsilon_greedy(hood.peers, shares, self.downloads, self.epsilon, rng)
        models = (ME, *pulled)
        losses = yield Inspect(models, self.split, "losses")
        prior = np.array([shares[p] for p in models])
        explained = responsibilities(prior, losses).mean(axis=1)
        # The models asked keep, together, the share they had; how it is split among them moves.
        posterior = self.momentum * prior + (1 - self.momentum) * prior.sum() * explained
        shares |= dict(zip(models, np.maximum(posterior, FLOOR).tolist(), strict=True))
        total = sum(shares[p] for p in models)
        weights = {p: shares[p] / total for p in pulled}
        return Exchange.merge(pulled, Reason.COMMITTED, weights, state={"pi": state.get("pi", {}) | shares})

    def shares(self, hood: Hood, state: State) -> dict[Peer, float]:
        """pi over oneself and the active neighbours, summing to one; those never met get an even share."""
        known, models = state.get("pi", {}), (ME, *hood.peers)
        raw = {p: known.get(p, 1.0 / len(models)) for p in models}
        total = sum(raw.values())
        return {p: share / total for p, share in raw.items()}


def responsibilities(shares: Array, losses: Array) -> Array:
    """r_n(j), proportional to pi(j) exp(-loss_j(x_n)) and summing to one over the models j (rows)."""
    logs = np.log(shares)[:, None] - losses
    weights = np.exp(logs - logs.max(axis=0))
    normal: Array = weights / weights.sum(axis=0)
    return normal


class ReturnedGradients(ExchangeLayer):
    """Gradients for the models a client pulled go back to their owners; nothing is averaged."""

    beyond: ClassVar[str] = "sends gradients back to the owners of models"

    def __init__(self, downloads: int, rate: float) -> None:
        self.downloads, self.rate = downloads, rate
        self.mixtures: dict[int, tuple[tuple[int, int, float], ...]] = {}

    def extras(self, width: int, shared: int) -> dict[str, int]:
        """A gradient for each model a client pulls."""
        return {RETURNED: self.downloads * width}

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Everybody differentiates the models it pulled, then owners step against the sum of what came back."""
        self.mixtures = {client: mix.pulls for client, mix in mixes.items()}
        tasks.map([Differentiate(client, round, mix.own, mix.pulls) for client, mix in mixes.items()])
        arrived: dict[int, list[tuple[int, int]]] = {}
        for client, mix in mixes.items():
            for place, owner in enumerate(mix.peers):
                arrived.setdefault(owner, []).append((client, place))
        tasks.map([StepAgainst(owner, self.rate, parts) for owner, parts in sorted(arrived.items())])

    def ensembles(self) -> Mapping[int, Sequence[tuple[int, int, float]]]:
        """The copies that were pulled, by their shares."""
        return self.mixtures

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """Models one way, gradients of the same size the other."""
        plain = account(outcome, asked, sizes)
        return replace(plain, models=plain.models + len(outcome.peers) * sizes.full_model)


@dataclass(frozen=True, eq=False)
class Differentiate(Task[None]):
    """For each pulled (client, age, share): the gradient of the mean of r_n loss_n over the round's own samples."""

    round: int
    own: float
    pulls: Sequence[tuple[int, int, float]]

    def rows(self) -> Iterable[Row]:
        """The models that were pulled."""
        return [Row("snapshots", peer, self.round - age) for peer, age, _ in self.pulls]

    def run(self, bench: Workbench) -> None:
        """E-step on the samples, then one backward pass per model."""
        p, width = bench.population, bench.layout.width
        samples = bench.batches(self.client, self.round, 0)
        rows = [p.snapshots[p.slot(self.round), self.client]]
        rows += [p.snapshots[p.slot(self.round, age), peer] for peer, age, _ in self.pulls]
        losses = np.stack([self._losses(bench, row, samples) for row in rows])
        shares = np.maximum([self.own, *(share for _, _, share in self.pulls)], FLOOR)
        weights = responsibilities(shares, losses)
        x, y = bench.samples(samples)
        for place, (row, r) in enumerate(zip(rows[1:], weights[1:], strict=True)):
            bench.gradient.zero_()
            bench.bind(row.clone(), bench.gradient)
            for start in range(0, len(y), bench.options.batch_size):
                part = slice(start, start + bench.options.batch_size)
                each = sample_losses(bench.model(sliced(x, part)), y[part])
                torch.autograd.backward((each * bench.here(torch.from_numpy(r[part]).float())).sum() / len(y))
            p.extras[RETURNED][self.client, place * width : (place + 1) * width].copy_(bench.gradient.nan_to_num())

    @staticmethod
    def _losses(bench: Workbench, row: Tensor, samples: Indices) -> Array:
        bench.bind(row)
        losses: Array = bench.judge(bench.infer(bench.corpus.train_x, samples), samples, "losses")
        return np.nan_to_num(losses, nan=1e6, posinf=1e6)


@dataclass(frozen=True, eq=False)
class StepAgainst(Task[None]):
    """theta <- theta - rate * sum of returned gradients; parts are (client, place among what it returned)."""

    rate: float
    parts: Sequence[tuple[int, int]]

    def rows(self) -> Iterable[Row]:
        """The gradients that came back."""
        return [Row(f"extras.{RETURNED}", client) for client, _ in self.parts]

    def run(self, bench: Workbench) -> None:
        """In place, in the order of clients."""
        p, width = bench.population, bench.layout.width
        for client, place in self.parts:
            gradient = p.extras[RETURNED][client, place * width : (place + 1) * width]
            trained = bench.layout.trained
            p.params[self.client, trained].add_(gradient[trained], alpha=-self.rate)


class Federico(Method):
    """Separate models: responsibilities, gradients returned to owners, mixtures that predict."""

    id: ClassVar[str] = "federico"
    rule = FedericoRule
    evidence: ClassVar[str] = "per-sample losses of M full models on the anchor pool"
    communication: ClassVar[str] = "M / M, and M gradients back"
    fidelity: ClassVar[str] = "adapted: shares come from held-out anchors, owners train plainly on their own samples"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """What FedeRiCo adds to its rule."""

        rate: float = option(0.1, "step of an owner against the gradients that came back", gt=0)

    options: Options
    selector: FedericoRule

    def make_exchange(self) -> ExchangeLayer:
        """Gradients go back."""
        return ReturnedGradients(self.selector.downloads, self.options.rate)
