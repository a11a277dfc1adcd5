"""Worlds with a known truth: the same in every engine and after a stop, told to references and to nobody else."""

from __future__ import annotations

import gc
import json
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_runs import WORLDS, CrashAfter, CrashError, config, differing, files, mini, simulate, small_world, world

from sagefl.errors import UsageError
from sagefl.methods import method, methods
from sagefl.runs.config import RunConfig
from sagefl.runs.recording import Clock
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.truth import Truth, read_truth
from sagefl.simulation.engines import Sequential
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

Reference = Callable[..., Path]
OnWorkers = Callable[[RunConfig, int], None]
WORKERS = ("labels", "noise", "free-noise", "stale")  # a pool each; what differs between worlds is dealt before


@pytest.mark.parametrize("name", WORLDS)
def test_a_stop_on_the_way_changes_nothing_nor_does_the_engine(
    name: str, tmp_path: Path, reference: Reference, on_workers: OnWorkers
) -> None:
    settings = small_world(name)
    expected = files(reference(settings, 1))
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, every=1, callbacks=[CrashAfter(1)])
    assert differing(files(tmp_path / "run"), expected) != []
    if name in WORKERS:
        on_workers(settings, 2)
    simulate(tmp_path / "run", settings, every=1)
    assert differing(files(tmp_path / "run"), expected) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_processes_leave_the_same_files_in_every_world(name: str, tmp_path: Path, reference: Reference) -> None:
    """In full, with a pool of its own for every world; `test_ray` does the same on a cluster."""
    settings = small_world(name)
    simulate(tmp_path / "run", settings, engine="processes", workers=2, every=1)
    assert differing(files(tmp_path / "run"), files(reference(settings, 1))) == []


def test_without_a_world_nothing_is_written_or_hashed(tmp_path: Path) -> None:
    settings = config("rg", rounds=1)
    assert settings.digest == RunConfig.parse(settings.model_dump()).digest
    assert "world" not in settings.to_toml()
    assert "churn" not in settings.to_toml()
    simulate(tmp_path / "run", settings)
    assert not (tmp_path / "run" / "truth.json").exists()
    assert "kin" not in RunDirectory(tmp_path / "run").table("metrics").columns
    assert RunConfig.read(tmp_path / "run" / "run.toml") == settings


def test_a_world_goes_to_the_file_and_back_and_has_an_address_of_its_own() -> None:
    plain, settings = config("rg"), small_world("brightness")
    assert RunConfig.parse(settings.model_dump(mode="json")) == settings
    digests = {small_world(name, "rg").digest for name in WORLDS} | {plain.digest}
    assert len(digests) == len(WORLDS) + 1
    assert small_world("labels", "rg").world_digest == small_world("labels", "oracle").world_digest
    assert small_world("labels", seed=1).setting_digest == small_world("labels", seed=2).setting_digest


# The truth ------------------------------------------------------------------------------------------------------------


def test_the_truth_is_recorded_and_read_back(reference: Reference) -> None:
    settings = small_world("brightness")
    found = read_truth(reference(settings, 1), settings.clients)
    assert found == world(settings).truth
    assert sorted(found.groups) == [0, 0, 0, 0, 1, 1, 2, 2]
    lazy = read_truth(reference(small_world("free-rider"), 1), 8)
    assert lazy is not None
    assert len(lazy.misbehaving) == 3
    assert set(lazy.groups) == {0}


def test_a_truth_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    known = {"groups": [0, 1, 0], "misbehaving": [], "noisy": []}
    (tmp_path / "truth.json").write_text(json.dumps(known))
    assert read_truth(tmp_path, 3) == Truth((0, 1, 0))
    with pytest.raises(RuntimeError, match="is about 3 clients and does not fit this run, which has 4"):
        read_truth(tmp_path, 4)
    (tmp_path / "truth.json").write_text(json.dumps(known | {"noisy": [7]}))
    with pytest.raises(RuntimeError, match="does not fit"):
        read_truth(tmp_path, 3)
    (tmp_path / "truth.json").write_text("[")
    with pytest.raises(RuntimeError, match="cannot be read as the truth about a run"):
        read_truth(tmp_path, 3)


def reached(start: object) -> Iterator[object]:
    """Everything that can be reached from an object without going through modules, classes or functions' globals."""
    seen: set[int] = set()
    todo = [start]
    while todo:
        held = todo.pop()
        if id(held) in seen or isinstance(held, types.ModuleType | type):
            continue
        seen.add(id(held))
        yield held
        if isinstance(held, types.FunctionType):
            todo += [cell.cell_contents for cell in held.__closure__ or ()]
        else:
            todo += gc.get_referents(held)


def knows(id: str) -> bool:
    """Whether a decision of this method, begun by the simulator, can reach the truth or the world that has it."""
    settings = small_world("labels", id)
    simulator = Simulator(settings, RunDirectory(Path("nowhere")), world=world(settings))
    decision = simulator.begin(0, 0, [1, 2, 3], None)
    return any(isinstance(held, Truth | World) for held in reached(decision))


@pytest.mark.parametrize("id", [id for id, found in methods().items() if not found.needs_truth])
def test_no_rule_can_reach_the_truth(id: str) -> None:
    assert not knows(id)


@pytest.mark.parametrize("id", ["oracle", "oracle-average"])
def test_references_can_which_shows_that_the_search_is_not_blind(id: str) -> None:
    assert knows(id)


def test_untold_it_says_who_could_tell() -> None:
    with pytest.raises(UsageError, match="which only a simulated run can tell it"):
        method("oracle").selector.begin([1, 2], 10, me=0)


# References -----------------------------------------------------------------------------------------------------------


