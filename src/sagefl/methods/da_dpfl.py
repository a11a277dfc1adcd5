"""DA-DPFL: DisPFL's sparse models that grow sparser, and clients that wait for neighbours trained in the same round.

Q. Long, Q. Wang, C. Anagnostopoulos, D. Bi. Decentralized Personalized Federated Learning based on a Conditional
'Sparse-to-Sparser' Scheme. IEEE Transactions on Neural Networks and Learning Systems 2025. arXiv:2404.15943. Read: the
abstract, and that there is public code (EricLoong/da-dpfl), which was not compared line by line.

Established. On top of DisPFL: (1) dynamic aggregation: a random order per round, in which a client waits for at most N
neighbours that come before it and aggregates their models of the *same* round; (2) further pruning: from some round
on, at intervals that shrink by a factor, a layer loses the share of its living weights that the PQ index (p = .5,
q = 1) of their magnitudes says it can spare, until a target sparsity is reached.

Ours. Our round mixes after training, the paper's before. So fresh models come in addition: before it trains, a client
takes over the fresh blocks of those peers of its last mix that it waited for (or that are done anyway), and each
replaces one share of the average it holds (the older version is diluted, the paper's is never used). They are pulled a
second time and counted: up to 2k models a round. N = 1 of k = 2, constant over the run. When pruning starts, the
paper decides by a vote of all clients on how little their models still change; that needs a coordinator, so we prune
by a timetable: at 20 % of the run, then after gaps that halve. Masks and everything else as in `dispfl`. Poisoning
peers ruin what they hand over at the mix; what is taken over before training is as its owner trained it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..exchange import ExchangeLayer
from ..exchange.masks import MASK, SequentialMasked, masked_slots, prune
from ..learning.training import Local, LocalTraining
from ..selection import option
from .dispfl import DisPFL, SparseTraining

LARGEST_CUT = 0.9  # share of a layer that one pruning may take


class SparserTraining(SparseTraining):
    """Masked training that also prunes for good, at certain rounds, down to a target density."""

    def __init__(self, anneal: float, first: float, target: float) -> None:
        super().__init__(anneal)
        self.first, self.target = first, target

    def change(self, local: Local) -> None:
        """Prune where it is due, then as before."""
        if local.round in timetable(self.first, local.rounds):
            self.prune(local)
        super().change(local)

    def prune(self, local: Local) -> None:
        """Every layer gives what its PQ index spares, unless the target is reached."""
        slots, mask = masked_slots(local.layout), local.extras[MASK]
        columns = [slice(slot.start, slot.start + slot.size) for slot in slots]
        alive = sum(float(mask[c].sum()) for c in columns)
        if alive <= self.target * sum(slot.size for slot in slots):
            return
        for c in columns:
            prune(mask[c], local.row[c], min(pq_index(local.row[c][mask[c] > 0]), LARGEST_CUT))


def pq_index(weights: Tensor) -> float:
    """1 - d^(1/q - 1/p) |w|_p / |w|_q with p = 1/2, q = 1: 0 for equal magnitudes, towards 1 for few large ones.

    Diao et al. 2023; with these p and q it is also the share of the d weights that can be spared.
    """
    magnitudes = weights.abs()
    mean = float(magnitudes.mean())
    return 1.0 - float(magnitudes.sqrt().mean()) ** 2 / mean if mean > 0 else 0.0


def timetable(first: float, rounds: int, times: int = 8) -> set[int]:
    """The rounds that prune: at `first` (a share of the run), then after gaps that halve."""
    gap = max(1, round(first * rounds))
    due, at = set(), 0
    for _ in range(times):
        if gap < 1:
            break
        at += gap
        due.add(at)
        gap //= 2
    return due


class DaDPFL(DisPFL):
    """Sparse models that grow sparser; fresh models of the same round."""

    id: ClassVar[str] = "da-dpfl"
    citation: ClassVar[str] = (
        "Q. Long, Q. Wang, C. Anagnostopoulos, D. Bi. Decentralized Personalized Federated Learning based on a "
        "Conditional 'Sparse-to-Sparser' Scheme. IEEE TNNLS 2025. arXiv:2404.15943"
    )
    communication: ClassVar[str] = "k..2k / k..2k, sparse"
    fidelity: ClassVar[str] = "adapted: heads are neither masked nor mixed, regrowth by the last batch's gradient"

    @dataclass(frozen=True)
    class Options(DisPFL.Options):
        """The masks, how they shrink, and how long one waits."""

        wait: int = option(1, "neighbours waited for at most before training", symbol="N", ge=0)
        prune_from: float = option(0.2, "share of the run after which masks begin to shrink", gt=0, le=1)
        target: float = option(0.2, "density at which they stop shrinking", gt=0, le=1)

    options: Options

    def make_exchange(self) -> ExchangeLayer:
        """Masked blocks, some of them fresh."""
        options = self.options
        return SequentialMasked(options.density, options.layers, own=options.masks == "own", wait=options.wait)

    def make_training(self) -> LocalTraining:
        """Masked training; prune and regrow, and prune for good."""
        return SparserTraining(self.options.anneal, self.options.prune_from, self.options.target)
