"""Rows without a simulator: a small population, and somebody who carries out an exchange layer's steps on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from clusters import clustered_world
from safetensors.torch import load_file

from sagefl.exchange import ExchangeLayer, Sizes
from sagefl.learning.layout import Layout
from sagefl.learning.models import Mlp
from sagefl.learning.population import Population
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import Outcome, Reason
from sagefl.selection.scoring import Outputs
from sagefl.simulation.simulator import Simulator

SEED = 3


@dataclass
class Rows:
    """A workbench as far as exchange layers know it, and the tasks that run on it."""

    population: Population
    layout: Layout
    seed: int = SEED

    @classmethod
    def made(cls, clients: int, layer: ExchangeLayer, *, ages: int = 1) -> Rows:
        """Everybody starts from the same random row."""
        layout = Layout.of(Mlp((5,), 3, hidden=7))  # 35 + 7 shared scalars in 64 columns: there is padding
        extras = layer.extras(layout.width, layout.shared_stop)
        rows = cls(Population.allocate(layout, clients, ages=ages, extras=extras), layout)
        row = torch.zeros(layout.width)
        generator = torch.Generator().manual_seed(SEED)
        for view in layout.views(row).values():
            view.copy_(torch.randn(view.shape, generator=generator))
        rows.population.reset(row)
        layer.begin(rows, clients)
        return rows

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        """Tasks of an exchange layer, one after another."""
        return [task.run(self) for task in tasks]

    def train(self, generator: torch.Generator, scale: float = 0.1) -> None:
        """Every parameter moves at random, heads too."""
        for row in self.population.params:
            for view in self.layout.views(row).values():
                view.add_(torch.randn(view.shape, generator=generator), alpha=scale)

    def publish(self, round: int) -> None:
        """What training ends with."""
        self.population.snapshots[self.population.slot(round)].copy_(self.population.params)

    @property
    def shared(self) -> torch.Tensor:
        return self.population.params[:, self.layout.shared]

    @property
    def heads(self) -> torch.Tensor:
        return self.population.params[:, self.layout.shared_stop :]

    @property
    def padding(self) -> torch.Tensor:
        """Columns that hold no parameter."""
        used = torch.zeros(self.layout.width, dtype=torch.bool)
        for slot in self.layout.slots:
            used[slot.start : slot.start + slot.size] = True
        return self.population.params[:, ~used]

    @property
    def sizes(self) -> Sizes:
        return Sizes.of(self.layout, Outputs(3, 7), 5, None)


def pulled(weights: Mapping[int, float]) -> Outcome:
    """The outcome of a decision to merge these peers."""
    return Outcome(tuple(weights), True, Reason.COMMITTED, dict(weights))


def pushed(peers: Sequence[int]) -> Outcome:
    """The outcome of a decision to push to these peers."""
    return Outcome(tuple(peers), bool(peers), Reason.COMMITTED, direction="push")


def metropolis(edges: Sequence[tuple[int, int]], clients: int) -> dict[int, dict[int, float]]:
    """Metropolis-Hastings weights of a graph, by client and neighbour."""
    degrees = [sum(k in edge for edge in edges) for k in range(clients)]
    weights: dict[int, dict[int, float]] = {k: {} for k in range(clients)}
    for i, j in edges:
        weights[i][j] = weights[j][i] = 1 / (1 + max(degrees[i], degrees[j]))
    return weights


def finished(config: RunConfig, directory: Path) -> Simulator:
    """A run on the clustered world, with its method as it stands after the last round."""
    simulator = Simulator(
        config, RunDirectory(directory), Execution(engine="sequential"), world=clustered_world(config)
    )
    simulator.run()
    return simulator


def saved(directory: RunDirectory, name: str) -> torch.Tensor:
    """A tensor of a run's last checkpoint: ``params``, ``extras.mask`` ..."""
    newest: Path = sorted((directory.path / "checkpoint").glob("round-*"))[-1]
    return torch.cat([load_file(part)["rows"] for part in sorted(newest.glob(f"{name}-*.safetensors"))])
