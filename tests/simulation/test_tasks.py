"""Any task, any model: the engines agree, a crashed run goes on, and what peers answer is scored as it should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import CrashAfter, CrashError, differing, files
from task_runs import begin_and_kill, simulate
from task_worlds import CLIENTS, WORLDS, table

from sagefl.errors import SageflError, UsageError
from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig, merged, method_config
from sagefl.runs.replaying import replay_run
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import make
from sagefl.simulation import engines
from sagefl.simulation.engines import Sequential
from sagefl.simulation.world import World

BASE: dict[str, Any] = {
    "clients": CLIENTS,
    "rounds": 3,
    "data": {"partition": "owners", "anchor": 0.4},
    "topology": {"kind": "complete"},
    "training": {"batch_size": 4, "learning_rate": 0.02},
    "evaluation": {"every": 2},
}


def config(kind: str, /, method: str = "sage-vanilla", **sections: Any) -> RunConfig:
    return RunConfig.parse(merged(merged(merged(BASE, WORLDS[kind]), {"method": method_config(method)}), sections))


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k != "batchnorm")) for k in WORLDS])
def test_workers_and_a_crash_leave_the_same_files(kind: str, tmp_path: Path) -> None:
    settings = config(kind)
    summary = simulate(tmp_path / "whole", settings)
    with pytest.raises(CrashError):
        simulate(tmp_path / "other", settings, callbacks=[CrashAfter(1)])
    simulate(tmp_path / "other", settings, "processes", device="cpu")
    assert differing(files(tmp_path / "other"), files(tmp_path / "whole")) == []
    assert summary["evaluations"] > 0
    lead = "mae" if kind in ("regression", "adapters") else "accuracy"
    assert np.isfinite(summary[lead])
    assert ("accuracy" in summary) == (lead == "accuracy")


VISITS = [("batchnorm", method) for method in ("sage-vanilla", "dispfl", "federico", "dfca")]
MORE = [pytest.param(kind, "sage-vanilla", marks=pytest.mark.slow) for kind in WORLDS if kind != "batchnorm"]


@pytest.mark.parametrize(("kind", "method"), [*VISITS, *MORE])
def test_rows_that_visit_a_device_come_back_with_all_that_changed(
    kind: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cpu:0` is the CPU, yet torch copies to it: the way over a device with the CPU's numbers."""
    away = torch.device("cpu:0")
    row = torch.zeros(2)
    assert row.to(away) is not row
    settings = config(kind, method)
    here = simulate(tmp_path / "here", settings)
    monkeypatch.setattr(engines, "find_device", lambda name: away)
    there = simulate(tmp_path / "there", settings, device="cpu:0")
    assert there == here
    assert differing(files(tmp_path / "here"), files(tmp_path / "there")) == []
    simulate(tmp_path / "workers", settings, "processes", device="cpu:0")
    assert differing(files(tmp_path / "here"), files(tmp_path / "workers")) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
def test_a_run_killed_at_any_moment_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    settings = config(kind, rounds=6)
    simulate(tmp_path / "whole", settings, every=1)
    begin_and_kill(tmp_path / "killed", settings)
    simulate(tmp_path / "killed", settings, device="cpu", every=1)
    assert differing(files(tmp_path / "killed"), files(tmp_path / "whole")) == []


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in ("adapters", "text"))) for k in WORLDS]
)
def test_stacked_comes_to_the_same(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = config(kind, "rg")
    one, many = simulate(tmp_path / "one", settings), simulate(tmp_path / "many", settings, "stacked")
    lead = "mae" if "mae" in one else "accuracy"
    assert many[lead] == pytest.approx(one[lead], rel=0.02)
    by_client = [r.message for r in caplog.records if "client by client" in r.message]
    assert bool(by_client) == (kind == "text"), by_client  # vmap has no GRU


def test_rounding_in_the_gradient_of_an_idle_bias_does_not_keep_a_model_from_being_stacked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    simulate(tmp_path, config("batchnorm", "rg", rounds=1, model={"name": "task_worlds:Biased"}), "stacked")
    assert [r.message for r in caplog.records if "client by client" in r.message] == []


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in ("adapters", "text"))) for k in WORLDS]
)
def test_decisions_replay_from_their_record(kind: str, tmp_path: Path) -> None:
    simulate(tmp_path, config(kind, "sage-vanilla", evaluation={"losses": "full", "every": 2}))
    run = RunDirectory(tmp_path)
    (again,) = replay_run(run, [("again", make("sage-vanilla"))])
    assert again.covered == 1.0
    assert again.certified == pytest.approx((run.table("decisions")["reason"] == "certified").mean())
    assert again.evaluations == pytest.approx(run.table("decisions")["evaluations"].mean())


