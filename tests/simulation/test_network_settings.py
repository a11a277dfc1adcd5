"""What the network does to messages, and who does not play fair, as seen in the models and the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file
from small_runs import config, simulate, world

from sagefl.learning.tasks import Answer, InspectModels, ReadPart, Train
from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig
from sagefl.selection import ME, Decision, Exchange, Hood, Inspect, Read, Reason, Selector
from sagefl.selection.outcome import State
from sagefl.selection.scoring import scoring
from sagefl.selection.selector import Deciding, Draws
from sagefl.simulation.engines import Sequential
from sagefl.simulation.misbehaving import PublishTwofold
from sagefl.simulation.waves import RoundSight, Waves
from sagefl.topology import Misbehaviour

PROBS = scoring("probs", "error")

COMPLETE = {"kind": "complete", "p": None}


def rows(directory: Path, rounds: int) -> Any:
    return load_file(directory / "checkpoint" / f"round-{rounds:05d}" / "params-0000.safetensors")["rows"]


def bad(kind: str, method: str = "aq-128", **more: Any) -> RunConfig:
    network = {"misbehaviour": kind, "misbehaving": 0.25}
    return config(method, topology=COMPLETE, network=network, **more)


def risks(directory: Path, culprits: np.ndarray) -> tuple[float, float]:
    """Mean risk of culprits and of the others, as receivers saw it."""
    seen: tuple[list[float], list[float]] = ([], [])
    for row in pl.read_parquet(directory / "decisions.parquet").iter_rows(named=True):
        for peer, risk in zip(row["peers"], row["risks"] or [], strict=False):
            seen[0 if culprits[peer] else 1].append(risk)
    return float(np.mean(seen[0])), float(np.mean(seen[1]))


# Liars and flatterers -------------------------------------------------------------------------------------------------

PROBES = [
    "aq-128",
    "aq-128:kind=probs",
    "aq-128:kind=probs:loss=ce",
    "aq-128:kind=latents",
    "aq-128:kind=latents:loss=ce",
]


@pytest.mark.parametrize("method", PROBES)
def test_whoever_flatters_looks_perfect_in_every_kind_of_probe(tmp_path: Path, method: str) -> None:
    settings = bad("flatter", method, rounds=2)
    simulate(tmp_path / "run", settings)
    culprits = world(settings).culprits
    assert culprits.sum() == 2
    flattery, honest = risks(tmp_path / "run", culprits)
    assert flattery == 0 < honest
    told = pl.read_parquet(tmp_path / "run" / "decisions.parquet").filter(pl.col("reason") == "committed")
    assert all(culprits[chosen[0]] for chosen in told["chosen"])


@pytest.mark.parametrize("method", PROBES)
def test_whoever_answers_wrongly_looks_worse_in_every_kind_of_probe(tmp_path: Path, method: str) -> None:
    training = {"max_batches": 20, "learning_rate": 0.01}
    data = {"partition": "iid"}
    settings = bad("wrong-answers", method, rounds=2, training=training, data=data)
    simulate(tmp_path / "run", settings)
    lying, honest = risks(tmp_path / "run", world(settings).culprits)
    assert lying > honest + 0.05


@pytest.mark.parametrize("kind", ["flatter", "wrong-answers"])
def test_lies_change_answers_and_not_models(tmp_path: Path, kind: str) -> None:
    """Gossip does not listen, so liars leave no trace in it."""
    simulate(tmp_path / "liars", bad(kind, "rg", rounds=2))
    simulate(tmp_path / "honest", config("rg", topology=COMPLETE, rounds=2))
    assert (rows(tmp_path / "liars", 2) == rows(tmp_path / "honest", 2)).all()


# Poison ---------------------------------------------------------------------------------------------------------------


def test_poisoners_answer_honestly_and_hand_over_ruin(tmp_path: Path) -> None:
    settings = bad("poison", rounds=1)
    simulate(tmp_path / "poisoned", settings)
    simulate(tmp_path / "honest", config("aq-128", topology=COMPLETE, rounds=1))
    poisoned, honest = (pl.read_parquet(tmp_path / run / "decisions.parquet") for run in ("poisoned", "honest"))
    measured = [name for name in honest.columns if name.startswith("eval_")]
    assert poisoned.drop(measured).equals(honest.drop(measured))  # nobody was told anything different
    culprits = world(settings).culprits
    pulled_ruin = np.array([culprits[chosen[0]] for chosen in honest["chosen"].to_list()])
    assert 0 < pulled_ruin.sum() < 8
    same = (rows(tmp_path / "poisoned", 1) == rows(tmp_path / "honest", 1)).all(1).numpy()
    assert np.array_equal(same, ~pulled_ruin)


@pytest.fixture
def poisoned() -> Any:
    """An engine two rounds into a world with poisoners and delays, by hand."""
    network = {"misbehaviour": "poison", "misbehaving": 0.25, "delay": 0.5, "max_delay": 1}
    settings = config("aq-128", topology=COMPLETE, network=network)
    own = world(settings)
    engine = Sequential(own, LocalTraining())
    engine.population.reset(own.initial)
    for t in range(2):
        engine.map([Train(k, t) for k in range(8)])
        engine.map([PublishTwofold(k, t, bool(own.culprits[k]), 1, Misbehaviour()) for k in range(8)])
    yield own, engine
    engine.close()


def test_a_stale_poisoner_still_answers_with_its_honest_model(poisoned: tuple[Any, Sequential]) -> None:
    own, engine = poisoned
    p, culprit = engine.population, int(np.flatnonzero(own.culprits)[0])
    anchors = np.arange(50)
    shared = own.layout.shared
    for age in (0, 1):
        slot = p.slot(1, age)
        assert (p.voices[slot, culprit, shared] != p.snapshots[slot, culprit, shared]).any()
        (said,) = engine.map([Answer(culprit, 1, age, anchors, PROBS)])
        p.snapshots[slot, culprit].zero_()
        assert np.array_equal(said, engine.map([Answer(culprit, 1, age, anchors, PROBS)])[0])
    assert (p.voices[p.slot(1), culprit] == p.params[culprit]).all()


def test_a_poisoner_ruins_the_block_and_neither_its_head_nor_itself(poisoned: tuple[Any, Sequential]) -> None:
    own, engine = poisoned
    p, stop = engine.population, own.layout.shared_stop
    handed = p.snapshots[p.slot(1)]
    for k, culprit in enumerate(own.culprits):
        assert (handed[k] == p.params[k]).all() == (not culprit)
        assert (handed[k, stop:] == p.params[k, stop:]).all()
    culprit = int(np.flatnonzero(own.culprits)[0])
    assert handed[culprit, :stop].norm() == pytest.approx(float(p.params[culprit, :stop].norm()), rel=1e-4)


def test_whoever_inspects_sees_the_model_that_is_handed_over(poisoned: tuple[Any, Sequential]) -> None:
    own, engine = poisoned
    culprit, other = int(np.flatnonzero(own.culprits)[0]), int(np.flatnonzero(~own.culprits)[0])
    samples = own.federation.roles[other].train[:200]
    (found,) = engine.map([InspectModels(other, 1, [(culprit, 0), None], None, samples, "ce")])
    p = engine.population
    p.snapshots[p.slot(1), culprit].copy_(p.voices[p.slot(1), culprit])
    (honest,) = engine.map([InspectModels(other, 1, [(culprit, 0), None], None, samples, "ce")])
    assert found[0] != honest[0]
    assert found[1] == honest[1]
    (itself,) = engine.map([InspectModels(culprit, 1, [None], None, samples, "ce")])
    (at_heart,) = engine.map([InspectModels(other, 1, [(culprit, 0)], None, samples, "ce")])
    assert itself[0] == at_heart[0]


def test_only_poisoned_worlds_keep_two_copies() -> None:
    for kind, two in (("none", False), ("flatter", False), ("poison", True), ("flatter-poison", True)):
        engine = Sequential(world(bad(kind)), LocalTraining())
        assert (engine.population.voices is not engine.population.snapshots) == two
        engine.close()


# Delay ----------------------------------------------------------------------------------------------------------------


def test_a_delayed_link_pulls_the_older_block(tmp_path: Path) -> None:
    """Two clients, every link one round late: in round 1 both pull what the other published in round 0."""
    pair: dict[str, Any] = {"clients": 2, "topology": {"kind": "ring", "p": None}, "network": {"delay": 1.0}}
    for rounds in (1, 2):
        simulate(tmp_path / str(rounds), config("rg", rounds=rounds, **pair), every=1)
    alone: dict[str, Any] = {"clients": 2, "topology": {"kind": "ring", "p": None}}
    simulate(tmp_path / "local", config("local", rounds=1, **alone))
    shared = world(config("rg", rounds=2, **pair)).layout.shared
    published = load_file(tmp_path / "2" / "checkpoint" / "round-00002" / "snapshots-0000.safetensors")["rows"]
    old, new = published[:2], published[2:]  # slots 0 and 1 of two clients
    assert (old == rows(tmp_path / "local", 1)).all()
    final = rows(tmp_path / "2", 2)
    assert np.allclose(final[0, shared], (new[0] + old[1])[shared] / 2, atol=1e-7)
    assert np.allclose(final[1, shared], (new[1] + old[0])[shared] / 2, atol=1e-7)
    assert not np.allclose(final[0, shared], (new[0] + new[1])[shared] / 2, atol=1e-7)


def test_a_dropped_link_is_no_link(tmp_path: Path) -> None:
    simulate(tmp_path / "run", config("sage-os", topology=COMPLETE, network={"drop": 1.0}, rounds=1))
    told = pl.read_parquet(tmp_path / "run" / "decisions.parquet")
    assert set(told["reason"]) == {"none"}


# Inspections and readings in a wave -----------------------------------------------------------------------------------


class Curious(Selector):
    """Reads and inspects everything there is."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        told: dict[str, Any] = {}
        for what in ("degree", "loss", "samples", "head", "last-layer", "mood"):
            told[what] = yield Read((ME, *hood.peers), what)
        for metric in ("ce", "error", "losses", "distance"):
            told[metric] = yield Inspect((ME, *hood.peers), "anchor", metric)
        pairs = tuple((ME, p) for p in hood.peers)
        told["pairs"] = yield Inspect(hood.peers, "train", "ce", groups=((ME,), *pairs))
        return Exchange.select(hood.peers[0], Reason.COMMITTED, state=told)


