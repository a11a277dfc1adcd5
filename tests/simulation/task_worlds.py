"""Small worlds of every kind of task: text, several arrays per sample, regression, BatchNorm, adapters.

Data and models are found by name, as a user's are, so that worker processes find them too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sagefl.data import Dataset

CLIENTS, EACH, WORDS, LENGTH = 4, 40, 30, 6
OWNERS = np.repeat(np.array(["ada", "bob", "cleo", "dan"]), EACH)
_RNG = np.random.default_rng(7)
TOKENS = _RNG.integers(1, WORDS, (CLIENTS * EACH, LENGTH)).astype(np.int32)
TABLE = _RNG.normal(size=(CLIENTS * EACH, 5))
LABELS = (TOKENS[:, 0] > WORDS // 2).astype(np.int64)
SIGNS = np.where((OWNERS == "ada") | (OWNERS == "bob"), 1.0, -1.0)  # two groups that contradict each other
VALUES = 20 * SIGNS * TABLE[:, 0] + 5 * TABLE[:, 1] + 100
TEST = slice(0, 50)


def tokens() -> tuple[Any, ...]:
    """Text: which half of the vocabulary it begins with."""
    return TOKENS, LABELS, TOKENS[TEST], LABELS[TEST], OWNERS


def records() -> tuple[Any, ...]:
    """Several arrays per sample."""
    x = {"words": TOKENS, "where": TABLE, "there": TOKENS > 3}
    return x, LABELS, {name: a[TEST] for name, a in x.items()}, LABELS[TEST], OWNERS


def table() -> tuple[Any, ...]:
    """Regression."""
    return TABLE, VALUES, TABLE[TEST], VALUES[TEST], OWNERS


def images() -> Dataset:
    """Small colour images; every owner has 41 samples, so that a last batch has a single one."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (CLIENTS * 41, 3, 8, 8), dtype=np.uint8)
    y = (x[:, 0].mean(axis=(1, 2)) > x[:, 1].mean(axis=(1, 2))).astype(np.int64)
    return Dataset.from_arrays("images", x, y, x[:50], y[:50], owners=np.repeat(np.arange(CLIENTS), 41))


class Reader(nn.Module):
    """An embedding and a GRU."""

    shared = ("words", "gru")

    def __init__(self, shape: tuple[int, ...], classes: int, *, width: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.top = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.gru(self.words(x))[0][:, -1])


class Several(nn.Module):
    """Words and a table together; declares nothing, so that everything is shared."""

    def __init__(self, shape: dict[str, tuple[int, ...]], classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 6)
        self.top = nn.Linear(6 + shape["where"][0], classes)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        seen = (self.words(x["words"]) * x["there"][..., None]).mean(1)
        return self.top(torch.cat([seen, x["where"]], 1))


class Residual(nn.Module):
    """A residual block with BatchNorm, over images and over features.

    No biases before BatchNorm: their gradient is rounding, which Adam would blow up to whole steps.
    """

    shared = ("stem", "block")

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4))
        self.top = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.top(torch.relu(x + self.block(x)).mean((2, 3)))


class Biased(Residual):
    """The same with a bias that BatchNorm takes away again."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.stem[0] = nn.Conv2d(shape[0], 4, 3, padding=1)


class Adapted(nn.Module):
    """A frozen base, low-rank adapters that are exchanged, a head of one's own."""

    shared = ("down", "up")

    def __init__(self, shape: tuple[int, ...], classes: int, *, rank: int = 2, width: int = 64) -> None:
        super().__init__()
        self.base = nn.Linear(shape[0], width).requires_grad_(False)
        self.down, self.up = nn.Linear(shape[0], rank, bias=False), nn.Linear(rank, width, bias=False)
        self.top = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.top(torch.relu(self.base(x) + self.up(self.down(x))))


WORLDS: dict[str, dict[str, Any]] = {
    "text": {"data": {"dataset": "task_worlds:tokens"}, "model": {"name": "task_worlds:Reader"}},
    "records": {"data": {"dataset": "task_worlds:records"}, "model": {"name": "task_worlds:Several"}},
    "regression": {"data": {"dataset": "task_worlds:table"}, "model": {"name": "mlp"}},
    "batchnorm": {"data": {"dataset": "task_worlds:images"}, "model": {"name": "task_worlds:Residual"}},
    "exchanged buffers": {
        "data": {"dataset": "task_worlds:images"},
        "model": {"name": "task_worlds:Residual", "buffers": "exchanged"},
    },
    "adapters": {"data": {"dataset": "task_worlds:table"}, "model": {"name": "task_worlds:Adapted"}},
}
