"""What misbehaving peers do to what others see of them: the model they hand over, and the answers they give."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..learning.tasks import Task
from ..learning.workbench import Workbench
from ..streams import stream
from ..topology import Misbehaviour, poison_row

__all__ = ["PublishTwofold"]


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
