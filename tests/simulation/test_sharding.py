"""A population in pieces, without the machines: who holds what, what may be read, and how a run takes a loss."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, differing, files, simulate, world

from sagefl import references
from sagefl.exchange.compression import Send, Step
from sagefl.exchange.masks import MaskedAverage
from sagefl.learning.population import Population
from sagefl.learning.tasks import Evaluate, InspectModels, MixBlocks, Row, Task, Train
from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig
from sagefl.simulation import simulator
from sagefl.simulation.engines import Sequential
from sagefl.simulation.engines.base import LostRowsError
from sagefl.simulation.engines.sharding import NotHereError, Shard, deal

Reference = Callable[..., Path]


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_every_client_is_dealt_once_and_loads_are_even(shards: int) -> None:
    sizes = [5.0, 90.0, 10.0, 40.0, 35.0, 20.0, 60.0, 1.0]
    held = deal(sizes, shards)
    assert sorted(k for clients in held for k in clients) == list(range(8))
    assert all(held)
    loads = [sum(sizes[k] for k in clients) for clients in held]
    assert max(loads) <= max(max(sizes), sum(sizes) / shards + max(sizes) / 2)
    assert deal(sizes, shards) == held


def test_what_work_reads_of_others() -> None:
    indices = torch.arange(3).numpy()
    mix = MixBlocks(0, 7, 0.5, ((3, 2, 0.25), (4, 0, 0.25)))
    assert mix.rows() == [Row("snapshots", 3, 5), Row("snapshots", 4, 7)]
    assert InspectModels(0, 7, [(2, 1), None], None, indices, "error").rows() == [Row("snapshots", 2, 6)]
    assert MaskedAverage(0, 7, 0.5, [(3, 1, 0.5)]).rows() == [Row("snapshots", 3, 6)]
    assert Step(0, 0.2, [(5, 0.5)]).rows() == [Row("extras.replica", 5)]
    assert list(Send(0, 7, "top-k", 0.1).rows()) == []
    assert list(Train(0, 7).rows()) == []


@pytest.fixture
def shard() -> Shard:
    """Clients 4 and 1 of six, with two snapshots, voices of their own, and a mask."""
    held = Population.allocate(world(config()).layout, 2, ages=2, two_faced=True, extras={"mask": 3})
    for i, (_, tensor) in enumerate(held.tensors()):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + 1000.0 * i)
    return Shard(held, [4, 1], 6)


def test_own_rows_are_reached_by_client_number_and_written_in_place(shard: Shard) -> None:
    held = shard.held
    assert torch.equal(shard.params[1], held.params[1])
    assert torch.equal(shard.params[4, 2:5], held.params[0, 2:5])
    assert torch.equal(shard.snapshots[1, 1, :7], held.snapshots[1, 1, :7])
    assert torch.equal(shard.voices[0, 4], held.voices[0, 0])
    assert torch.equal(shard.extras["mask"][1], held.extras["mask"][1])
    shard.steps[4].zero_()
    shard.params[1].fill_(3.0)
    assert held.steps[0] == 0
    assert (held.params[1] == 3.0).all()
    assert (len(shard.params), len(shard.snapshots), shard.slot(5), shard.clients) == (6, 2, 1, 6)


def test_rows_of_others_are_there_while_they_are_guests(shard: Shard) -> None:
    row = torch.rand(shard.held.params.shape[1])
    shard.welcome({("snapshots", 1, 5): row, ("extras.mask", 0, 2): row[:16]})
    assert torch.equal(shard.snapshots[1, 5, :9], row[:9])
    assert torch.equal(shard.extras["mask"][2], row[:16])
    with pytest.raises(NotHereError, match="reads the row of client 5 of 'snapshots' without having declared it"):
        shard.snapshots[0, 5]
    shard.welcome({})
    with pytest.raises(NotHereError, match=r"client 2 of 'extras\.mask'"):
        shard.extras["mask"][2]


@pytest.mark.parametrize(
    "reach",
    [
        lambda p: p.params.mean(0),
        lambda p: p.params[:, 0],
        lambda p: p.params[[1, 4]],
        lambda p: p.snapshots[0],
        lambda p: list(p.params),
        lambda p: torch.mean(p.params),
        lambda p: p.first[0],
    ],
)
def test_what_needs_the_whole_population_is_refused(shard: Shard, reach: Callable[[Any], Any]) -> None:
    with pytest.raises(NotHereError, match="reads "):
        reach(shard)


def test_a_shared_voice_stays_shared() -> None:
    plain = Shard(Population.allocate(world(config()).layout, 2), [0, 1], 2)
    assert plain.voices is plain.snapshots


def test_ray_is_loaded_by_nobody_who_does_not_use_it() -> None:
    code = "import sys, sagefl.simulation.simulator, sagefl.study.distributed, sagefl.cli; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# A loss on the way ----------------------------------------------------------------------------------------------------


class Fragile(Sequential):
    """Loses all rows at some calls of some task."""

    def __init__(self, task: type[Task[Any]], at: Sequence[int], *made_of: Any) -> None:
        super().__init__(*made_of)
        self.task, self.at, self.count = task, at, 0

    def map(self, tasks: Sequence[Task[Any]]) -> list[Any]:
        matches = isinstance(tasks[0], self.task) if tasks else False
        self.count += matches
        if matches and self.count in self.at:
            raise LostRowsError("an actor is gone", self.blank)
        return super().map(tasks)

    def blank(self) -> None:
        for _, tensor in self.population.tensors():
            tensor.fill_(torch.nan)
        self.population.snapshots.fill_(torch.nan)


class Told:
    """What callbacks hear."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.starts = 0

    def start(self, config: RunConfig, first_round: int) -> None:
        self.starts += 1

    def round(self, record: Any) -> None:
        self.rounds.append(record["round"])

    def end(self, summary: Any) -> None:
        pass


