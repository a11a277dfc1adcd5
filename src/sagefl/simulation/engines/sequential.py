"""The obvious engine: one client after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...learning.devices import CPU
from ...learning.tasks import Result, Task, carry_out
from ...learning.training import LocalTraining
from ...learning.workbench import Workbench
from ..world import World
from .base import allocate, parts


class Sequential:
    """One client after another, in this process; rows visit the device, if it is not the CPU, for one task each."""

    def __init__(
        self,
        world: World,
        hooks: LocalTraining,
        extras: dict[str, int] | None = None,
        *,
        device: torch.device = CPU,
    ) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.population = allocate(world, extras, shared_memory=False)
        self._bench = Workbench(*parts(world, hooks, self.population, shared_memory=False, device=device))

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """One after another, in order."""
        return carry_out(tasks, self._bench)

    def close(self) -> None:
        """Give torch its threads back."""
        torch.set_num_threads(self._threads)
