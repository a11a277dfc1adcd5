"""DisPFL: sparse personal models; clients train, send and average only what their masks let live.

R. Dai, L. Shen, F. He, X. Tian, D. Tao. DisPFL: Towards Communication-Efficient Personalized Federated Learning via
Decentralized Sparse Training. ICML 2022. arXiv:2206.00187. Read: the abstract, and the authors' code
(rong-dai/DisPFL: dispfl_api.py, my_model_trainer.py, cifar10.sh).

Established. Each client has a mask with a fixed number of living weights per layer (Erdos-Renyi-Kernel densities).
After an optimiser step the weights are masked again. At the end of a round the smallest weights die and as many dead
ones with the largest gradient come alive, a share that is annealed along a cosine. A coordinate is averaged over the
clients that hold it, and the result is masked with one's own new mask.

Ours. Only the matrices and kernels of the shared block are masked: biases stay dense, and the head, which is neither
masked nor mixed, stays at home (the paper masks and mixes the whole network). All masks start alike, which is the
default of the authors' code; their script for CIFAR-10 draws one per client, as `masks=own` does. Regrowth looks at the
gradient of the last batch instead of an extra pass. The optimiser is Adam, whose moments are not masked. Peers are k =
2 uniform draws among the neighbours. A block travels as a bitmap and its non-zero values. Changes anneal over the whole
run, anneal = .5 at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import ClassVar, Literal

from torch import nn

from ..exchange import ExchangeLayer
from ..exchange.masks import MASK, Layers, Masked, masked_slots, prune_and_regrow
from ..learning.training import Local, LocalTraining
from ..selection import option
from ..selection.uniform_neighbours import UniformNeighbours
from .base import Method


class SparseTraining(LocalTraining):
    """Training within a mask that changes at the end of the round; `anneal` is the share that moves in round 0."""

    def __init__(self, anneal: float) -> None:
        self.anneal = anneal

    def stepped(self, local: Local) -> None:
        """Dead weights stay dead."""
        local.row[local.layout.shared].mul_(local.extras[MASK])

    def end(self, local: Local, model: nn.Module) -> None:
        """After the round's last batch: a new mask, by the trained weights and the last gradient."""
        if local.epoch + 1 == local.epochs:
            self.change(local)

    def change(self, local: Local) -> None:
        """Let some weights die and as many come alive, layer by layer."""
        share = self.anneal / 2 * (1 + cos(pi * local.round / local.rounds))
        for slot in masked_slots(local.layout):
            columns = slice(slot.start, slot.start + slot.size)
            prune_and_regrow(local.extras[MASK][columns], local.row[columns], local.gradient[columns], share)


class DisPFL(Method):
    """Sparse personal models, averaged over who holds a weight."""

    id: ClassVar[str] = "dispfl"
    rule = UniformNeighbours
    evidence: ClassVar[str] = "none"
    communication: ClassVar[str] = "k / k, sparse"
    fidelity: ClassVar[str] = "adapted: heads are neither masked nor mixed, regrowth by the last batch's gradient"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """How masks are made."""

        density: float = option(0.5, "living share of the shared weights", gt=0, le=1)
        layers: Layers = option("erk", "density per layer: higher where a layer is small (erk), or equal (uniform)")
        masks: Literal["same", "own"] = option("same", "initial masks: the same for all (same), or each its own (own)")
        anneal: float = option(0.5, "share of the living weights that changes place in the first round", ge=0, le=1)

    options: Options

    def make_exchange(self) -> ExchangeLayer:
        """Exchange masked blocks."""
        return Masked(self.options.density, self.options.layers, own=self.options.masks == "own")

    def make_training(self) -> LocalTraining:
        """Masked training; prune and regrow."""
        return SparseTraining(self.options.anneal)
