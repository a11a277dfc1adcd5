"""Sequential == processes == resumed, bit for bit, for every rule, kind of probe and network setting."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from small_runs import CORE, KINDS, ROUGH, CrashAfter, CrashError, config, differing, files, simulate, world

from sagefl.learning.tasks import Task
from sagefl.learning.training import LocalTraining
from sagefl.learning.workbench import Workbench
from sagefl.runs.config import RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.engines import ENGINES, EngineError, Sequential, make_engine
from sagefl.simulation.engines.processes import Processes

Reference = Callable[..., Path]
OnWorkers = Callable[[RunConfig, int], None]
Pools = Callable[[RunConfig, int], Any]
PLAIN = [*(config(m) for m in CORE), config("sage-e", training={"optimizer": "sgd", "momentum": 0.9})]
HARSH = [config(m, **ROUGH) for m in (*CORE[1:], *KINDS)]


def named(settings: RunConfig) -> str:
    options = "".join(f":{k}={v}" for k, v in settings.method.options.items())
    return f"{settings.method.id}{options}-{'rough' if settings.network.drop else 'plain'}"


@pytest.mark.parametrize("settings", PLAIN, ids=named)
@pytest.mark.parametrize("workers", [1, 3])  # two below
def test_any_number_of_workers_leaves_the_same_files(
    settings: RunConfig, workers: int, tmp_path: Path, reference: Reference, on_workers: OnWorkers
) -> None:
    expected = files(reference(settings))
    on_workers(settings, workers)
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), expected) == []


@pytest.mark.parametrize("settings", HARSH, ids=named)
def test_delays_drops_absences_and_liars_change_nothing_about_that(
    settings: RunConfig, tmp_path: Path, reference: Reference, on_workers: OnWorkers
) -> None:
    expected = files(reference(settings))
    on_workers(settings, 2)
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), expected) == []


@pytest.mark.parametrize(
    ("settings", "after"),
    [(settings, i % 4) for i, settings in enumerate([*PLAIN[::2], *HARSH])],
    ids=lambda v: named(v) if isinstance(v, RunConfig) else f"after{v}",
)
def test_a_run_that_crashed_goes_on_as_if_nothing_had_happened(
    settings: RunConfig, after: int, tmp_path: Path, reference: Reference, on_workers: OnWorkers
) -> None:
    """It crashes in one engine after any round and goes on in the other one."""
    expected = files(reference(settings))
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, callbacks=[CrashAfter(after)])
    assert differing(files(tmp_path / "run"), expected) != []
    on_workers(settings, 2)
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), expected) == []


def test_a_run_can_crash_again_and_again(tmp_path: Path, reference: Reference) -> None:
    settings = config("sage-os", **ROUGH)
    for after in (0, 2, 1, 3):
        try:
            simulate(tmp_path / "run", settings, callbacks=[CrashAfter(after)])
        except CrashError:
            continue
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), files(reference(settings))) == []


def test_rows_written_since_the_checkpoint_are_written_anew(tmp_path: Path, reference: Reference) -> None:
    """The tables of round 2 are on disk, evaluated; the checkpoint of round 3 was never reached."""
    settings = config("sage-os")
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, every=3, callbacks=[CrashAfter(2)])
    assert RunDirectory(tmp_path / "run").table("metrics").height == 2
    assert not (tmp_path / "run" / "checkpoint").exists()
    simulate(tmp_path / "run", settings, every=3)
    assert differing(files(tmp_path / "run"), files(reference(settings, 3))) == []


def test_the_paper_model_agrees_too(tmp_path: Path) -> None:
    paper = {"name": "encoder-decoder", "options": {"widths": (4, 8)}}
    settings = config("sage-os", rounds=2, model=paper)
    simulate(tmp_path / "one", settings)
    simulate(tmp_path / "two", settings, engine="processes", workers=2)
    assert differing(files(tmp_path / "one"), files(tmp_path / "two")) == []


def test_runs_differ_where_they_should(reference: Reference) -> None:
    """The comparison above is not blind: another seed or another rule leaves other files."""
    base = files(reference(config("aq-128")))
    assert "metrics.parquet" in differing(files(reference(config("rg"))), base)
    assert "metrics.parquet" in differing(files(reference(config("aq-128", seed=2))), base)
    assert "checkpoint/round-00004/params-0000.safetensors" in differing(files(reference(config("rg"))), base)


# Engines themselves ---------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_calls(pools: Pools) -> None:
    pool = pools(PLAIN[0], 3)
    order = np.random.default_rng(3).integers(0, 8, 300).tolist()  # so many that chunks hold several
    weights = np.random.default_rng(4).random(300).tolist()
    assert [k for k, _ in pool.map([WhoAmI(k, w) for k, w in zip(order, weights, strict=True)])] == order
    assert pool.map([]) == []


@dataclass(frozen=True, eq=False)
class WhoAmI(Task[tuple[int, int]]):
    """The client, and the process that works for it."""

    load: float = 1.0

    @property
    def weight(self) -> float:
        return self.load

    def run(self, bench: Workbench) -> tuple[int, int]:
        return self.client, os.getpid()


@dataclass(frozen=True, eq=False)
class Stumble(Task[None]):
    """A task with a bug."""

    round: int

    def run(self, bench: Workbench) -> None:
        raise TypeError("a bug")


def test_a_failure_names_its_task_client_and_round(pools: Pools) -> None:
    """And stays what it was: a bug keeps its type and its traceback, from wherever it was raised."""
    for engine in (Sequential(world(PLAIN[0]), LocalTraining()), pools(PLAIN[0], 3)):
        with pytest.raises(TypeError, match="a bug") as caught:
            engine.map([WhoAmI(1), Stumble(5, 2)])
        assert caught.value.__notes__ == ["This happened in Stumble of client 5 in round 3."]


def test_the_work_is_done_by_the_workers(pools: Pools) -> None:
    pids = {pid for _, pid in pools(PLAIN[0], 3).map([WhoAmI(k % 6) for k in range(200)])}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 3


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_chunks_hold_every_call_once_heaviest_first(count: int, pools: Pools) -> None:
    weights = np.random.default_rng(0).integers(1, 50, count).astype(float).tolist()
    chunks = pools(PLAIN[0], 3).pool._chunks(weights)
    assert sorted(i for chunk in chunks for i in chunk) == list(range(count))
    assert all(chunks)
    assert len(chunks) <= 2 * 3 * 24  # the smaller ones at the end included
    if count:
        assert weights[chunks[0][0]] == max(weights)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("count", [50, 75, 100, 200, 1000])
def test_nobody_waits_longer_than_for_a_single_client(workers: int, count: int) -> None:
    """Clients with equal work, and workers that take the next chunk when they are through: shares as even as can be."""
    chunks = Processes._chunks(cast(Any, SimpleNamespace(workers=workers)), [960.0] * count)
    clients = [0] * workers
    for chunk in chunks:
        clients[clients.index(min(clients))] += len(chunk)
    assert max(clients) == -(-count // workers)


def test_auto_takes_processes_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr("sagefl.simulation.engines.Sequential", lambda *a, **_: made.append("sequential"))
    monkeypatch.setattr("sagefl.simulation.engines.Processes", lambda *a, **_: made.append(f"processes {a[2]}"))
    many, one = world(PLAIN[0]), world(config(clients=1))
    hooks = LocalTraining()
    make_engine("auto", many, hooks, workers=4)
    make_engine("auto", many, hooks, workers=1)
    make_engine("auto", one, hooks, workers=4)
    make_engine("processes", one, hooks, workers=3)
    make_engine("sequential", many, hooks, workers=3)
    make_engine("processes", many, hooks)
    cores = len(os.sched_getaffinity(0))
    assert made == ["processes 4", "sequential", "sequential", "processes 3", "sequential", f"processes {cores}"]
    monkeypatch.setattr("sagefl.simulation.engines.cores", lambda: 4)
    long = world(config(rounds=10_000))
    made.clear()
    make_engine("auto", many, hooks)  # over before workers would have started
    make_engine("auto", long, hooks)
    assert made == ["sequential", "processes 4"]
    with pytest.raises(
        EngineError, match="unknown engine 'threads'; engines: auto, sequential, processes, stacked, ray"
    ):
        make_engine("threads", many, hooks)


def test_an_engine_of_ones_own_is_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Reference
) -> None:
    """From outside the package: it is known by name, carries out a run, and gives the same files."""
    done: list[str] = []

    class Counting(Sequential):
        def map(self, tasks: Any) -> list[Any]:
            done.extend(type(task).__name__ for task in tasks)
            return super().map(tasks)

    monkeypatch.setitem(ENGINES, "counting", lambda world, hooks, r: Counting(world, hooks, r.extras))
    simulate(tmp_path / "run", PLAIN[0], engine="counting")
    assert differing(files(tmp_path / "run"), files(reference(PLAIN[0]))) == []
    assert done.count("Train") == PLAIN[0].rounds * PLAIN[0].clients


def test_too_little_shared_memory_is_said_before_it_is_a_bus_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = os.statvfs_result((4096, 4096, 0, 0, 100, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    with pytest.raises(EngineError, match=r"need \d+ MB of shared memory.*has 0 MB left.*--engine sequential"):
        make_engine("processes", world(PLAIN[0]), LocalTraining(), workers=2)
    engine = make_engine("auto", world(PLAIN[0]), LocalTraining(), workers=2)
    assert isinstance(engine, Sequential)
    engine.close()
    assert "working in one process instead" in caplog.text


def test_the_template_model_stays_untouched(tmp_path: Path) -> None:
    settings = config("rg")
    own = world(settings)
    simulate(tmp_path / "run", settings, within=own)
    assert (own.layout.flatten(own.model) == own.initial).all()
