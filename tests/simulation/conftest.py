"""Fixtures of the simulator's tests: one pool of workers per world, and reference runs made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import files, simulate, world

from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig
from sagefl.simulation import simulator
from sagefl.simulation.engines import Processes


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Kept:
    """A pool that outlives the runs that use it: starting workers costs more than these runs do."""

    def __init__(self, pool: Processes) -> None:
        self.pool, self.population = pool, pool.population

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        return self.pool.map(tasks)

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def pools() -> Iterator[Callable[[RunConfig, int], Kept]]:
    """The workers of a world, whatever the method."""
    started: dict[tuple[str, int], Processes] = {}

    def of(settings: RunConfig, workers: int) -> Kept:
        key = (settings.world_digest, workers)
        if key not in started:
            started[key] = Processes(world(settings), LocalTraining(), workers)
        return Kept(started[key])

    yield of
    for pool in started.values():
        pool.close()


@pytest.fixture
def on_workers(
    pools: Callable[[RunConfig, int], Kept], monkeypatch: pytest.MonkeyPatch
) -> Callable[[RunConfig, int], None]:
    """Let all further runs of a config use a pool of so many workers."""

    def use(settings: RunConfig, workers: int) -> None:
        monkeypatch.setattr(simulator, "make_engine", lambda *args, **kwargs: pools(settings, workers))

    return use


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The directory of an uninterrupted, sequential run with a checkpoint every other round."""
    made: dict[tuple[str, int], Path] = {}

    def of(settings: RunConfig, every: int = 2) -> Path:
        key = (settings.digest, every)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("reference") / "run"
            simulate(made[key], settings, every=every)
            assert files(made[key])
        return made[key]

    return of
