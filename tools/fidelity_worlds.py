"""The worlds of `tools/fidelity.py`, as near to the published ones as a laptop's minutes allow, and runs in them.

Data are fetched by `sagefl data get`; a world whose data are absent raises `DataError`, which says how to get them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from sagefl.data import Dataset
from sagefl.data.loading import load
from sagefl.runs.config import Execution, RunConfig, merged, method_config
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World


@dataclass(frozen=True)
class Setting:
    """A world: what it is in words, how many images it takes of its data, its seeds, and its config."""

    ours: str
    config: Mapping[str, Any]
    images: int | None = None  # the first so many of the training split, and the first 2,000 of the test split
    seeds: Sequence[int] = (1, 2)


# Networks -------------------------------------------------------------------------------------------------------------


class Convolutions(nn.Module):
    """Convolutions and linear layers; `shared` is the body, the last linear layer is the head."""

    shared = ("body",)

    def forward(self, x: Tensor) -> Tensor:
        """Class logits."""
        return self.head(self.body(x))  # type: ignore[no-any-return]


class PensNet(Convolutions):
    """As `FashionMNISTNet` of guskarls/dfl-pens has it: three 3x3 convolutions of 32, 64 and 64 channels."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        chain, layers = (shape[0], 32, 64, 64), []
        for a, b in zip(chain, chain[1:], strict=False):
            layers += [nn.Conv2d(a, b, 3), nn.ReLU(), nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Pixels lie in [-1, 1], as their code normalises them."""
        return super().forward(2 * x - 1)


class OcdNet(Convolutions):
    """As `MNISTModel` of nizar-masmoudi/decentralized-federated-learning has it, without its dropout."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 10, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Flatten(), nn.Linear(320, 50), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(50, classes)


class LeNet(Convolutions):
    """LeNet-5 for three colours, in place of the papers' ResNet-18 and VGG-11."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(84, classes)


# Worlds ---------------------------------------------------------------------------------------------------------------

HERE = Path(__file__)
GROUPS, ROUNDS, TESTED = 4, 15, 2000
SMALL = {"clients": 12, "rounds": ROUNDS, "model": {"name": "mlp"}, "training": {"max_batches": 4}}
WHOLE = {"name": "mlp", "shared": ["body", "head"]}
SKEWED = {"data": {"alpha": 0.1}, "topology": {"kind": "regular", "k": 4}}
PERCEPTRON = "embedded Fashion-MNIST (10,000 images), perceptron of 32 units"
PUBLISHED: Mapping[str, Any] = {  # of DFCA and IFCA: ten steps of full-batch gradient descent a round
    "rounds": 31,
    "data": {"dataset": "mnist", "partition": "iid", "anchor": 0.005, "eval": 0.005},
    "world": {"shift": "rotation", "groups": GROUPS},
    "model": {"name": "mlp", "options": {"hidden": 200}},
    "training": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 200, "epochs": 10},
}
SHARDS: Mapping[str, Any] = {
    "clients": 20,
    "rounds": 15,
    "data": {"dataset": "cifar10", "partition": "shards", "shards": 2, "anchor": 0.1, "eval": 0.3},
    "topology": {"kind": "complete"},
    "model": {"name": f"{HERE}:LeNet"},
    "training": {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.9, "batch_size": 25},
}
WORLDS: Mapping[str, Setting] = {
    "mnist": Setting(
        "rotated MNIST: 60 clients of 200 images in four groups, perceptron of 200 units, each client with 24 "
        "neighbours, 31 rounds of ten steps of full-batch gradient descent at .1",
        {**PUBLISHED, "clients": 60, "topology": {"kind": "regular", "k": 24}},
        images=60 * 202,
    ),
    "mnist-many": Setting(
        "rotated MNIST: 240 (and 60) clients of 200 images in four groups, perceptron of 200 units, each client with "
        "24 neighbours (as IFCA: all), 31 rounds of ten steps of full-batch gradient descent at .1",
        {**PUBLISHED, "clients": 240, "topology": {"kind": "regular", "k": 24}}, images=240 * 202,
    ),
    "mnist-all": Setting(
        "the same on a complete graph, which is IFCA's server", {**PUBLISHED, "clients": 60,
        "topology": {"kind": "complete"}}, images=60 * 202, seeds=(1,),
    ),
    "fashion": Setting(
        "Fashion-MNIST: 16 clients of 400 images, 100 of them to train on, two groups turned by 0 and 180 degrees, "
        "their network, whole models, three epochs of Adam in batches of 8, complete graph, 12 rounds, one seed",
        {
            "clients": 16, "rounds": 12,
            "data": {"dataset": "fmnist", "partition": "iid", "anchor": 0.05, "eval": 0.7},
            "world": {"shift": "rotation", "groups": 2}, "topology": {"kind": "complete"},
            "model": {"name": f"{HERE}:PensNet", "shared": "*"}, "training": {"batch_size": 8, "epochs": 3},
        },
        images=16 * 400, seeds=(1,),
    ),
    "five": Setting(
        "CIFAR-10: 15 clients of 320 images, five distributions of two classes each, LeNet-5, whole models, five "
        "epochs of SGD at .1 in batches of 50, complete graph, 10 rounds, one seed",
        {
            "clients": 15, "rounds": 10,
            "data": {"dataset": "cifar10", "partition": "iid", "anchor": 0.2, "eval": 0.02},
            "world": {"shift": "label-set", "groups": 5}, "topology": {"kind": "complete"},
            "model": {"name": f"{HERE}:LeNet", "shared": "*"},
            "training": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 50, "epochs": 5},
        },
        images=15 * 320, seeds=(1,),
    ),
    "shards": Setting(
        "CIFAR-10: 20 clients of 500 images, two label shards each, LeNet-5 with a personal last layer, an epoch of "
        "SGD at .01 with momentum .9 in batches of 25, complete graph, 15 rounds, one seed",
        SHARDS, images=20 * 500, seeds=(1,),
    ),
    "shards, merged": Setting(
        "the same with whole models", {**SHARDS, "model": {"name": f"{HERE}:LeNet", "shared": "*"}},
        images=20 * 500, seeds=(1,),
    ),
    "race": Setting(
        "Fashion-MNIST: 8 clients of 2,000 images in four groups by rotation, half of the images anchors, perceptron "
        "of 32 units, complete graph, 15 rounds of four mini-batches, seeds 1 and 2",
        {
            **SMALL, "clients": 8,
            "data": {"dataset": "fmnist", "partition": "iid", "anchor": 0.5},
            "world": {"shift": "rotation", "groups": GROUPS}, "topology": {"kind": "complete"},
        },
        images=8 * 2000,
    ),
    "rotated": Setting(
        f"{PERCEPTRON}: 20 clients of 500 images in four groups by rotation, complete graph",
        {
            **SMALL, "clients": 20, "data": {"partition": "iid"},
            "world": {"shift": "rotation", "groups": GROUPS}, "topology": {"kind": "complete"},
        },
    ),
    "nearby": Setting(
        "MNIST: 10 clients, 10,000 images by Dirichlet(1), their network without dropout, whole models, three epochs "
        "of SGD at .1 in batches of 64, complete graph, 20 rounds, one seed",
        {
            "clients": 10, "rounds": 20,
            "data": {"dataset": "mnist", "alpha": 1.0, "anchor": 0.02, "eval": 0.1}, "topology": {"kind": "complete"},
            "model": {"name": f"{HERE}:OcdNet", "shared": "*"},
            "training": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 64, "epochs": 3},
        },
        images=10_000, seeds=(1,),
    ),
    "whole": Setting(
        f"{PERCEPTRON}: 36 clients, Dirichlet(.1), a 4-regular graph, whole models",
        {**SMALL, **SKEWED, "clients": 36, "model": WHOLE},
    ),
    "any": Setting(
        f"{PERCEPTRON}: 36 clients, Dirichlet(.1), a complete graph, whole models",
        {**SMALL, **SKEWED, "clients": 36, "model": WHOLE, "topology": {"kind": "complete"}},
    ),
    "poisoned": Setting(
        f"{PERCEPTRON}: 12 clients, iid, complete graph, 3 of them hand over ruined models",
        {
            **SMALL, "data": {"partition": "iid"}, "topology": {"kind": "complete"},
            "network": {"misbehaviour": "poison", "misbehaving": 0.25},
        },
    ),
}  # fmt: skip


# Runs -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """What a run came to, or several in the mean."""

    client: float  # accuracy on clients' own data, culprits left out
    before: float  # the same before the last merge
    accuracy: float  # on the test set, of a client's group where there are groups
    megabytes: float
    moved: float  # models per client-round
    within: float  # share of picks in one's group, in the second half
    evaluations: float
    recovered: float  # share of clients in the cluster that stands for their group


@cache
def runs(world: str, method: str, rounds: int = 0) -> tuple[Numbers, ...]:
    """One method in one world, a run for every seed; `rounds` other than the world's."""
    return tuple(_one(world, method, seed, rounds) for seed in WORLDS[world].seeds)


def numbers(world: str, method: str, rounds: int = 0) -> Numbers:
    """The same in the mean."""
    found = runs(world, method, rounds)
    return Numbers(*(statistics.fmean(getattr(run, field.name) for run in found) for field in fields(Numbers)))


@cache
def _data(name: str, images: int | None) -> Dataset:
    whole = load(name)
    if images is None:
        return whole
    train = slice(images)
    test = slice(None if name == "mnist" else TESTED)  # published figures are of all test images
    return replace(
        whole,
        train_x=whole.train_x[train],
        train_y=whole.train_y[train],
        test_x=whole.test_x[test],
        test_y=whole.test_y[test],
    )


def _one(world: str, method: str, seed: int, rounds: int) -> Numbers:
    document = merged(WORLDS[world].config, {"seed": seed, "method": method_config(method)})
    rounds = rounds or document["rounds"]
    evaluation = {"every": rounds, "losses": "none", "mechanisms": False}
    config = RunConfig.parse({**document, "rounds": rounds, "evaluation": evaluation})
    made = World.build(config, _data(config.data.dataset, WORLDS[world].images))
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        simulator = Simulator(config, run, Execution(engine="sequential", checkpoint_every=rounds), world=made)
        summary = simulator.run()
        decisions = run.table("decisions")
        late = decisions.filter(decisions["round"] >= rounds // 2)
        picks = [(k, j) for k, chosen in late.select("client", "chosen").iter_rows() for j in chosen]
        honest = [c for c, bad in zip(_final(run), made.culprits, strict=True) if not bad]
        group = made.truth.groups
        return Numbers(
            float(np.mean(honest)),
            summary["before_client"],
            summary["accuracy"],
            float(decisions["model_bytes"].sum()) / 1e6,
            float(decisions["transferred"].mean() or 0.0),
            float(np.mean([group[k] == group[j] for k, j in picks])) if picks else float("nan"),
            float(summary["evaluations"]),
            _recovered(getattr(simulator.method.exchange, "clusters", {}), group),
        )


def _final(run: RunDirectory) -> list[float]:
    table = run.table("clients")
    return table.filter(table["round"] == table["round"].max()).sort("client")["own_accuracy"].to_list()


def _recovered(clusters: Mapping[int, int], group: Sequence[int]) -> float:
    """The share of clients in the cluster that stands for their group, by the best assignment of clusters to groups."""
    if not clusters:
        return float("nan")
    names = range(max(GROUPS, 1 + max(clusters.values())))
    ways = permutations(names, GROUPS)
    return max(sum(way[group[k]] == c for k, c in clusters.items()) for way in ways) / len(clusters)
