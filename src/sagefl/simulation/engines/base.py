"""What every engine offers, and what a worker's bench is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import nn

from ...errors import SageflError
from ...learning.corpus import Corpus
from ...learning.devices import CPU
from ...learning.layout import Layout
from ...learning.models import copied, plain
from ...learning.population import Population, Storage
from ...learning.tasks import Result, Task
from ...learning.training import LocalTraining, TrainingOptions
from ..world import World


class EngineError(SageflError, RuntimeError):
    """The work could not be carried out."""


class LostRowsError(EngineError):
    """Rows are gone with the workers that held them; `rebuild` makes new ones, which a checkpoint must fill."""

    def __init__(self, message: str, rebuild: Callable[[], None]) -> None:
        super().__init__(message)
        self.rebuild = rebuild


class Engine(Protocol):
    """What the round loop needs."""

    @property
    def population(self) -> Storage:
        """Every client's rows."""

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """Carry out every task; results come in the order of the tasks."""

    def close(self) -> None:
        """Release workers and memory."""


def allocate(world: World, extras: dict[str, int] | None, *, shared_memory: bool) -> Population:
    """Rows for all clients of a world, and for what its method keeps about them."""
    return Population.allocate(
        world.layout,
        world.clients,
        ages=1 + world.history,
        two_faced=world.misbehaviour.poisons,
        extras=extras,
        shared_memory=shared_memory,
    )


Parts = tuple[nn.Module, Layout, Population, Corpus, TrainingOptions, LocalTraining, int, torch.device]


def parts(
    world: World, hooks: LocalTraining, population: Population, *, shared_memory: bool, device: torch.device = CPU
) -> Parts:
    """What a workbench is made of. Workers make their own: its scratch memory must not be shared."""
    config = world.config
    options = TrainingOptions(**config.training.model_dump(), rounds=config.rounds, join_last=world.lone)
    corpus = world.corpus(shared_memory=shared_memory)
    # The world's own stays a template. What makes single clients fast on a CPU knows float32 alone.
    model = copied(world.model) if options.precision == "float32" else plain(world.model, CPU)
    return (model, world.layout, population, corpus, options, hooks, world.config.seed, device)
