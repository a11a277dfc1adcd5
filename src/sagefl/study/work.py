"""What running one cell takes, wherever it runs: here, in a worker process, or as a task of a cluster."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SageflError
from ..runs.config import Execution, RunConfig

if TYPE_CHECKING:
    from ..data import Dataset

__all__ = ["dataset_of", "described", "simulate", "taken"]


@lru_cache(maxsize=1)
def dataset_of(name: str) -> Dataset:
    """A data set by name, read once."""
    from ..data import load

    return load(name)


class _Rounds:
    """Passes a run's progress on."""

    def __init__(self, say: Any) -> None:
        self._say = say

    def start(self, config: RunConfig, first_round: int) -> None:
        self._say(first_round)

    def round(self, record: Mapping[str, Any]) -> None:
        self._say(int(record["round"]) + 1)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Nothing more to say."""


def simulate(
    config: RunConfig, directory: Path, execution: Execution, say: Any, dataset: Dataset | None = None
) -> None:
    """Run one cell; InterruptedRunError if a signal asked to stop, even where it came too late or a worker heard it."""
    from ..runs.rundir import RunDirectory
    from ..simulation.simulator import InterruptedRunError, Simulator
    from ..simulation.world import World

    if (directory / "summary.json").is_file():
        return  # another study was faster
    world = World.build(config, dataset or dataset_of(config.data.dataset))
    simulator = Simulator(config, RunDirectory(directory), execution, world=world, callbacks=[_Rounds(say)])
    try:
        simulator.run()
    finally:
        if simulator.asked_to_stop:
            raise InterruptedRunError("asked to stop")


def described(error: Exception) -> tuple[str, str]:
    """What to tell people, and the trace where nobody foresaw the error."""
    if isinstance(error, SageflError):
        return str(error), ""
    named = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return f"{named}{error}", traceback.format_exc()


def taken(directory: Path) -> bool:
    """Whether another process is running this cell now."""
    from ..runs.rundir import RunDirectory

    if not (directory / ".lock").is_file():
        return False
    try:
        with RunDirectory(directory).locked():
            return False
    except SageflError:
        return True
