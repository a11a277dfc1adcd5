"""The engine of an accelerator: all clients, or chunks of them, as one batched computation."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from ...learning.devices import find_device
from ...learning.stacked import StackedBench
from ...learning.tasks import Result, Task
from ...learning.training import LocalTraining
from ...learning.workbench import Workbench
from ..world import World
from .base import allocate, parts

logger = logging.getLogger(__name__)


class Stacked:
    """Everybody at once, on one device; agrees with the other engines within floating-point tolerance.

    What cannot be stacked (`StackedBench.trouble` says why) is done client by client on the CPU, with a warning.
    """

    def __init__(
        self,
        world: World,
        hooks: LocalTraining,
        extras: dict[str, int] | None = None,
        *,
        device: torch.device | None = None,
        threads: int = 1,
        chunk: int | None = None,
    ) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(threads)
        self.population = allocate(world, extras, shared_memory=False)
        bench = Workbench(*parts(world, hooks, self.population, shared_memory=False))
        self.bench = StackedBench(bench, device or find_device(None), chunk)
        if (trouble := self.bench.trouble) is not None:
            logger.warning("%s: that part is done client by client on the CPU", trouble)

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """Stacked where it can be, in order otherwise."""
        return self.bench.run(tasks)

    def close(self) -> None:
        """Give torch its threads back."""
        torch.set_num_threads(self._threads)
