"""The obvious engine: one client after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...learning.training import LocalTraining
from ...learning.workbench import Workbench
from ..world import World
from .base import Call, allocate, parts

__all__ = ["Sequential"]


class Sequential:
    """One client after another, in this process."""

    def __init__(self, world: World, hooks: LocalTraining, extras: dict[str, int] | None = None) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.population = allocate(world, extras, shared_memory=False)
        self._bench = Workbench(*parts(world, hooks, self.population, shared_memory=False))

    def map(self, task: str, calls: Sequence[Call], weights: Sequence[float] | None = None) -> list[Any]:
        """Plainly, in order."""
        function = getattr(self._bench, task)
        return [function(*call) for call in calls]

    def close(self) -> None:
        """Give torch its threads back."""
        torch.set_num_threads(self._threads)
