"""What measures time inside workers; a module of its own, since workers cannot import what a script defines."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sagefl.learning.tasks import Task, Train
from sagefl.learning.training import Local, LocalTraining
from sagefl.learning.workbench import Workbench

STEPS = ("forward", "backward", "optimiser")
CLOCK = "clock"


class Stopwatch(LocalTraining):
    """Plain training that adds up the time of its three steps over an epoch."""

    def begin(self, local: Local, model: nn.Module) -> None:
        self._spent = [0.0, 0.0, 0.0]

    def loss(self, local: Local, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        self._last = time.perf_counter()
        value = super().loss(local, model, x, y)
        self._note(0)
        return value

    def gradient(self, local: Local) -> None:
        self._note(1)

    def stepped(self, local: Local) -> None:
        self._note(2)

    def end(self, local: Local, model: nn.Module) -> None:
        local.extras[CLOCK][: len(STEPS)] += torch.tensor(self._spent)

    def _note(self, step: int) -> None:
        now = time.perf_counter()
        self._spent[step] += now - self._last
        self._last = now


@dataclass(frozen=True, eq=False)
class TrainTimed(Task[float]):
    """`Train`, and the seconds it took."""

    round: int

    def run(self, bench: Workbench) -> float:
        began = time.perf_counter()
        Train(self.client, self.round).run(bench)
        return time.perf_counter() - began
