"""A residual network with BatchNorm, for images of CIFAR-10's shape.

Running statistics belong to the client: they are trained, checkpointed and asked with it, but not exchanged, as in
FedBN (Li et al. 2021, arXiv:2102.07623). `--set model.buffers=exchanged` moves them along with the weights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sagefl.data import Dataset, load

SHOPS, TRAIN, TEST = 8, 8000, 2000


def tinted() -> Dataset:
    """Clothes in colour: the embedded images, 3 x 32 x 32, in the colour of eight shops, each with its own light."""
    grey, rng = load("fmnist-mini"), np.random.default_rng(2)
    shop = np.arange(TRAIN) % SHOPS
    light = rng.uniform(0.3, 1.0, (SHOPS, 3)).astype(np.float32)

    def coloured(images: np.ndarray, lights: np.ndarray) -> np.ndarray:
        wide = np.pad(images[:, 0], ((0, 0), (2, 2), (2, 2))).astype(np.float32)
        return (wide[:, None] * lights[:, :, None, None]).astype(np.uint8)

    x, test = coloured(grey.train_x[:TRAIN], light[shop]), coloured(grey.test_x[:TEST], light[np.arange(TEST) % SHOPS])
    names = np.array([f"shop {s}" for s in shop])
    return Dataset.from_arrays("tinted", x, grey.train_y[:TRAIN], test, grey.test_y[:TEST], 10, names)


class Block(nn.Module):
    """Two convolutions that add to what they are given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return torch.relu(x + self.inner(x))


class Residual(nn.Module):
    """A small residual network; its head stays at home.

    No bias before BatchNorm, which would take it away again.
    """

    shared = ("stem", "blocks")

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 8, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)), nn.AvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(width * (shape[1] // 8) * (shape[2] // 8), classes)

    def latent(self, x: Tensor) -> Tensor:
        """What mixing imports."""
        return self.blocks(self.stem(x))

    def forward(self, x: Tensor) -> Tensor:
        """Class logits."""
        return self.head(self.latent(x))
