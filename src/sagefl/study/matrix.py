"""One run of a study. A cell is a run's config and nothing else; its address is a hash of it and of the code it names.

Studies share the cells they have in common, and a cell that is done is never run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..runs.config import RunConfig
from ..runs.environment import address
from .results import Configuration


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
        """The folder in which it is run."""
        return cells / self.address

    @cached_property
    def address(self) -> str:
        """Its folder's name: a hash of the config and of the code that it names."""
        return address(self.config)

    @property
    def work(self) -> float:
        """Roughly how long it takes, in no particular unit; the time left is estimated from it."""
        c = self.config
        pixels = 4.0 if c.data.dataset == "cifar10" else 1.0
        return c.rounds * c.clients * (c.training.max_batches or 15) * pixels


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
        precisions = list(dict.fromkeys(c.training.precision for c in of))
        precise = "" if precisions == ["float32"] else f", in {' and '.join(precisions)}"
        lines.append(f"{dataset}: K = {clients}, T = {rounds}, {epoch}, {models}, seed {seeds}{precise}")
    return lines


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
