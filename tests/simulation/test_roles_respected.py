"""Three roles, kept apart: nobody trains on anchors or evaluation data, nobody chooses on evaluation data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file
from small_runs import ROUGH, altered, config, mini, simulate, world

from sagefl.data import Dataset, Federation
from sagefl.learning.tasks import Answer, MixBlocks, Score, Task
from sagefl.learning.workbench import Workbench
from sagefl.runs.config import RunConfig
from sagefl.simulation.engines import Sequential
from sagefl.simulation.world import World


def rows(directory: Path, settings: RunConfig) -> Any:
    """All clients' parameters at the end of a run."""
    return load_file(directory / "checkpoint" / f"round-{settings.rounds:05d}" / "params-0000.safetensors")["rows"]


def with_data(settings: RunConfig, data: Dataset) -> World:
    """The same world, partition and all, on other samples."""
    own = world(settings)
    return replace(own, federation=Federation(data, own.federation.roles, own.federation.seed))


def positions(settings: RunConfig, *roles: str) -> np.ndarray:
    return np.concatenate([getattr(r, role) for r in world(settings).federation.roles for role in roles])


def test_the_samples_that_are_trained_on_are_the_clients_own_training_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spied at the only door through which samples enter training."""
    used: dict[int, set[int]] = {}
    take = Workbench.samples

    def spy(bench: Workbench, indices: np.ndarray) -> Any:
        client = next(k for k, shard in enumerate(bench.corpus.shards) if indices[0] in shard)
        used.setdefault(client, set()).update(indices.tolist())
        return take(bench, indices)

    monkeypatch.setattr(Workbench, "samples", spy)
    settings = config("sage-os", training={"max_batches": None, "batch_size": 64}, rounds=2)
    simulate(tmp_path / "run", settings)
    for client, roles in enumerate(world(settings).federation.roles):
        assert used[client] == set(roles.train.tolist())
        assert not used[client] & {*roles.anchor.tolist(), *roles.eval.tolist()}


def test_altering_anchors_and_evaluation_samples_does_not_alter_training(tmp_path: Path) -> None:
    """The causal test: gossip asks nobody, so nothing but training samples can reach the models."""
    settings = config("rg")
    untouched = simulate(tmp_path / "plain", settings)
    changed = altered(mini(), positions(settings, "anchor", "eval"))
    judged = simulate(tmp_path / "changed", settings, within=with_data(settings, changed))
    assert (rows(tmp_path / "plain", settings) == rows(tmp_path / "changed", settings)).all()
    assert judged["client"] != untouched["client"]  # the alteration is real: it is what clients are judged on
    assert judged["accuracy"] == untouched["accuracy"]


def test_altering_one_training_sample_does(tmp_path: Path) -> None:
    settings = config("rg", training={"max_batches": None, "batch_size": 256}, rounds=1)
    victim = world(settings).federation.roles[3].train[:1]
    simulate(tmp_path / "plain", settings)
    simulate(tmp_path / "changed", settings, within=with_data(settings, altered(mini(), victim)))
    differ = (rows(tmp_path / "plain", settings) != rows(tmp_path / "changed", settings)).any(1)
    assert differ[3]


@pytest.mark.parametrize("method", ["sage-os", "aq-128"])
def test_no_choice_is_made_on_evaluation_or_test_data(tmp_path: Path, method: str) -> None:
    settings = config(method)
    simulate(tmp_path / "plain", settings)
    changed = altered(mini(), positions(settings, "eval"))
    changed = Dataset("x", changed.train_x, changed.train_y, 255 - mini().test_x, mini().test_y[::-1].copy(), 10)
    simulate(tmp_path / "changed", settings, within=with_data(settings, changed))
    assert (rows(tmp_path / "plain", settings) == rows(tmp_path / "changed", settings)).all()
    told = [pl.read_parquet(tmp_path / run / "decisions.parquet") for run in ("plain", "changed")]
    measured = [name for name in told[0].columns if name.startswith("eval_")]
    assert told[0].drop(measured).equals(told[1].drop(measured))
    assert not told[0].equals(told[1])


def test_choices_are_made_on_anchors(tmp_path: Path) -> None:
    settings = config("aq-128")
    simulate(tmp_path / "plain", settings)
    within = with_data(settings, altered(mini(), positions(settings, "anchor")))
    simulate(tmp_path / "changed", settings, within=within)
    assert (rows(tmp_path / "plain", settings) != rows(tmp_path / "changed", settings)).any()


class Listening(Sequential):
    """The reference engine, writing down what it is asked to do."""

    heard: list[Task[Any]]

    def map(self, tasks: Sequence[Task[Any]]) -> list[Any]:
        self.heard += tasks
        return super().map(tasks)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Task[Any]]:
    """Every task of the runs that follow."""
    tasks: list[Task[Any]] = []

    def make(name: str, own: World, hooks: Any, **options: Any) -> Listening:
        engine = Listening(own, hooks, options.get("extras"))
        engine.heard = tasks
        return engine

    monkeypatch.setattr("sagefl.simulation.simulator.make_engine", make)
    return tasks


@pytest.mark.parametrize("method", ["sage-os", "sage-os:kind=latents:loss=ce", "aq-128:kind=probs"])
@pytest.mark.parametrize("network", [{}, ROUGH], ids=["plain", "rough"])
def test_a_probe_carries_positions_of_anchor_inputs_and_no_labels(
    tmp_path: Path, heard: list[Task[Any]], method: str, network: dict[str, Any]
) -> None:
    settings = config(method, **network, evaluation={"mechanisms": False})
    simulate(tmp_path / "run", settings)
    probes = [task for task in heard if isinstance(task, Answer)]
    assert probes
    anchors = set(positions(settings, "anchor").tolist())
    for probe in probes:
        assert {type(probe.client), type(probe.round), type(probe.age)} == {int}
        assert [f.name for f in fields(probe)] == ["client", "round", "age", "indices", "scoring"]
        assert probe.indices.dtype == np.int64
        inputs = set(probe.indices.tolist())
        assert inputs <= anchors
        own = world(settings).federation.roles[probe.client]
        assert not inputs & set(own.all.tolist())  # a peer is asked about others' samples, never its own
    scored = [task for task in heard if isinstance(task, Score)]
    assert bool(scored) == ("latents" in method)
    for task in scored:  # through the head of the client that owns the anchors
        assert set(task.indices.tolist()) <= set(world(settings).federation.roles[task.client].anchor.tolist())


def test_each_peer_answers_once_a_wave(tmp_path: Path, heard: list[Task[Any]]) -> None:
    settings = config("aq-128", rounds=1, evaluation={"mechanisms": False})
    simulate(tmp_path / "run", settings)
    asked = [task.client for task in heard if isinstance(task, Answer)]
    assert sorted(asked) == sorted(set(asked))


def test_heads_change_by_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    mix: Callable[..., None] = MixBlocks.run

    def spy(task: MixBlocks, bench: Workbench) -> None:
        row, stop = bench.population.params[task.client], bench.layout.shared_stop
        before = row.clone()
        mix(task, bench)
        seen.append((bool((row[stop:] == before[stop:]).all()), bool((row[:stop] == before[:stop]).all())))

    monkeypatch.setattr(MixBlocks, "run", spy)
    simulate(tmp_path / "run", config("aq-128"))
    assert all(head_kept for head_kept, _ in seen)
    assert not any(block_kept for _, block_kept in seen)
    assert len(seen) == 4 * 8
