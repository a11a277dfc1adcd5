"""The stacked engine does what the sequential one does, within rounding; what it cannot stack it does per client."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from small_runs import ROUGH, CrashAfter, CrashError, config, differing, files, mini, simulate

from sagefl.data import Dataset
from sagefl.learning import devices
from sagefl.learning.devices import DeviceError
from sagefl.learning.models import ModelError
from sagefl.learning.stacked import MOST, clients_that_fit
from sagefl.learning.tasks import Answer, Evaluate, Gram, InspectModels, MixBlocks, Score, Tally, Train
from sagefl.learning.training import Alternating, LocalTraining
from sagefl.runs.config import RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.selection.scoring import scoring
from sagefl.simulation import engines
from sagefl.simulation.engines import EngineError, Sequential, Stacked, make_engine
from sagefl.simulation.world import World

LABELS = scoring("labels", "error")
LATENTS = scoring("latents", "error")
PROBS = scoring("probs", "error")
FORMS = {form.kind: form for form in (LABELS, LATENTS, PROBS)}

PAPER = {"name": "encoder-decoder", "options": {"widths": (4, 8), "latent": 16}}
OWN = {"name": "own_models:Perceptron"}
UNEVEN = {"max_batches": None, "batch_size": 24, "learning_rate": 0.01}
SAMPLES = 800
Pair = tuple[Sequential, Stacked]
_worlds: dict[str, World] = {}


def world(settings: RunConfig) -> World:
    """As the other tests' worlds, with fewer samples: here every batch of every client counts."""
    if settings.world_digest not in _worlds:
        whole = mini()
        few = Dataset("few", whole.train_x[:SAMPLES], whole.train_y[:SAMPLES], whole.test_x, whole.test_y, 10)
        _worlds[settings.world_digest] = World.build(settings, few)
    return _worlds[settings.world_digest]


def pair(settings: RunConfig, *, chunk: int | None = None, hooks: LocalTraining | None = None) -> Pair:
    """The reference and the stacked engine, everybody at the start."""
    own, training = world(settings), hooks or LocalTraining()
    one = Sequential(own, training)
    many = Stacked(own, training, device=torch.device("cpu"), chunk=chunk)
    for engine in (one, many):
        engine.population.reset(own.initial)
    return one, many


def train(engine: Sequential | Stacked, rounds: int, clients: int = 8) -> np.ndarray:
    """Rounds of training and of mixing in a ring; the losses and numbers of samples, a row a round."""
    found = []
    for t in range(rounds):
        found.append(engine.map([Train(k, t) for k in range(clients)]))
        engine.map([MixBlocks(k, t, 0.5, [((k + 1) % clients, 0, 0.5)]) for k in range(clients)])
    return np.array(found)


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest relative distance of a row of `a` from the same row of `b`."""
    return float(((a - b).norm(dim=-1) / b.norm(dim=-1).clamp(min=1e-12)).max())


# Training -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("model", [PAPER, OWN, {"name": "mlp", "options": {"hidden": 8}}], ids=lambda m: m["name"])
def test_losses_and_parameters_agree_over_rounds_and_uneven_shards(model: dict[str, Any], chunk: int | None) -> None:
    settings = config(model=model, training=UNEVEN)
    rests = {len(roles.train) % 24 for roles in world(settings).federation.roles}
    assert len(rests) > 4  # ragged last batches of many lengths
    one, many = pair(settings, chunk=chunk)
    assert many.bench.trouble is None
    expected, found = train(one, 3), train(many, 3)
    np.testing.assert_allclose(found[..., 0], expected[..., 0], rtol=1e-4)
    assert (found[..., 1] == expected[..., 1]).all()
    for name in ("params", "first", "second"):
        assert gap(getattr(many.population, name), getattr(one.population, name)) < 1e-4, name
    assert gap(many.population.snapshots[0], one.population.snapshots[0]) < 1e-4
    assert torch.equal(many.population.steps, one.population.steps)


def test_the_comparison_is_not_blind() -> None:
    """One sample more in one batch, as padding would add it, shows in loss and parameters of that client alone."""
    settings = config(model=OWN, training=UNEVEN)
    one, many = pair(settings)
    padded = many.bench.bench.batches
    many.bench.bench.batches = lambda k, *rest: np.append(o := padded(k, *rest), o[-1:] if k == 5 else o[:0])  # type: ignore
    expected, found = (engine.map([Train(k, 0) for k in range(8)]) for engine in (one, many))
    wrong = [k for k in range(8) if gap(many.population.params[k : k + 1], one.population.params[k : k + 1]) > 1e-4]
    assert wrong == [5]
    assert abs(found[5][0] - expected[5][0]) > 1e-4 * expected[5][0]


@pytest.mark.parametrize(
    "training",
    [
        {"epochs": 2, "reset_optimizer": True},
        {"max_batches": 2},
        {"batch_size": 1, "max_batches": 5},
        {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.01},
    ],
    ids=["epochs", "capped", "single", "sgd"],
)
def test_the_settings_of_training_mean_the_same(training: dict[str, Any]) -> None:
    one, many = pair(config(model=OWN, training=UNEVEN | training))
    np.testing.assert_allclose(train(many, 2), train(one, 2), rtol=1e-4)
    assert gap(many.population.params, one.population.params) < 1e-4


def test_some_clients_alone_and_in_any_order() -> None:
    one, many = pair(config(training=UNEVEN))
    tasks = [Train(k, 0) for k in (6, 1, 4)]
    np.testing.assert_allclose(many.map(tasks), one.map(tasks), rtol=1e-4)
    assert many.map([]) == []
    untouched = [k for k in range(8) if torch.equal(many.population.params[k], world(config()).initial)]
    assert untouched == [0, 2, 3, 5, 7]


# Probing and evaluation ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> Pair:
    """The paper's model after two rounds under delays, the same rows in both engines."""
    settings = config(model=PAPER, training=UNEVEN, network={"delay": 0.5, "max_delay": 1})
    one, many = pair(settings)
    train(one, 2)
    for name in ("params", "snapshots"):
        getattr(many.population, name).copy_(getattr(one.population, name))
    return one, many


