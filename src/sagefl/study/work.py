"""How one cell is run, wherever that is: here, in a worker process, or as a task of a cluster."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import SageflError
from ..runs.config import Execution, RunConfig

if TYPE_CHECKING:
    from ..data import Dataset

Say = Callable[[int], object]  # is told how many rounds are done


@lru_cache(maxsize=1)
def dataset_of(name: str) -> Dataset:
    """A data set by name, read once."""
    from ..data import load

    return load(name)


class _Rounds:
    """Tells `say` how many rounds a run has done."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def start(self, config: RunConfig, first_round: int) -> None:
        self._say(first_round)

    def round(self, record: Mapping[str, Any]) -> None:
        self._say(int(record["round"]) + 1)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Nothing is said at the end."""


class Attempt(NamedTuple):
    """How an attempt at a cell ended."""

    how: Literal["finished", "interrupted", "failed"]
    why: str = ""
    trace: str = ""  # of an error nobody foresaw


def attempt(
    config: RunConfig, directory: Path, execution: Execution, say: Say, dataset: Dataset | None = None
) -> Attempt:
    """Run one cell and say how it ended; nothing is raised. A signal interrupts it, even in the last round."""
    from ..simulation.simulator import InterruptedRunError

    try:
        _simulate(config, directory, execution, say, dataset)
    except (InterruptedRunError, KeyboardInterrupt):
        return Attempt("interrupted")
    except Exception as error:
        return failed(error)
    return Attempt("finished")


def failed(error: Exception) -> Attempt:
    """What to tell people, with the traceback of an error that nobody foresaw."""
    if isinstance(error, SageflError):
        return Attempt("failed", str(error))
    named = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
    return Attempt("failed", f"{named}{error}", traceback.format_exc())


def _simulate(config: RunConfig, directory: Path, execution: Execution, say: Say, dataset: Dataset | None) -> None:
    from ..runs.rundir import RunDirectory
    from ..simulation.simulator import InterruptedRunError, Simulator
    from ..simulation.world import World

    place = RunDirectory(directory)
    if place.check(config) and place.summary is not None:
        return  # another study was faster
    world = World.build(config, dataset or dataset_of(config.data.dataset))
    simulator = Simulator(config, place, execution, world=world, callbacks=[_Rounds(say)])
    try:
        simulator.run()
    finally:
        if simulator.asked_to_stop:  # also where a worker heard it, or the last round was just done
            raise InterruptedRunError("asked to stop")


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
