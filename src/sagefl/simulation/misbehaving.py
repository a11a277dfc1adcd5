"""What misbehaving peers do to what others see of them: the model they hand over, and the answers they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..learning.tasks import Task, Tasks
from ..learning.workbench import Workbench
from ..streams import stream
from ..topology import Misbehaviour, poison_row
from .world import World


@dataclass(frozen=True, eq=False)
class PublishTwofold(Task[None]):
    """Keep the published row to answer from; a culprit's block that others can pull is replaced by poison."""

    round: int
    culprit: bool
    seed: int
    how: Misbehaviour

    def run(self, bench: Workbench) -> None:
        """Copy, then ruin the original."""
        p = bench.population
        published = p.snapshots[p.slot(self.round), self.client]
        p.voices[p.slot(self.round), self.client].copy_(published)
        if self.culprit:
            block = published[bench.layout.shared]
            rng = stream(self.seed, "poison", self.round, self.client)
            poisoned = poison_row(block.numpy().copy(), rng, self.how.scale, self.how.poison)
            block.copy_(torch.from_numpy(poisoned))


@dataclass(frozen=True, eq=False)
class PublishInstead(Task[None]):
    """Publish another row than the trained one, head included: this one, or noise of the same norm."""

    round: int
    seed: int
    row: npt.NDArray[np.float32] | None

    def run(self, bench: Workbench) -> None:
        """Others see only that; the client's own model is still what it trained."""
        p = bench.population
        published = p.snapshots[p.slot(self.round), self.client]
        row = self.row
        if row is None:
            row = poison_row(published.numpy().copy(), stream(self.seed, "free-noise", self.round, self.client))
        published.copy_(torch.tensor(row))


def betray(world: World, tasks: Tasks, rounds: Mapping[int, int]) -> None:
    """Poisoners answer with the model they trained, but hand over a ruined one; free riders do neither.

    `rounds` are those who have just published, each with its round.
    """
    rule, seed, culprits = world.misbehaviour, world.config.seed, world.culprits
    if rule.poisons:
        tasks.map([PublishTwofold(k, number, bool(culprits[k]), seed, rule) for k, number in rounds.items()])
    if rule.rides_free:
        initial = world.initial.numpy() if rule.kind == "free-rider" else None
        tasks.map([PublishInstead(k, number, seed, initial) for k, number in rounds.items() if culprits[k]])
