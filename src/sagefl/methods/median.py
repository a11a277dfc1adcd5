"""Coordinate-wise median of one's own model and all neighbours': the field's convention against bad peers.

D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates.
ICML 2018. arXiv:1803.01498. Read: abstract and introduction.

Established. A server takes the coordinate-wise median of the gradients that arrive; with fewer than half of them
arbitrary, every coordinate of the result lies between two honest ones.

Ours. There is no server: every client takes the median over its own model and those of all of its neighbours, as
decentralised studies do. Models, not gradients; the shared block only. Of an even number the median is the mean of the
middle two. The protection holds for a client if fewer than half of the models before it are bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..exchange import ExchangeLayer, Mix
from ..learning.tasks import Row, Task
from ..learning.workbench import Workbench
from ..selection import Deciding, Draws, Exchange, Hood, Reason, Selector, State
from .base import Method


@dataclass(frozen=True)
class AllNeighbours(Selector):
    """Everybody who is active."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Merge all."""
        yield from ()
        return Exchange.merge(hood.peers, Reason.UNIFORM, selected=False)


class MedianMix(ExchangeLayer):
    """The median instead of the mean."""

    beyond: ClassVar[str] = ""

    def block(self, client: int, round: int, mix: Mix) -> Task[None]:
        """Weights play no part."""
        return MedianBlock(client, round, [(peer, age) for peer, age, _ in mix.pulls])


@dataclass(frozen=True, eq=False)
class MedianBlock(Task[None]):
    """omega <- the coordinate-wise median of omega and the pulled blocks; pulls are (client, age)."""

    round: int
    pulls: Sequence[tuple[int, int]]

    def rows(self) -> Iterable[Row]:
        """The blocks that are pulled."""
        return [Row("snapshots", peer, self.round - age) for peer, age in self.pulls]

    def run(self, bench: Workbench) -> None:
        """Overwrite the client's own block."""
        p, columns = bench.population, bench.layout.shared
        mine = p.params[self.client, columns]
        mine.copy_(coordinate_median([mine, *(p.snapshots[p.slot(self.round, a), j, columns] for j, a in self.pulls)]))


def coordinate_median(blocks: Sequence[Tensor]) -> Tensor:
    """The middle value of each coordinate, or the mean of the middle two; what is not a number is beyond all others."""
    ranked = torch.stack(list(blocks)).nan_to_num(nan=torch.inf).sort(0).values
    below, above = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    return torch.where(below == above, below, below + (above - below) / 2)


class Median(Method):
    """The coordinate-wise median of one's own model and all neighbours'."""

    id: ClassVar[str] = "median"
    rule = AllNeighbours
    evidence: ClassVar[str] = "none"
    communication: ClassVar[str] = "d / d"
    fidelity: ClassVar[str] = "adapted: of neighbours' models, where the paper's server takes it of gradients"

    def make_exchange(self) -> ExchangeLayer:
        """Mix by medians."""
        return MedianMix()