def test_arrays_in_a_folder_stay_there_and_give_the_same_under_workers(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    x, y, test_x, test_y, owners = table()
    arrays = {"x_train": x, "y_train": y, "x_test": test_x, "y_test": test_y, "owners": owners}
    assert x.dtype == np.float64
    for name, array in arrays.items():
        np.save(tmp_path / "data" / f"{name}.npy", array)
    settings = config("regression", data={"dataset": str(tmp_path / "data")})
    assert {"train_x", "test_x"} <= set(World.build(settings).corpus(shared_memory=True).files)
    one = simulate(tmp_path / "one", settings)
    simulate(tmp_path / "two", settings, "processes")
    assert differing(files(tmp_path / "one"), files(tmp_path / "two")) == []
    many = simulate(tmp_path / "many", settings, "stacked")
    assert many["mae"] == pytest.approx(one["mae"], rel=0.02)
    in_memory = simulate(tmp_path / "memory", config("regression"))
    assert in_memory == one  # bytes of questions, too: what is sent is float32


# Regression -----------------------------------------------------------------------------------------------------------


def test_a_regression_run_is_recorded_and_replayed_by_its_errors(tmp_path: Path) -> None:
    settings = config("regression", "sage-vanilla", evaluation={"losses": "full", "every": 2})
    simulate(tmp_path / "run", settings)
    run = RunDirectory(tmp_path / "run")
    assert {"mae", "rmse", "r2", "client_mae", "weak_mae"} <= set(run.table("metrics").columns)
    assert "accuracy" not in run.table("metrics").columns
    assert {"mae", "own_mae", "own_mae_before"} <= set(run.table("clients").columns)
    (result,) = replay_run(run, [("again", make("sage-vanilla"))])
    assert result.covered == 1.0
    table = run.table("decisions")
    assert result.certified == pytest.approx((table["reason"] == "certified").mean())


def test_clipped_errors_are_those_of_the_definition() -> None:
    world = World.build(config("regression"))
    y = world.dataset.train_y.astype(np.float64)
    assert world.dataset.clipped_at == pytest.approx(2 * np.abs(y - np.median(y)).mean())
    assert World.build(config("regression", data={"clip": 3.0})).targets == type(world.targets)(1, 3.0)


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"privacy": {"epsilon": 1.0}}, "privacy.epsilon perturbs labels, and these models predict values"),
        ({"world": {"label_noise": 0.5, "noisy": 0.5}}, "world.label_noise is about classes"),
        ({"world": {"shift": "labels"}}, "shift = labels is about classes, and the targets of .* are values"),
    ],
)
def test_what_needs_classes_is_refused_for_values(sections: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SageflError, match=complaint):
        _ = World.build(config("regression", **sections)).mechanism


def test_asking_classifiers_for_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is for regression, and these are classes"):
        simulate(tmp_path / "run", config("text", "sage-os:kind=values:loss=absolute"))
    assert not (tmp_path / "run").exists()


