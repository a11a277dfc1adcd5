"""Which runs a study consists of: data sets x topologies x alphas x methods x seeds, at one of three scales.

A cell is a run's config and nothing else, and its digest is its address: studies share the cells they have in common,
and a cell that is done is never run again. Scales are presets; every axis and the scale itself can be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ..runs.config import RunConfig, merged
from ..selection.registry import nearest
from ..settings import parse_options
from .errors import StudyError
from .published import STAND_INS
from .results import ALPHAS, PAPER_METHODS, Configuration

__all__ = ["PRESETS", "Cell", "Preset", "plan", "preset_of", "scale_of"]

# The paper compares rules of selection under one local training, so a method named without options trains as all do.
# PFedDST's own two-phase training falls far behind gossip here; in the paper's tables PFedDST stands level with it.
AS_COMPARED: Mapping[str, Mapping[str, Any]] = {"pfeddst": {"alternate": False}}


@dataclass(frozen=True)
class Preset:
    """A scale and what is run at it."""

    name: str
    title: str
    base: Mapping[str, Any]  # config keys common to all cells
    topologies: Mapping[str, Mapping[str, Any]]  # by kind
    datasets: tuple[str, ...] = ("fmnist", "cifar10")
    alphas: tuple[float, ...] = ALPHAS
    methods: tuple[str, ...] = PAPER_METHODS
    seeds: tuple[int, ...] = (1,)
    small: bool = False  # whether cells are small enough to run several at a time by default


_GRAPHS: Mapping[str, Mapping[str, Any]] = {"ba": {"kind": "ba"}, "er": {"kind": "er"}}

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "smoke",
            "a toy that shows the machinery, not the paper: embedded data, 12 clients, a small perceptron",
            {
                "clients": 12,
                "rounds": 15,
                "model": {"name": "mlp"},
                "training": {"max_batches": 4},
                "evaluation": {"every": 5, "subset": 500},
            },
            {"ba": {"kind": "ba"}, "er": {"kind": "er", "degree": 6}},
            datasets=("fmnist-mini",),
            alphas=(0.1, 0.3),
            methods=(*PAPER_METHODS, "sage-os-table"),
            small=True,
        ),
        Preset(
            "laptop",
            "real data, pools and graphs as in the paper; fewer rounds and at most 8 local mini-batches a round",
            {"clients": 50, "rounds": 150, "training": {"max_batches": 8}, "evaluation": {"every": 25}},
            _GRAPHS,
        ),
        Preset(
            "paper",
            "as printed",
            {"clients": 50, "rounds": 250, "evaluation": {"every": 25}},
            _GRAPHS,
        ),
    )
}


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    configuration: Configuration
    method: str  # a label: id:name=value
    config: RunConfig

    @property
    def seed(self) -> int:
        """The replication it belongs to."""
        return self.config.seed

    @property
    def name(self) -> str:
        """How messages refer to it."""
        return f"{self.configuration} {self.method} seed {self.seed}"

    def folder(self, cells: Path) -> Path:
        """Where it is run."""
        return cells / self.config.digest

    @property
    def work(self) -> float:
        """Roughly how long it takes, in no particular unit; the time left is estimated from it."""
        c = self.config
        pixels = 4.0 if c.data.dataset == "cifar10" else 1.0
        return c.rounds * c.clients * (c.training.max_batches or 15) * pixels


def plan(
    preset: str,
    *,
    datasets: Sequence[str] = (),
    topologies: Sequence[str] = (),
    alphas: Sequence[float] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """The cells of a study, complete configurations first; empty axes are the preset's own."""
    chosen = preset_of(preset)
    axes = product(
        seeds or chosen.seeds,
        datasets or chosen.datasets,
        topologies or tuple(chosen.topologies),
        alphas or chosen.alphas,
        methods or chosen.methods,
    )
    cells = [
        _cell(chosen, seed, Configuration(dataset, kind, alpha), method, overrides or {})
        for seed, dataset, kind, alpha, method in axes
    ]
    return list({cell.config.digest: cell for cell in cells}.values())


def preset_of(name: str) -> Preset:
    """The preset with this name."""
    if name not in PRESETS:
        raise StudyError(f"unknown preset {name!r}{nearest(name, PRESETS)}; presets: {', '.join(PRESETS)}")
    return PRESETS[name]


def _cell(preset: Preset, seed: int, at: Configuration, method: str, overrides: Mapping[str, Any]) -> Cell:
    id, *given = method.split(":")
    options = parse_options(given) if given else dict(AS_COMPARED.get(id.strip(), {}))
    document: dict[str, Any] = {
        "seed": seed,
        "data": {"dataset": at.dataset, "alpha": at.alpha},
        "topology": dict(preset.topologies.get(at.topology, {"kind": at.topology})),
        "method": {"id": id.strip(), "options": options},
    }
    config = RunConfig.parse(merged(merged(preset.base, document), overrides))
    return Cell(at, method, config)


def scale_of(configs: Sequence[RunConfig]) -> list[str]:
    """What was actually run, a line per data set."""
    lines = []
    for dataset in dict.fromkeys(c.data.dataset for c in configs):
        of = [c for c in configs if c.data.dataset == dataset]
        rounds = _span([c.rounds for c in of])
        clients = _span([c.clients for c in of])
        caps = {c.training.max_batches for c in of}
        epoch = " or ".join("whole local epochs" if m is None else f"at most {m} mini-batches a round" for m in caps)
        models = ", ".join(sorted({c.model.name for c in of}))
        seeds = _span([c.seed for c in of])
        lines.append(f"{dataset}: K = {clients}, T = {rounds}, {epoch}, {models}, seed {seeds}")
    there = {c.data.dataset for c in configs}
    return lines + [f"{ours} stands beside the paper's {theirs}" for ours, theirs in STAND_INS.items() if ours in there]


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
