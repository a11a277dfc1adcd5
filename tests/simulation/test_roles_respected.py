"""Three roles, kept apart: nobody trains on anchors or evaluation data, nobody chooses on evaluation data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file
from small_runs import ROUGH, altered, config, mini, simulate, world

from sagefl.data import Dataset, Federation
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
    take = Workbench._samples

    def spy(bench: Workbench, indices: np.ndarray) -> Any:
        client = next(k for k, shard in enumerate(bench.corpus.shards) if indices[0] in shard)
        used.setdefault(client, set()).update(indices.tolist())
        return take(bench, indices)

    monkeypatch.setattr(Workbench, "_samples", spy)
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

    heard: list[tuple[str, tuple[Any, ...]]]

    def map(self, task: str, calls: Any, weights: Any = None) -> list[Any]:
        self.heard += [(task, call) for call in calls]
        return super().map(task, calls, weights)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """Every call of every task of the runs that follow."""
    calls: list[tuple[str, tuple[Any, ...]]] = []

    def make(name: str, own: World, hooks: Any, **options: Any) -> Listening:
        engine = Listening(own, hooks, options.get("extras"))
        engine.heard = calls
        return engine

    monkeypatch.setattr("sagefl.simulation.simulator.make_engine", make)
    return calls


@pytest.mark.parametrize("method", ["sage-os", "sage-os:kind=latents:loss=ce", "aq-128:kind=probs"])
@pytest.mark.parametrize("network", [{}, ROUGH], ids=["plain", "rough"])
def test_a_probe_carries_positions_of_anchor_inputs_and_no_labels(
    tmp_path: Path, heard: list[tuple[str, tuple[Any, ...]]], method: str, network: dict[str, Any]
) -> None:
    settings = config(method, **network, evaluation={"mechanisms": False})
    simulate(tmp_path / "run", settings)
    probes = [call for task, call in heard if task == "answer"]
    assert probes
    anchors = set(positions(settings, "anchor").tolist())
    for peer, round, age, inputs, kind in probes:
        assert {type(peer), type(round), type(age), type(kind)} <= {int, str}
        assert inputs.dtype == np.int64
        assert set(inputs.tolist()) <= anchors
        own = world(settings).federation.roles[peer]
        assert not set(inputs.tolist()) & set(own.all.tolist())  # a peer is asked about others' samples, never its own
    scored = [call for task, call in heard if task == "score"]
    assert bool(scored) == ("latents" in method)
    for client, _, _, indices, _ in scored:  # through the head of the client that owns the anchors
        assert set(indices.tolist()) <= set(world(settings).federation.roles[client].anchor.tolist())


def test_each_peer_answers_once_a_wave(tmp_path: Path, heard: list[tuple[str, tuple[Any, ...]]]) -> None:
    settings = config("aq-128", rounds=1, evaluation={"mechanisms": False})
    simulate(tmp_path / "run", settings)
    asked = [call[0] for task, call in heard if task == "answer"]
    assert sorted(asked) == sorted(set(asked))


def test_heads_change_by_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    mix: Callable[..., None] = Workbench.mix

    def spy(bench: Workbench, client: int, *rest: Any) -> None:
        row, stop = bench.population.params[client], bench.layout.shared_stop
        before = row.clone()
        mix(bench, client, *rest)
        seen.append((bool((row[stop:] == before[stop:]).all()), bool((row[:stop] == before[:stop]).all())))

    monkeypatch.setattr(Workbench, "mix", spy)
    simulate(tmp_path / "run", config("aq-128"))
    assert all(head_kept for head_kept, _ in seen)
    assert not any(block_kept for _, block_kept in seen)
    assert len(seen) == 4 * 8
