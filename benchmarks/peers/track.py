"""The track: what is the same for every contestant. Model, shards, graph, first weights, and how accuracy is taken."""

from __future__ import annotations

import random
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sagefl.data import load
from sagefl.runs.config import RunConfig
from sagefl.simulation.world import World

BATCH, RATE, MIXING = 64, 1e-3, 0.5
TEST_IMAGES = 2000


class Cnn(nn.Module):
    """A plain CNN classifier of torch's own layers: the classification path of sagefl's encoder-decoder.

    It is trained by cross-entropy of its logits, which every library in the race can do with its own training step;
    a reconstruction term would need the others' steps rewritten. All of it is exchanged, as the others do.
    """

    shared = ("features", "classifier")

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.features = nn.Sequential(
            nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(2 * height * width, 64),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class Perceptron(nn.Module):
    """Two hidden layers of 200, as in the study that introduced FedAvg and in fluke's own examples (`MNIST_2NN`)."""

    shared = ("layers",)

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        wide = (nn.Linear(prod(shape), 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
        self.layers = nn.Sequential(nn.Flatten(), *wide, nn.Linear(200, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


MODELS = {"cnn": "peers.track:Cnn", "perceptron": "peers.track:Perceptron"}


@dataclass(frozen=True)
class Track:
    """One world, one number of rounds. Round 0 is the warm-up: trained and counted in accuracy, not timed."""

    world: World
    rounds: int
    cores: int

    @classmethod
    def build(
        cls,
        dataset: str,
        clients: int,
        rounds: int,
        cores: int,
        model: str,
        *,
        lower: bool = False,
    ) -> Track:
        data = load(dataset)
        data = replace(data, test_x=data.test_x[:TEST_IMAGES], test_y=data.test_y[:TEST_IMAGES])
        document = {
            "clients": clients,
            "rounds": 1 + rounds,
            "method": {"id": "rg"},
            "data": {"dataset": dataset, "partition": "iid"},  # equal shards: a client-epoch is the same work for all
            "topology": {"kind": "er"},
            "model": {"name": model},
            "training": {
                "learning_rate": RATE, "batch_size": BATCH, "epochs": 1, "mixing": MIXING,
                "precision": "bfloat16" if lower else "float32",
            },
            "evaluation": {"every": 10_000, "subset": 0, "mechanisms": False, "losses": "none"},
        }  # fmt: skip
        return cls(World.build(RunConfig.parse(document), data), rounds, cores)

    @property
    def clients(self) -> int:
        return self.world.clients

    @property
    def lower(self) -> bool:
        """Whether forward passes are in bfloat16."""
        return self.world.config.training.precision == "bfloat16"

    def shards(self) -> list[tuple[Tensor, Tensor]]:
        """Every client's training samples as tensors ready to be trained on."""
        data, shards = self.world.dataset, []
        for roles in self.world.federation.roles:
            x = torch.from_numpy(data.train_x[roles.train]).float().div(255)
            shards.append((x, torch.from_numpy(data.train_y[roles.train])))
        return shards

    def neighbours(self) -> list[list[int]]:
        return [self.world.graph.neighbours(k).tolist() for k in range(self.clients)]

    def model(self) -> nn.Module:
        """A fresh module with the weights that everybody starts from."""
        return deepcopy(self.world.model)

    def prepare(self) -> None:
        """Threads and global generators of a library that works in this process."""
        torch.set_num_threads(self.cores)
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 (fluke and gossipy draw from it)

    def accuracy(self, models: Iterable[nn.Module]) -> float:
        """Mean accuracy of all clients' models on the same test images."""
        x = torch.from_numpy(self.world.dataset.test_x).float().div(255)
        y = torch.from_numpy(self.world.dataset.test_y)
        found = []
        with torch.inference_mode():
            for model in models:
                model.eval()
                found.append((model(x).argmax(1) == y).float().mean().item())
        return sum(found) / len(found)


loss = F.cross_entropy
