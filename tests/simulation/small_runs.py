"""Small runs on real images: the worlds, how they are run, and what is compared of what they leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sagefl.data import Dataset, load
from sagefl.runs.config import Execution, RunConfig, merged, method_config
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Callback, Simulator
from sagefl.simulation.world import World

BASE: dict[str, Any] = {
    "clients": 8,
    "rounds": 4,
    "data": {"alpha": 0.1},
    "topology": {"p": 0.4},
    "model": {"name": "mlp", "options": {"hidden": 8}},
    "training": {"max_batches": 4, "batch_size": 16, "learning_rate": 0.03},
    "evaluation": {"every": 2, "subset": 100},
}  # one client has too few anchors to probe; SAGE-OS certifies, stops for cost and exhausts its pool
ROUGH: dict[str, Any] = {
    "topology": {"p": 0.9},
    "network": {
        "available": 0.8,
        "drop": 0.1,
        "delay": 0.5,
        "max_delay": 2,
        "misbehaviour": "flatter-poison",
        "misbehaving": 0.34,
    },
}
CORE = ("local", "rg", "aq-128", "sage-nf", "sage-vanilla", "sage-os", "sage-os-table")
KINDS = (
    "sage-os:kind=latents",
    "sage-os:kind=latents:loss=ce",
    "aq-128:kind=probs",
    "sage-vanilla:kind=probs:loss=ce:loss_bound=1.5",
)
REPEATABLE = ("timings.parquet", "events.log", "environment.json", ".lock")  # all but these


@cache
def mini() -> Dataset:
    """The embedded images, with fewer to test on."""
    whole = load("fmnist-mini")
    return Dataset("fmnist-mini", whole.train_x, whole.train_y, whole.test_x[:300], whole.test_y[:300], whole.classes)


def config(method: str | None = None, **sections: Any) -> RunConfig:
    """`BASE` with other settings on top; a model replaces the one there, options and all."""
    if method is not None:
        sections["method"] = method_config(method)
    base = {name: value for name, value in BASE.items() if not (name == "model" and name in sections)}
    return RunConfig.parse(merged(base, sections))


SHIFTED: dict[str, dict[str, Any]] = {
    "labels": {"groups": 3},
    "flip": {},
    "rotation": {"groups": 3},
    "invert": {"assign": "graph"},
    "brightness": {"groups": 3, "sizes": (4, 2, 2)},
    "contrast": {},
    "noise": {"assign": "graph"},
    "blur": {},
    "label-set": {"groups": 3},
    "quantity": {},
}
WORLDS: dict[str, dict[str, Any]] = {
    **{shift: {"world": {"shift": shift, **how}, "data": {"alpha": 1.0}} for shift, how in SHIFTED.items()},
    "label noise": {"world": {"label_noise": 0.5, "noisy": 0.5}},
    "free-rider": {"network": {"misbehaviour": "free-rider", "misbehaving": 0.34}},
    "free-noise": {"network": {"misbehaviour": "free-noise", "misbehaving": 0.34}},
    "stale": {"network": {"misbehaviour": "stale", "misbehaving": 0.34, "stale": 2, "delay": 0.5}},
    "churn": {"network": {"churn": 0.8}},
}


def small_world(name: str, rule: str = "aq-128:schedule=16", **more: Any) -> RunConfig:
    """A short run in one of the worlds above."""
    given = {"topology": {"p": 0.9}, "rounds": 3, "evaluation": {"every": 2, "subset": 50}}
    return config(rule, **given, **WORLDS[name], **more)


_worlds: dict[str, World] = {}


def world(settings: RunConfig) -> World:
    """The world of a config, built once for all its methods."""
    if settings.world_digest not in _worlds:
        _worlds[settings.world_digest] = World.build(settings, mini())
    return replace(_worlds[settings.world_digest], config=settings)


def simulate(
    directory: Path,
    settings: RunConfig,
    *,
    engine: str = "sequential",
    workers: int | None = None,
    every: int = 2,
    within: World | None = None,
    callbacks: Sequence[Callback] = (),
    extends: bool = False,
) -> dict[str, Any]:
    """Run (or go on with) a config in a directory."""
    execution = Execution(engine=engine, workers=workers, checkpoint_every=every)
    place = RunDirectory(directory)
    within = within or world(settings)
    return Simulator(settings, place, execution, world=within, callbacks=callbacks, extends=extends).run()


def files(directory: Path) -> dict[str, bytes]:
    """Everything that must be equal byte by byte, by name."""
    found = sorted(p for p in directory.rglob("*") if p.is_file() and p.name not in REPEATABLE)
    return {str(p.relative_to(directory)): p.read_bytes() for p in found}


def differing(a: Mapping[str, bytes], b: Mapping[str, bytes]) -> list[str]:
    """Names of files that are not the same in both; readable where a comparison of bytes is not."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


class CrashError(Exception):
    """Stands for whatever ends a process without a warning."""


class CrashAfter:
    """A follower that brings the run down after some round."""

    def __init__(self, round: int) -> None:
        self.last = round

    def start(self, config: RunConfig, first_round: int) -> None:
        pass

    def round(self, record: Mapping[str, Any]) -> None:
        if record["round"] == self.last:
            raise CrashError

    def end(self, summary: Mapping[str, Any] | None) -> None:
        pass


def altered(data: Dataset, touched: np.ndarray, *, labels: bool = True) -> Dataset:
    """The data with the images (and labels) at some training positions replaced by others."""
    x, y = data.train_x.copy(), data.train_y.copy()
    x[touched] = 255 - x[touched]
    if labels:
        y[touched] = (y[touched] + 1) % data.classes
    return Dataset(data.name, x, y, data.test_x, data.test_y, data.classes)
