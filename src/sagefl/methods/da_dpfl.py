"""DA-DPFL: DisPFL's sparse models that grow sparser, and clients that wait for neighbours trained in the same round.

Q. Long, Q. Wang, C. Anagnostopoulos, D. Bi. Decentralized Personalized Federated Learning based on a Conditional
'Sparse-to-Sparser' Scheme. IEEE Transactions on Neural Networks and Learning Systems 2025. arXiv:2404.15943. Read: the
abstract, and the authors' code (EricLoong/da-dpfl: `standalone/dadpfl` with the schedule that its scripts choose,
dadpfl_api_sch.py, client.py, sp_functions.py and the defaults of main_dadpfl.py), line by line.

Established. On top of DisPFL: (1) dynamic aggregation: a client aggregates the models of at most N of its neighbours
that have trained in the *same* round, those of the others from the round before; (2) further pruning: from some round a
on, after gaps of a, then of round(gap / c) with c = 2, at most 20 more times, a layer loses its smallest weights: of d
living ones floor(d I), where I is the PQ index of their magnitudes (p = 1/2, q = 1; with these and eta = 0 the bound on
what must stay is d (1 - I)), at most .9 of them, until a target density of .2 is reached. (3) As DisPFL it moves
living weights afterwards, a share of .3 at first, annealed along a cosine.

Ours. Our round mixes after training, theirs before. So fresh models come in addition: before it trains, a client takes
over the fresh blocks of those peers of its last mix that it waited for (or that are done anyway, by a random order per
round), and each replaces one share of the average it holds (the older version is diluted, theirs is never used). They
are pulled a second time and counted: up to 2k models a round. N = 1 of k = 2, constant over the run; in the code N
falls step by step to 0. The first pruning comes when half of all clients see their models change little (a relative
change below .01), which needs somebody who counts; here at a share of the run, 20 %. Regrowth looks at the last
batch's gradient instead of the mean square over an epoch; heads are neither masked nor mixed; masks otherwise as in
`dispfl`. Poisoning peers ruin what they hand over at the mix; what is taken over before training is as its owner
trained it.
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


def timetable(first: float, rounds: int, times: int = 20) -> set[int]:
    """The rounds that prune: at `first` (a share of the run), then `times` more, after gaps that halve."""
    gap = at = max(1, round(first * rounds))
    due = {at}
    for _ in range(times):
        gap = round(gap / 2)
        at += gap
        due.add(at)
    return due


class DaDPFL(DisPFL):
    """Sparse models that grow sparser; fresh models of the same round."""

    id: ClassVar[str] = "da-dpfl"
    communication: ClassVar[str] = "k..2k / k..2k, sparse"
    fidelity: ClassVar[str] = (
        "adapted: fresh models come on top of the mix, pruning begins at a given share of the run, heads are neither "
        "masked nor mixed"
    )

    @dataclass(frozen=True)
    class Options(DisPFL.Options):
        """The masks, how they shrink, and how long one waits."""

        anneal: float = option(0.3, "share of the living weights that changes place in the first round", ge=0, le=1)
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