def fragile(monkeypatch: pytest.MonkeyPatch, task: type[Task[Any]], at: Sequence[int]) -> None:
    def make(name: str, world: Any, hooks: LocalTraining, extras: Any = None, **_: Any) -> Fragile:
        return Fragile(task, at, world, hooks, extras)

    monkeypatch.setattr(simulator, "make_engine", make)


@pytest.mark.parametrize(
    ("method", "task", "at"),
    [
        ("sage-os", Train, [4, 5]),
        ("choco", Train, [2]),
        ("choco", Evaluate, [2, 4]),
        ("da-dpfl", Train, [9]),
        ("dfedpgp", Train, [2]),
    ],
)
def test_a_run_that_loses_rows_goes_back_and_ends_the_same(
    method: str,
    task: type[Task[Any]],
    at: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reference: Reference,
) -> None:
    """Before the first checkpoint (round 2) it starts afresh, after it from there; also when it happens again."""
    settings, told = config(method), Told()
    expected = files(reference(settings))
    fragile(monkeypatch, task, at)
    simulate(tmp_path / "run", settings, callbacks=[told])
    assert differing(files(tmp_path / "run"), expected) == []
    assert (told.rounds, told.starts) == ([0, 1, 2, 3], 1)
    assert (tmp_path / "run" / "events.log").read_text().count('"lost"') == len(at)


def test_private_answers_survive_a_loss_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Reference
) -> None:
    settings = config("sage-os", privacy={"epsilon": 3.0})
    expected = files(reference(settings))
    fragile(monkeypatch, Train, [2])
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), expected) == []


def test_a_run_that_keeps_losing_rows_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fragile(monkeypatch, Train, range(1, 100))
    monkeypatch.setattr(references, "_loaded", {f"{Path(__file__).parent}{os.sep}"})  # an engine of the user's own
    with pytest.raises(LostRowsError, match="an actor is gone"):
        simulate(tmp_path / "run", config("rg"))
    assert (tmp_path / "run" / "events.log").read_text().count('"lost"') == simulator.LOSSES + 1
