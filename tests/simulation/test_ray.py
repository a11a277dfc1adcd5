"""One population over actors on several raylets: the same files, bit for bit, also when a raylet is killed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import task_worlds
import test_tasks
from small_runs import CORE, KINDS, ROUGH, WORLDS, config, differing, files, small_world, world

from sagefl.learning.tasks import ReadPart, Task
from sagefl.learning.training import LocalTraining
from sagefl.methods import Method, methods
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.selection.random_gossip import RandomGossip
from sagefl.simulation.engines import EngineError, make_engine
from sagefl.simulation.simulator import Simulator

if TYPE_CHECKING:
    from conftest import Nodes

Reference = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def by_value() -> Iterator[None]:
    """Raylets cannot import this file: what it defines travels whole."""
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    modules = (sys.modules[__name__], task_worlds)
    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        ray.cloudpickle.unregister_pickle_by_value(module)


def simulate(directory: Path, settings: RunConfig, nodes: Nodes, *callbacks: Any, every: int = 2) -> dict[str, Any]:
    execution = Execution(engine="ray", ray_address=nodes.address, checkpoint_every=every)
    return Simulator(settings, RunDirectory(directory), execution, world=world(settings), callbacks=callbacks).run()


def named(settings: RunConfig) -> str:
    options = "".join(f":{k}={v}" for k, v in settings.method.options.items())
    kind = settings.world.shift if settings.world.grouped else settings.network.misbehaviour
    return f"{settings.method.id}{options}-{'rough' if settings.network.drop else 'plain'}-{kind}"


SOME = [config("sage-os:kind=latents", **ROUGH)]
ALL = [config(id) for id in methods()]
HARSH = [config(m, **ROUGH) for m in (*CORE, *KINDS[1:])]
GROUPED = [small_world(name) for name in WORLDS]


@pytest.mark.parametrize(
    "settings", [*SOME, *(pytest.param(s, marks=pytest.mark.slow) for s in (*ALL, *HARSH, *GROUPED))], ids=named
)
def test_shards_on_two_raylets_leave_the_same_files(
    settings: RunConfig, nodes: Nodes, tmp_path: Path, reference: Reference
) -> None:
    nodes.grow_to(2)
    simulate(tmp_path / "run", settings, nodes)
    assert differing(files(tmp_path / "run"), files(reference(settings))) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", task_worlds.WORLDS)
def test_any_kind_of_task_leaves_the_same_files(kind: str, nodes: Nodes, tmp_path: Path) -> None:
    nodes.grow_to(2)
    settings = test_tasks.config(kind)
    test_tasks.simulate(tmp_path / "one", settings)
    execution = Execution(engine="ray", ray_address=nodes.address)
    Simulator(settings, RunDirectory(tmp_path / "ray"), execution).run()
    assert differing(files(tmp_path / "ray"), files(tmp_path / "one")) == []


class KillAfter:
    """Kills a raylet after some rounds, at once or while the next one is under way, and notes what it hears."""

    def __init__(self, nodes: Nodes, *rounds: int, later: float = 0.0) -> None:
        self.nodes, self.kills, self.later = nodes, list(rounds), later
        self.heard: list[int] = []
        self.timers: list[threading.Timer] = []

    def start(self, config: RunConfig, first_round: int) -> None:
        pass

    def round(self, record: Any) -> None:
        self.heard.append(record["round"])
        if record["round"] in self.kills and not self.later:
            self.nodes.kill_one()
        elif record["round"] in self.kills:
            self.timers.append(threading.Timer(self.later, self.nodes.kill_one))
            self.timers[-1].start()

    def end(self, summary: Any) -> None:
        for timer in self.timers:
            timer.join()


def events(directory: Path, kind: str) -> list[Any]:
    lines = (directory / "events.log").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] == kind]


@pytest.mark.slow
def test_a_raylet_killed_mid_run_changes_nothing(nodes: Nodes, tmp_path: Path, reference: Reference) -> None:
    """Round 3 is redone from the checkpoint after round 2, by the actor that is left."""
    settings = config("choco")
    expected = files(reference(settings))
    nodes.grow_to(2)
    killer = KillAfter(nodes, 2)
    simulate(tmp_path / "run", settings, nodes, killer)
    assert differing(files(tmp_path / "run"), expected) == []
    assert killer.heard == [0, 1, 2, 3]
    assert len(events(tmp_path / "run", "lost")) == 1
    assert [e["round"] for e in events(tmp_path / "run", "resumed")] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("later", [0.0, 0.1])
def test_raylets_killed_again_and_again_change_nothing(
    later: float, nodes: Nodes, tmp_path: Path, reference: Reference
) -> None:
    settings = config("sage-os", rounds=6, **ROUGH)
    expected = files(reference(settings))
    nodes.grow_to(4)
    simulate(tmp_path / "run", settings, nodes, KillAfter(nodes, 0, 2, 4, later=later))
    assert differing(files(tmp_path / "run"), expected) == []
    assert len(events(tmp_path / "run", "lost")) >= 2


# Where rows and data are ----------------------------------------------------------------------------------------------


class Look(Task[tuple[int, int, str]]):
    """In an actor: its process, how many rows it holds, and what the training images are mapped from."""

    def run(self, bench: Any) -> tuple[int, int, str]:
        import os

        at = bench.corpus.train_x.data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, *_, source = line.split(maxsplit=5)
            start, stop = (int(x, 16) for x in span.split("-"))
            if start <= at < stop:
                return os.getpid(), len(bench.population.held.params), source
        raise AssertionError("images without a mapping")


class Peep(Task[float]):
    """Reads the next client's published row and has not said so."""

    def run(self, bench: Any) -> float:
        p = bench.population
        return float(p.snapshots[p.slot(0), (self.client + 1) % 8].sum())


class Peeping(Method):
    """Gossip that looks where it must not."""

    rule = RandomGossip


def test_actors_hold_their_own_rows_and_map_the_data_and_refuse_what_cannot_be_sharded(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One engine for all of it: starting actors is what takes time."""
    monkeypatch.setitem(Method.registered, "peeping", Peeping)
    nodes.grow_to(2)
    engine = make_engine("ray", world(config("peeping")), LocalTraining(), ray_address=nodes.address)
    try:
        seen = engine.map([Look(k) for k in range(8)])
        rows = {pid: rows for pid, rows, _ in seen}
        assert len(rows) == 2
        assert sum(rows.values()) == 8
        assert all("/dev/shm" in source for _, _, source in seen), seen
        assert engine.map([]) == []
        with pytest.raises(ValueError, match="a client publishes no 'shoe size'"):  # the error of the work itself
            engine.map([ReadPart(0, 0, "shoe size")])
        with pytest.raises(EngineError, match=REFUSED):
            engine.map([Peep(k) for k in range(8)])
    finally:
        engine.close()


REFUSED = (
    r"method 'peeping' cannot run on a population in shards: its task .*\.Peep reads the row of client \d of "
    r"'snapshots' without having declared it\. Say in its `rows` whose rows it reads.*--engine processes"
)


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no Ray cluster at 127\.0\.0\.1:9 \(Connection refused\): start one"):
        make_engine("ray", world(config("rg")), LocalTraining(), ray_address="127.0.0.1:9")


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"pip install .*'\.\[ray\]'"):
        make_engine("ray", world(config("rg")), LocalTraining())
