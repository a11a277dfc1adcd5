"""Modules as users write them, by name ``own_models:NAME``: what can be stacked and what cannot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Perceptron(nn.Module):
    """A loss of its own that averages over the batch and is no sum over samples; a constant buffer; tied weights."""

    shared = ("body",)

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 6), nn.Tanh())
        self.middle = nn.Linear(6, 6)
        self.again = self.middle
        self.top = nn.Linear(6, classes)
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.again(self.middle(self.body(x)))) * self.temperature

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self(x)
        return F.cross_entropy(logits, y) + self.scale * logits.mean(0).square().sum()


class Dropping(Perceptron):
    """Draws of its own while it trains."""

    def forward(self, x: Tensor) -> Tensor:
        return self.top(F.dropout(self.body(x), 0.3, self.training))


class Branching(Perceptron):
    """Does something else where the numbers say so: nothing a batch of clients can do."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        return self.top(hidden if float(hidden.sum()) > 0 else -hidden)


class Normed(Perceptron):
    """A sample's output depends on its company, in training and after."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.norm = nn.BatchNorm1d(6, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.norm(self.body(x)))


class Counting(Perceptron):
    """Replaces a buffer instead of changing it in place."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.calls = self.calls + 1
        return super().forward(x)