def decided(path: Path) -> pl.DataFrame:
    return RunDirectory(path).table("decisions")


def test_the_oracle_draws_among_kin_that_behave(reference: Reference) -> None:
    settings = small_world("labels", "oracle", network={"misbehaviour": "free-noise", "misbehaving": 0.25})
    truth = world(settings).truth
    drawn = decided(reference(settings, 1))
    for row in drawn.iter_rows(named=True):
        kin = [p for p in row["peers"] if truth.groups[p] == truth.groups[row["client"]] and p not in truth.misbehaving]
        assert len(row["chosen"]) == bool(kin)
        assert set(row["chosen"]) <= set(kin)
    assert drawn["chosen"].explode().n_unique() > 2
    assert truth.pulls(drawn.iter_rows(named=True)) == {"kin": 1.0, "culprits": 0.0}


def test_where_all_are_kin_the_oracle_is_gossip(reference: Reference) -> None:
    one, two = (decided(reference(config(id, rounds=2), 1)) for id in ("oracle", "rg"))
    assert one["chosen"].to_list() == two["chosen"].to_list()


def test_the_group_average_takes_all_kin(reference: Reference) -> None:
    settings = small_world("labels", "oracle-average")
    groups = world(settings).truth.groups
    for row in decided(reference(settings, 1)).iter_rows(named=True):
        assert row["chosen"] == [p for p in row["peers"] if groups[p] == groups[row["client"]]]


def test_averaging_with_everybody_leaves_everybody_alike(tmp_path: Path) -> None:
    settings = small_world("labels", "average-all")
    own = world(settings)
    simulator = Simulator(settings, RunDirectory(tmp_path / "run"), world=own)
    engine = Sequential(own, simulator.method.training)
    engine.population.reset(own.initial)
    simulator._round(engine, 0, Clock())
    blocks = engine.population.params[:, own.layout.shared]
    published = engine.population.snapshots[0][:, own.layout.shared]
    assert np.allclose(blocks, published.mean(0), atol=1e-6)
    assert not np.allclose(published, published.mean(0), atol=1e-3)


def test_shares_of_pulls_are_counted_by_hand() -> None:
    truth = Truth((0, 0, 1, 1), misbehaving=frozenset({1}), noisy=frozenset({3}))
    rows = [{"client": 0, "chosen": [1, 2]}, {"client": 2, "chosen": [3]}, {"client": 3, "chosen": None}]
    assert truth.pulls(rows) == {"kin": 2 / 3, "culprits": 2 / 3}
    assert truth.pulls([]) == {"kin": None, "culprits": None}
    assert [truth.helps(0, p) for p in range(4)] == [True, False, False, False]


@pytest.mark.parametrize("kind", ["free-rider", "poison"])
def test_rounds_and_summary_say_whom_clients_pulled(reference: Reference, kind: str) -> None:
    settings = small_world("free-rider", "rg")
    settings = settings.model_copy(update={"network": settings.network.model_copy(update={"misbehaviour": kind})})
    run, truth = RunDirectory(reference(settings, 1)), world(settings).truth
    by_round = [
        truth.pulls(rows.iter_rows(named=True))
        for _, rows in run.table("decisions").group_by("round", maintain_order=True)
    ]
    assert run.table("metrics")["culprits"].to_list() == [pulls["culprits"] for pulls in by_round]
    assert run.summary is not None
    assert 0 < run.summary["culprits"] < 1


# What is measured, what is published ----------------------------------------------------------------------------------


def test_accuracy_is_on_the_test_set_of_ones_own_group(tmp_path: Path) -> None:
    """One and the same model is as good for every group whose names it knows, and useless for the others."""
    settings = config("local", rounds=1, clients=4, data={"partition": "iid"}, world={"shift": "labels", "groups": 4})
    own = world(settings)
    tests, y = own.test_sets(True), own.dataset.test_y
    assert [len(test) for test in tests] == [300] * 4
    names = [y[test] for test in tests]
    assert all((names[a] != names[b]).all() for a in range(4) for b in range(a))
    for test in tests:
        assert (own.dataset.test_x[test] == mini().test_x).all()
    assert (own.test_sets(False)[0] % 300 == own.test_sets(False)[3] % 300).all()


@pytest.mark.parametrize("kind", ["free-rider", "free-noise", "poison"])
def test_free_riders_publish_what_they_did_not_train(kind: str, tmp_path: Path) -> None:
    settings = config("rg", network={"misbehaviour": kind, "misbehaving": 0.34})
    own = world(settings)
    simulator = Simulator(settings, RunDirectory(tmp_path / "run"), world=own)
    engine = Sequential(own, simulator.method.training)
    population = engine.population
    population.reset(own.initial)
    simulator._train(engine, 0, [[]] * own.clients, range(own.clients))
    for k, culprit in enumerate(own.culprits):
        published, voice, trained = population.snapshots[0, k], population.voices[0, k], population.params[k]
        assert not np.array_equal(trained, own.initial)
        assert np.array_equal(published, trained) != culprit
        if kind == "poison" or not culprit:
            assert np.array_equal(voice, trained)
        else:
            assert np.array_equal(voice, published)
            assert np.array_equal(published, own.initial) == (kind == "free-rider")
            if kind == "free-noise":
                assert float(published.norm()) == pytest.approx(float(trained.norm()), rel=1e-3)


def test_stale_peers_are_behind_by_so_many_rounds() -> None:
    own = world(small_world("stale"))
    own = replace(own, links=replace(own.links, delay=0.0))
    for round in range(5):
        view = own.view(round)
        for client in range(own.clients):
            for peer, age in zip(view.peers(client), view.ages(client), strict=True):
                assert age == (min(2, round) if own.culprits[peer] else 0)