def samples(engine: Sequential, *lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, SAMPLES, length) for length in lengths]


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("kind", ["labels", "latents", "probs"])
def test_peers_of_any_age_answer_the_same(trained: Pair, kind: str, chunk: int | None) -> None:
    one, many = trained
    many.bench._fixed = chunk
    lengths = samples(one, 1, 7, 64, 5, 600, 513, 64, 7)
    tasks = [Answer(k, 1, k % 2, indices, FORMS[kind]) for k, indices in enumerate(lengths)]
    for ours, theirs in zip(many.map(tasks), one.map(tasks), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if kind == "labels":
            assert (ours == theirs).mean() > 0.99  # a tie within rounding may fall otherwise
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_kinds_may_be_mixed_and_order_is_kept(trained: Pair) -> None:
    tasks = [Answer(k, 1, 0, np.arange(3 + k), (LABELS, PROBS)[k % 2]) for k in range(6)]
    shapes = [answer.shape for answer in trained[1].map(tasks)]
    assert shapes == [(3,), (4, 10), (5,), (6, 10), (7,), (8, 10)]


def test_evaluations_agree(trained: Pair) -> None:
    one, many = trained
    subset = np.arange(0, 300, 2)
    for ours, theirs in zip(*(e.map([Tally(k, subset) for k in range(8)]) for e in (many, one)), strict=True):
        assert np.abs(ours - theirs).sum() <= 3  # one sample that another class is predicted for
        assert ours[1:].sum(1).tolist() == [150, 150]
    own = [Evaluate(k, world(config()).evaluation_sets[k]) for k in range(8)]
    for ours, theirs in zip(*(e.map(own) for e in (many, one)), strict=True):
        assert abs(ours[0] - theirs[0]) <= 1
        assert ours[1] == pytest.approx(theirs[1], rel=1e-3)
    for ours, theirs in zip(*(e.map([Gram(k) for k in range(8)]) for e in (many, one)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("metric", ["error", "ce", "losses", "distance"])
@pytest.mark.parametrize("groups", [None, [[0], [0, 1], [1, 2]]], ids=["models", "groups"])
def test_inspections_agree(trained: Pair, metric: str, groups: Sequence[Sequence[int]] | None) -> None:
    (indices,) = samples(trained[0], 90)
    tasks = [InspectModels(2, 1, [None, (3, 0), (5, 1)], groups, indices, metric)]
    (ours,), (theirs,) = (engine.map(tasks) for engine in reversed(trained))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=0.012 if metric == "error" else 1e-4)


def test_scores_of_latents_are_left_to_the_workbench(trained: Pair) -> None:
    one, many = trained
    (indices,) = samples(one, 20)
    latents = one.map([Answer(3, 1, 0, indices, LATENTS)])[0]
    tasks = [Score(0, 1, latents[None], indices, scoring("latents", "ce"))]
    assert np.array_equal(many.map(tasks)[0], one.map(tasks)[0])


# What cannot be stacked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "said"), [("Dropping", "random operation"), ("Branching", "item")])
def test_models_that_vmap_cannot_take_train_per_client(model: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = config(model={"name": f"own_models:{model}"})
    with caplog.at_level(logging.WARNING):
        one, many = pair(settings)
    assert said in caplog.text
    assert "that part is done client by client" in caplog.text
    assert (train(many, 2) == train(one, 2)).all()  # the very same work, bit for bit
    assert torch.equal(many.population.params, one.population.params)


def test_a_buffer_that_the_model_replaces_counts_for_its_client() -> None:
    settings = config(model={"name": "own_models:Counting"})
    (calls,) = (slot for slot in world(settings).layout.slots if slot.buffer)
    one, many = pair(settings)
    for engine in (one, many):
        train(engine, 2)
    counted = one.population.params[:, calls.start]
    assert counted.min() >= 2
    assert torch.equal(counted, many.population.params[:, calls.start])


def test_a_constant_that_changes_later_is_refused() -> None:
    _, many = pair(config(model=OWN))
    many.bench.model.get_buffer("scale").add_(1)
    with pytest.raises(ModelError, match="buffer 'scale' changed during training"):
        train(many, 1)


def test_a_method_with_hooks_of_its_own_trains_per_client(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        one, many = pair(config(training={"max_batches": 3}), hooks=Alternating())
    assert "the method trains in a way of its own (Alternating)" in caplog.text
    assert many.bench.inference_trouble is None
    assert (train(many, 2) == train(one, 2)).all()
    assert torch.equal(many.population.params, one.population.params)


def test_where_company_matters_only_equal_lengths_go_together() -> None:
    """A batch norm without running statistics: padding would change the answers."""
    one, many = pair(config(model={"name": "own_models:Normed"}, training=UNEVEN))
    assert many.bench.trouble is None
    assert not many.bench._unmoved_by_company
    assert pair(config(model=OWN))[1].bench._unmoved_by_company
    np.testing.assert_allclose(train(many, 2), train(one, 2), rtol=1e-3)
    many.population.snapshots.copy_(one.population.snapshots)
    lengths = samples(one, 9, 30, 9, 31, 600, 30, 30, 9)
    tasks = [Answer(k, 0, 0, indices, PROBS) for k, indices in enumerate(lengths)]
    for ours, theirs in zip(many.map(tasks), one.map(tasks), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    many.bench._unmoved_by_company = True  # and it would be seen
    spoilt = many.map(tasks)
    assert max(np.abs(a - b).max() for a, b in zip(spoilt, one.map(tasks), strict=True)) > 0.01


# Runs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [config("sage-os"), config("pens", **ROUGH)], ids=["sage-os", "pens-rough"])
def test_a_crashed_stacked_run_goes_on_as_if_nothing_had_happened(settings: RunConfig, tmp_path: Path) -> None:
    simulate(tmp_path / "whole", settings, engine="stacked", workers=1)
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, engine="stacked", workers=1, callbacks=[CrashAfter(2)])
    simulate(tmp_path / "run", settings, engine="stacked", workers=1)
    assert differing(files(tmp_path / "run"), files(tmp_path / "whole")) == []


def test_a_stacked_run_measures_what_a_sequential_one_does(tmp_path: Path) -> None:
    settings = config("rg", model=PAPER)
    simulate(tmp_path / "one", settings)
    simulate(tmp_path / "many", settings, engine="stacked", workers=1)
    one, many = (RunDirectory(tmp_path / name).table("metrics") for name in ("one", "many"))
    assert many.select(pl.selectors.integer()).equals(one.select(pl.selectors.integer()))  # who pulled whom, bytes
    for name in ("train_loss", "accuracy", "client_ce", "diversity"):
        found, expected = many[name].drop_nulls().to_numpy(), one[name].drop_nulls().to_numpy()
        assert len(found) >= 2
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=0.005)


def test_an_engine_may_be_changed_between_checkpoints(tmp_path: Path) -> None:
    settings = config("rg")
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, callbacks=[CrashAfter(2)])
    summary = simulate(tmp_path / "run", settings, engine="stacked", workers=1)
    assert summary["rounds"] == 4


# Memory and devices -------------------------------------------------------------------------------------------------


def test_a_chunk_is_a_power_of_two_that_fits() -> None:
    assert [clients_that_fit(100.0 * n, 100) for n in (0, 1, 3, 4, 100, 10_000)] == [1, 1, 2, 4, 64, MOST]


def test_less_memory_makes_smaller_chunks() -> None:
    _, many = pair(config(model=PAPER))
    each = 4 * 6 * world(config(model=PAPER)).layout.width
    assert many.bench._sample_bytes > 3 * 4 * 4 * 14 * 14  # at least what the first convolution gives, three times
    many.bench._room = 4 * (each + 16 * many.bench._sample_bytes)
    assert many.bench._fit(16, rows=6) == 4
    assert many.bench._fit(200, rows=6) < 4
    lengths = [3, 600, 2, 2, 300, 2, 1]
    chunks = list(many.bench._chunks(lengths))
    assert sorted(i for chunk in chunks for i in chunk) == list(range(7))
    assert all(2 * min(lengths[i] for i in chunk) >= max(lengths[i] for i in chunk) - 1 for chunk in chunks)


def test_auto_takes_an_accelerator_for_what_can_be_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real engine, told that its CPU is an accelerator."""
    monkeypatch.setattr(engines, "find_device", lambda name: torch.device(name or "cuda"))
    made: list[torch.device] = []

    def on_cpu(*args: Any, device: torch.device, **options: Any) -> Stacked:
        made.append(device)
        return Stacked(*args, device=torch.device("cpu"), **options)

    monkeypatch.setattr(engines, "Stacked", on_cpu)
    own = world(config())
    assert isinstance(make_engine("auto", own, LocalTraining(), workers=1), Stacked)
    assert isinstance(make_engine("auto", own, Alternating(), workers=1), Sequential)
    assert isinstance(make_engine("auto", own, LocalTraining(), workers=1, device="cpu"), Sequential)
    assert [device.type for device in made] == ["cuda", "cuda"]
    with pytest.raises(EngineError, match="ray works on the CPU, not on cuda: use stacked, processes or sequential"):
        make_engine("ray", own, LocalTraining(), device="cuda")


def test_an_accelerator_asked_for_by_name_is_not_left_for_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "find_device", lambda name: torch.device(name or "cuda"))
    cpu = torch.device("cpu")
    monkeypatch.setattr(engines, "Stacked", lambda *args, device, **options: Stacked(*args, device=cpu, **options))
    asked: list[torch.device] = []
    monkeypatch.setattr(engines, "Sequential", lambda *args, device: asked.append(device) or Sequential(*args))
    own = world(config())
    for device in ("cuda", None):
        make_engine("auto", own, Alternating(), workers=1, device=device).close()
    make_engine("sequential", own, LocalTraining()).close()
    assert [device.type for device in asked] == ["cuda", "cpu", "cpu"]
    told = [r.message for r in caplog.records if r.name == engines.__name__]
    assert told == ["working on cuda client by client", "not on cuda: working on the CPU instead"]


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "accelerator", lambda: None)
    assert devices.find_device(None) == devices.find_device("cpu") == torch.device("cpu")
    for name in ("cuda", "mps", "meta", "nonsense", "cpu:3"):
        with pytest.raises(DeviceError, match=f"there is no device '{name}' here: use cpu"):
            make_engine("stacked", world(config()), LocalTraining(), device=name)
    monkeypatch.setattr(devices, "accelerator", lambda: torch.device("mps"))
    assert devices.find_device(None) == torch.device("mps")
    with pytest.raises(DeviceError, match="use cpu or mps"):
        devices.find_device("cuda")
