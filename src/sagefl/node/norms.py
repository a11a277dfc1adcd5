"""How large a block may be, layer by layer: against this node's own history, and against the initial weights.

The first bound keeps a block from drowning one's own. Alone it could be stretched round after round, since what is
merged becomes one's own; nobody can stretch the second, because all began from the same weights.
"""

from __future__ import annotations

from collections import deque
from statistics import median

import torch
from torch import Tensor

from ..learning.layout import Layout
from .config import ExchangeConfig
from .errors import Fault

HISTORY = 16  # rounds of one's own norms that are remembered
SMALLEST = 0.05  # root mean square of a layer that begins at or near zero, as a bias does


class Norms:
    """The norm of every shared layer: in the beginning, and as this node's own training has left it."""

    def __init__(self, layout: Layout, initial: Tensor, bounds: ExchangeConfig) -> None:
        self.layout, self.ratio, self.growth = layout, bounds.norm_ratio, bounds.norm_growth
        self._shared = [slot for slot in layout.slots if slot.start < layout.shared_stop]
        norms = self._of(initial)
        self._initial = [max(n, SMALLEST * slot.size**0.5) for n, slot in zip(norms, self._shared, strict=True)]
        self._history: deque[list[float]] = deque([list(self._initial)], HISTORY)

    def trained(self, row: Tensor) -> None:
        """Remember what a round of this node's own training has come to."""
        if torch.isfinite(row[self.layout.shared]).all():
            self._history.append(self._of(row))

    def check(self, row: Tensor) -> None:
        """Refuse a block with a layer out of all proportion to one's own, or to where everybody began."""
        for slot, norm, initial, own in zip(
            self._shared, self._of(row), self._initial, zip(*self._history, strict=True), strict=True
        ):
            usual = max(median(own), SMALLEST * slot.size**0.5)
            most = min(self.ratio * usual, self.growth * initial)
            if norm >= most:
                raise Fault(
                    "norm-bound",
                    f"its layer {slot.name} has norm {norm:.4g}; ours has {usual:.4g}, at first "
                    f"{initial:.4g}: at most {most:.4g} is taken",
                )

    def state(self) -> list[list[float]]:
        """For a checkpoint."""
        return [list(norms) for norms in self._history]

    def restore(self, state: list[list[float]]) -> None:
        """Go on from a checkpoint."""
        if state and all(len(norms) == len(self._shared) for norms in state):
            self._history = deque(state, HISTORY)

    def _of(self, row: Tensor) -> list[float]:
        return [float(row[slot.start : slot.start + slot.size].double().norm()) for slot in self._shared]