def test_a_wave_answers_readings_and_inspections_of_oneself_and_of_groups() -> None:
    settings = config(topology=COMPLETE, network={"delay": 1.0})
    own = world(settings)
    engine = Sequential(own, LocalTraining())
    engine.population.reset(own.initial)
    for t in range(2):
        trained = engine.map([Train(k, t) for k in range(8)])
    losses, samples = {k: v for k, (v, _) in enumerate(trained)}, {k: n for k, (_, n) in enumerate(trained)}
    losses[3] = float("nan")
    view = own.view(1)
    waves = Waves(own, engine, RoundSight(1, view, losses, samples, {2: {"mood": 0.7}}, own.history))
    decisions: dict[int, Decision] = {k: Curious().begin(view.peers(k).tolist(), 5, (1, 1, k)) for k in (0, 5)}
    waves.run(decisions)
    told = decisions[0].outcome.state
    assert told is not None
    assert [float(v) for v in told["degree"]] == [7.0] * 8
    assert float(told["loss"][0]) == losses[0]
    assert np.isfinite(float(told["loss"][3]))
    assert [int(v) for v in told["samples"]] == [samples[k] for k in range(8)]
    assert float(told["mood"][2]) == 0.7
    (mine,) = engine.map([ReadPart(0, 1, "head", 0)])
    (late,) = engine.map([ReadPart(4, 1, "head", 1)])
    assert np.array_equal(told["head"][0], mine)
    assert np.array_equal(told["head"][4], late)  # a late link reads what was published a round ago
    assert told["distance"][0] == 0 < told["distance"][1]
    assert told["losses"].shape == (8, len(own.federation.roles[0].anchor))
    (alone,) = engine.map([InspectModels(0, 1, [None], None, own.federation.roles[0].train, "ce")])
    assert told["pairs"][0] == alone[0]
    assert decisions[0].outcome.inspected == tuple(range(1, 8))
    assert decisions[0].outcome.reads["head"] == 7
    engine.close()
