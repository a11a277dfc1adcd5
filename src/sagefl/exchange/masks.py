"""Sparse exchange: every client has a mask over the shared block, sends the weights under it, and averages each
coordinate over the clients that hold it.

A mask is 1 where a weight is alive and 0 where it is not; biases and everything else that is not a matrix stay dense,
and the head has no mask. The share of living weights per layer follows the Erdos-Renyi-Kernel rule (Evci et al. 2020),
denser in small layers. This module says what happens to rows and masks; local training decides *when* a mask changes
(`prune_and_regrow`, `prune`).

On the wire a block is a bitmap of its non-zero coordinates, followed by their values; the receiver needs no other mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from ..learning.layout import Layout, Slot
from ..learning.tasks import MixBlocks, Task, Tasks
from ..learning.workbench import Workbench
from ..selection.outcome import Outcome, Traffic
from ..selection.scoring import Scoring
from ..streams import stream
from .accounting import Sizes, account
from .layer import ExchangeLayer
from .mixing import Mix, client_of

MASK = "mask"
Layers = Literal["erk", "uniform"]


class Masked(ExchangeLayer):
    """Masked blocks; each coordinate is averaged over the clients that hold it."""

    beyond: ClassVar[str] = "sends sparse models under masks of their own"

    def __init__(self, density: float, layers: Layers = "erk", *, own: bool = False) -> None:
        if not 0 < density <= 1:
            raise ValueError(f"density must lie in (0, 1], got {density}")
        if layers not in get_args(Layers):
            raise ValueError(f"layers must be one of {', '.join(get_args(Layers))}, got {layers!r}")
        self.density, self.layers, self.own = density, layers, own
        self.clients = 0
        self.published: list[int] = []  # non-zero coordinates of each client's published block

    def extras(self, width: int, shared: int) -> dict[str, int]:
        """The mask of each client's shared block."""
        return {MASK: shared}

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Draw the masks (one for all clients, or one for each) and apply them to the initial weights."""
        tasks.map([DrawMask(k, k if self.own else 0, self.density, self.layers) for k in range(clients)])

    def publish(self, tasks: Tasks, clients: int, round: int) -> None:
        """Count what each client's published block takes on the wire."""
        self.clients = clients
        self.published = tasks.map([CountPublished(k, round) for k in range(clients)])

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Average each coordinate over its holders. Every client applies its (new) mask, even if it merged nothing."""
        nothing = Mix(1.0, ())
        rows = [(k, mixes.get(k, nothing)) for k in range(self.clients)]
        tasks.map([MaskedAverage(k, round, mix.own, mix.pulls) for k, mix in rows])

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """Bitmap and values of every pulled block."""
        pulled = sum(self.payload(client_of(peer), sizes) for peer in outcome.peers)
        return replace(account(outcome, asked, sizes), models=pulled)

    def payload(self, client: int, sizes: Sizes) -> int:
        """Bytes of a client's published block."""
        return 4 * self.published[client] + -(-sizes.shared_block // 32)


class SequentialMasked(Masked):
    """Masked exchange in which a client waits for some of its peers and starts a round from their fresh blocks.

    The order of a round is random. Of the peers it merged last, a client waits for those before it in the order, but
    for at most `wait` of them (the first to finish). Before it trains, it takes the fresh block of every one that has
    finished: each replaces one share of the average the client holds. Clients that wait for nobody train first.
    """

    def __init__(self, density: float, layers: Layers = "erk", *, own: bool = False, wait: int = 1) -> None:
        super().__init__(density, layers, own=own)
        if wait < 0:
            raise ValueError(f"wait must not be negative, got {wait}")
        self.wait = wait
        self.seed = 0
        self.chosen: dict[int, list[int]] = {}  # whom each client merged last
        self.fresh: dict[int, list[int]] = {}  # whose fresh blocks it takes this round

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Draw and apply the masks; the order within rounds comes from the run's seed."""
        super().begin(tasks, clients)
        self.seed = tasks.map([ReadSeed(0)])[0]

    def groups(self, neighbours: Sequence[Sequence[int]], round: int) -> list[list[int]]:
        """Clients grouped by how many others have to train before them, one after another."""
        order = stream(self.seed, "reuse-order", round).permutation(len(neighbours)).tolist()
        slots: dict[int, int] = {}
        self.fresh = {}
        for client in order:
            before = [j for j in self.chosen.get(client, ()) if j in slots and j in neighbours[client]]
            done = sorted(before, key=lambda j: slots[j])
            slots[client] = 1 + max((slots[j] for j in done[: self.wait]), default=-1)
            self.fresh[client] = [j for j in done if slots[j] < slots[client]]
        last = max(slots.values(), default=-1)
        return [sorted(k for k in slots if slots[k] == slot) for slot in range(last + 1)]

    def reuse(self, tasks: Tasks, round: int, group: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
        """Fresh blocks replace one share each of what a client merged last: 1 / (1 + peers merged)."""
        averages = []
        for client in group:
            share = 1.0 / (1 + len(self.chosen.get(client, ())))
            pulls = [(peer, 0, share) for peer in self.fresh[client]]
            if pulls:
                averages.append(MaskedAverage(client, round, 1.0 - share * len(pulls), pulls))
        tasks.map(averages)

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """The mix as decided; a client may wait in the next round for the peers it merges now."""
        mixes = super().resolve(outcomes, ages, mixing)
        self.chosen = {client: list(mix.peers) for client, mix in mixes.items()}
        return mixes

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """Every pulled block, and those taken before training."""
        mixed, fresh = super().traffic(client, outcome, asked, sizes), self.fresh.get(client, [])
        return replace(
            mixed,
            models=mixed.models + sum(self.payload(peer, sizes) for peer in fresh),
            merged=mixed.merged + len(fresh),
            transferred=mixed.transferred + len(fresh),
        )

    def state(self) -> dict[str, Any]:
        """Whom everybody merged last, and the seed of the order."""
        return {"seed": self.seed, "chosen": self.chosen}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.seed, self.chosen = state["seed"], dict(state["chosen"])


def masked_slots(layout: Layout) -> list[Slot]:
    """The parameters that are masked: the matrices and kernels of the shared block."""
    return [slot for slot in layout.slots if slot.start < layout.shared_stop and len(slot.shape) > 1]


def densities(shapes: Sequence[tuple[int, ...]], density: float, layers: Layers = "erk") -> list[float]:
    """The share of living weights in each layer, such that all layers together have `density`.

    Erdos-Renyi-Kernel: proportional to (sum of sides) / (product of sides), capped at one; the excess of a capped layer
    is spread over the others.
    """
    if layers == "uniform":
        return [density] * len(shapes)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    raw = [sum(shape) / size for shape, size in zip(shapes, sizes, strict=True)]
    dense: set[int] = set()
    while True:
        left = density * sum(sizes) - sum(sizes[i] for i in dense)
        open_layers = [i for i in range(len(shapes)) if i not in dense]
        scale = left / sum(raw[i] * sizes[i] for i in open_layers) if open_layers else 0.0
        full = {i for i in open_layers if scale * raw[i] > 1}
        if not full:
            return [1.0 if i in dense else scale * raw[i] for i in range(len(shapes))]
        dense |= full


# Tasks --------------------------------------------------------------------------------------------------------------


class ReadSeed(Task[int]):
    """The run's seed."""

    def run(self, bench: Workbench) -> int:
        """As the workbench has it."""
        return bench.seed


@dataclass(frozen=True, eq=False)
class DrawMask(Task[None]):
    """Draw a random mask with exactly the wanted number of living weights per layer, and apply it to the row."""

    key: int
    density: float
    layers: Layers

    def run(self, bench: Workbench) -> None:
        """Draw it layer by layer."""
        p, layout = bench.population, bench.layout
        mask = p.extras[MASK][self.client]
        for slot in layout.slots:
            if slot.start < layout.shared_stop:
                mask[slot.start : slot.start + slot.size] = 1.0
        slots, rng = masked_slots(layout), stream(bench.seed, "mask", self.key)
        for slot, share in zip(slots, densities([s.shape for s in slots], self.density, self.layers), strict=True):
            dead = rng.permutation(slot.size)[max(1, round(share * slot.size)) :]
            mask[slot.start + torch.from_numpy(dead)] = 0.0
        p.params[self.client, layout.shared].mul_(mask)


@dataclass(frozen=True, eq=False)
class CountPublished(Task[int]):
    """Non-zero coordinates of the block a client has published."""

    round: int

    def run(self, bench: Workbench) -> int:
        """The count."""
        p = bench.population
        return int(torch.count_nonzero(p.snapshots[p.slot(self.round), self.client, bench.layout.shared]))


@dataclass(frozen=True, eq=False)
class MaskedAverage(MixBlocks):
    """omega <- mask * (weighted mean over those of {self} + peers that hold the coordinate; 0 if nobody does)."""

    def run(self, bench: Workbench) -> None:
        """Overwrite the client's own block."""
        p, shared = bench.population, bench.layout.shared
        mine = p.params[self.client, shared]
        total, weights = mine * self.own, (mine != 0) * self.own
        for peer, age, weight in self.pulls:
            block = p.snapshots[p.slot(self.round, age), peer, shared]
            total.add_(block, alpha=weight)
            weights.add_(block != 0, alpha=weight)
        mine.copy_(torch.where(weights > 0, total / weights, 0.0) * p.extras[MASK][self.client])


# How a mask changes -------------------------------------------------------------------------------------------------


def prune_and_regrow(mask: Tensor, weights: Tensor, gradient: Tensor, share: float) -> None:
    """Move `share` of the living weights, in place: drop the smallest, revive as many with the largest gradients."""
    moved = ceil(share * int(mask.sum()))
    weakest = torch.where(mask > 0, weights.abs(), torch.inf).topk(moved, largest=False).indices
    mask[weakest] = 0.0
    mask[torch.where(mask > 0, -1.0, gradient.abs()).topk(moved).indices] = 1.0


def prune(mask: Tensor, weights: Tensor, share: float) -> None:
    """Drop `share` of the living weights for good, the smallest first; at least one stays."""
    alive = int(mask.sum())
    dead = min(int(share * alive), alive - 1)
    mask[torch.where(mask > 0, weights.abs(), torch.inf).topk(dead, largest=False).indices] = 0.0
