"""What a user brings, for small runs: data with owners, a model with BatchNorm, a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn


def owned() -> tuple[np.ndarray, ...]:
    """Six owners' points, each with a border of its own; the owners of training and test samples come last."""
    rng = np.random.default_rng(4)
    owner = np.arange(900) % 6
    x = rng.normal(size=(900, 6)).astype(np.float32)
    y = (x[:, 0] * np.cos(owner) + x[:, 1] * np.sin(owner) > 0).astype(int)
    return x[:600], y[:600], x[600:], y[600:], owner[:600], owner[600:]


def cost(predictions: Any, targets: Any) -> Any:
    """How far a label is off, of at most 9."""
    return np.abs(predictions - targets) / 9


class Normed(nn.Module):
    """A layer with running statistics; its head stays at home."""

    shared = ("body",)

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out
