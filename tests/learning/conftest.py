"""Small modules and a workbench on made-up samples: nothing here needs a data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sagefl.learning.corpus import Corpus
from sagefl.learning.layout import Layout
from sagefl.learning.population import Population
from sagefl.learning.training import LocalTraining, TrainingOptions
from sagefl.learning.workbench import Workbench

CLASSES, SIDE = 4, 5


class Small(nn.Module):
    """Sizes that are no multiples of the alignment, a constant integer buffer, a head."""

    shared = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 7), nn.Tanh())
        self.head = nn.Linear(7, CLASSES)
        self.register_buffer("order", torch.arange(SIDE * SIDE))

    def latent(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Small()


@pytest.fixture
def corpus() -> Corpus:
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.integers(0, 256, (90, 1, SIDE, SIDE), dtype=np.uint8))
    y = torch.from_numpy(rng.integers(0, CLASSES, 90))
    return Corpus(x[:60], y[:60], x[60:], y[60:], CLASSES, [np.arange(k * 15, (k + 1) * 15) for k in range(4)])


@pytest.fixture
def make_bench(small: nn.Module, corpus: Corpus) -> Callable[..., Workbench]:
    """A workbench of four clients; options as keywords."""

    def make(
        model: nn.Module | None = None, hooks: LocalTraining | None = None, ages: int = 1, **options: Any
    ) -> Workbench:
        module = model or small
        layout = Layout.of(module)
        population = Population.allocate(layout, 4, ages=ages)
        population.reset(layout.flatten(module))
        return Workbench(
            module, layout, population, corpus, TrainingOptions(**options), hooks or LocalTraining(), seed=1
        )

    return make