def test_a_rule_for_wrong_answers_is_refused_for_values(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the sign test is about losses that are 0 or M = 1: use sage-e instead"):
        simulate(tmp_path / "run", config("regression", "sage-e-vanilla"))
    assert not (tmp_path / "run").exists()


def test_training_that_diverges_is_said_and_marked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    summary = simulate(tmp_path / "run", config("regression", "rg", training={"learning_rate": 1e30, "batch_size": 4}))
    assert "round 1: training of client" in caplog.text
    assert summary["diverged"] == 1
    assert "Infinity" not in (tmp_path / "run" / "summary.json").read_text()


# Buffers and frozen parameters ----------------------------------------------------------------------------------------


def test_running_statistics_stay_with_their_client_unless_they_are_exchanged() -> None:
    local = World.build(config("batchnorm")).layout
    moving = World.build(config("batchnorm", model={"buffers": "exchanged"})).layout
    kept = {slot.name for slot in local.slots if slot.buffer}
    assert "stem.1.running_mean" in kept
    assert all(slot.start >= local.trained_stop for slot in local.slots if slot.buffer)
    crossing = {slot.name for slot in moving.slots if slot.buffer and slot.start < moving.shared_stop}
    assert crossing == {name for name in kept if "running" in name}
    assert moving.digest != local.digest


def test_a_single_sample_is_too_few_for_batchnorm() -> None:
    with pytest.raises(ValueError, match=r"cannot be trained on one sample: raise training\.batch_size"):
        World.build(config("batchnorm", training={"batch_size": 1}))
    with pytest.raises(ValueError, match=r"client 0 has a single training sample, and a layer .* needs more than one"):
        World.build(config("batchnorm", data={"anchor": 0.49, "eval": 0.5}))


def test_a_frozen_base_is_stored_once_and_costs_no_bytes() -> None:
    wide = World.build(config("adapters", model={"options": {"width": 40_000}}))  # 240,000 frozen weights
    adapters, head = 2 * 5 + 2 * 40_000, 40_000 + 1
    assert wide.layout.shared_size == adapters
    assert wide.layout.local_size == head
    assert wide.sizes.shared_block == 4 * adapters
    assert wide.layout.width == pytest.approx(adapters + head, rel=0.001)
    engine = Sequential(wide, LocalTraining())
    held = sum(tensor.nbytes for _, tensor in engine.population.tensors()) + engine.population.snapshots.nbytes
    assert held / wide.clients == pytest.approx(4 * 4 * (adapters + head), rel=0.1)  # weights, two moments, a snapshot
    assert engine._bench.model.base.weight is wide.model.base.weight
    engine.close()
    other = World.build(config("adapters", model={"options": {"width": 40_000}}, seed=2))
    assert other.layout.digest != wide.layout.digest  # another base cannot be mixed


@pytest.mark.slow
def test_forty_clients_on_a_frozen_base_of_two_million_weights_hold_it_once(tmp_path: Path) -> None:
    """What a process really holds, with few clients and with forty: the difference is what clients cost."""
    held = {}
    for clients in (4, 40):
        done = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "base_memory.py"), str(clients)],
            capture_output=True,
            text=True,
            check=True,
        )
        held[clients] = json.loads(done.stdout)
    many = held[40]
    assert many["frozen"] >= 2_000_000
    assert many["bases"] == 1
    trained = 4 * many["trained"]
    each = (many["tensors"] - held[4]["tensors"]) / 36
    assert each == pytest.approx(4 * trained, rel=0.1)  # weights, two moments, a snapshot
    grown = (many["resident"] - held[4]["resident"]) / 36
    assert grown == pytest.approx(4 * trained, rel=0.1)


def test_lower_precision_trains_and_keeps_weights_as_they_are(tmp_path: Path) -> None:
    low = config("batchnorm", "rg", training={"precision": "bfloat16"})
    one, two = simulate(tmp_path / "low", low), simulate(tmp_path / "high", config("batchnorm", "rg"))
    assert one["accuracy"] == pytest.approx(two["accuracy"], abs=0.2)
    losses = [RunDirectory(tmp_path / name).table("metrics")["train_loss"].to_list() for name in ("low", "high")]
    assert losses[0] != losses[1]
    assert low.digest != config("batchnorm", "rg").digest
