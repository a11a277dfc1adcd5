from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from clusters import CLIENTS, config
from driving import Given, drive
from rows import Rows, finished, pushed
from scipy.stats import chisquare

from sagefl.exchange.push_sum import PushSum
from sagefl.learning.training import Alternating
from sagefl.methods import method
from sagefl.methods.dfedpgp import DFedPGPRule
from sagefl.selection import Reason
from sagefl.selection.outcome import decode, encode
from sagefl.selection.uniform_neighbours import UniformNeighbours


def started(clients: int) -> PushSum:
    layer = PushSum()
    layer.begin(None, clients)
    return layer


def test_one_step_by_hand():
    # 0 -> 1, 2; 1 -> 2; 2 -> nobody. Weights: 0 keeps 1/3; 1 gets 1/3 + 1/2; 2 gets 1/3 + 1/2 + 1.
    layer = started(3)
    mixes = layer.resolve({0: pushed([1, 2]), 1: pushed([2]), 2: pushed([])}, {}, 0.5)
    assert layer.weights == pytest.approx([1 / 3, 5 / 6, 11 / 6])
    assert 0 not in mixes  # it received nothing, so its de-biased model stays what it is
    assert (mixes[1].own, mixes[1].pulls) == (pytest.approx(3 / 5), ((0, 0, pytest.approx(2 / 5)),))
    assert mixes[2].own == pytest.approx(6 / 11)
    assert [(s, w) for s, _, w in mixes[2].pulls] == [(0, pytest.approx(2 / 11)), (1, pytest.approx(3 / 11))]
    again = layer.resolve({0: pushed([1]), 1: pushed([]), 2: pushed([])}, {(1, 0): 2}, 0.5)
    assert layer.weights == pytest.approx([1 / 6, 1.0, 11 / 6])
    assert again[1].pulls == ((0, 2, pytest.approx(1 / 6)),)  # the weight that travels is the present one


def random_pushes(rng: np.random.Generator, clients: int) -> dict[int, object]:
    """Very uneven in-degrees: low numbers are pushed to far more often."""
    chances = 1.0 / np.arange(1, clients + 1)
    outcomes = {}
    for k in range(clients):
        others = [j for j in range(clients) if j != k]
        p = chances[others] / chances[others].sum()
        outcomes[k] = pushed(rng.choice(others, size=rng.integers(0, 4), replace=False, p=p).tolist())
    return outcomes


def test_weight_and_weighted_models_are_conserved_and_everybody_reaches_the_true_mean():
    clients, rng = 9, np.random.default_rng(0)
    layer = PushSum()
    rows = Rows.made(clients, layer)
    rows.train(torch.Generator().manual_seed(1), scale=1.0)
    start = rows.shared.double().mean(0)
    heads = rows.heads.clone()
    biased = rows.shared.double().numpy().copy()
    for round in range(80):
        rows.publish(round)
        outcomes = random_pushes(rng, clients)
        layer.mix(rows, round, layer.resolve(outcomes, {}, 0.5))
        assert layer.weights.sum() == pytest.approx(clients, abs=1e-9)
        assert (layer.weights > 0).all()
        carried = torch.from_numpy(layer.weights) @ rows.shared.double() / clients
        assert torch.allclose(carried, start, atol=1e-5)
        biased = _received_mean(biased, outcomes)
    assert torch.allclose(rows.shared.double(), start.expand(clients, -1), atol=1e-4)
    assert np.abs(biased - start.numpy()).max() > 0.05  # plain averaging of what arrives agrees on something else
    assert torch.equal(rows.heads, heads)
    assert not rows.padding.any()


def _received_mean(models: np.ndarray, outcomes: dict[int, object]) -> np.ndarray:
    parts = [[models[k]] for k in range(len(models))]
    for k, outcome in outcomes.items():
        for receiver in outcome.peers:
            parts[receiver].append(models[k])
    return np.array([np.mean(part, axis=0) for part in parts])


def test_a_sender_pays_for_its_block_and_its_weight():
    layer = PushSum()
    rows = Rows.made(4, layer)
    traffic = layer.traffic(0, pushed([1, 3]), {}, rows.sizes)
    assert (traffic.models, traffic.control) == (2 * 4 * 42, 2 * 4)
    assert (traffic.merged, traffic.transferred) == (2, 2)
    assert layer.traffic(0, pushed([]), {}, rows.sizes).total == 0


def test_the_weights_survive_being_written_down():
    layer, other = started(5), PushSum()
    layer.resolve(random_pushes(np.random.default_rng(1), 5), {}, 0.5)
    other.load(decode(encode(layer.state())))
    assert other.weights.tolist() == layer.weights.tolist()
    outcomes = random_pushes(np.random.default_rng(2), 5)
    assert other.resolve(outcomes, {}, 0.5) == layer.resolve(outcomes, {}, 0.5)


@pytest.mark.parametrize("rule", [UniformNeighbours, DFedPGPRule])
def test_k_neighbours_are_drawn_without_asking(rule):
    direction = "push" if rule is DFedPGPRule else "pull"
    for degree, k, drawn in ((0, 2, 0), (1, 2, 1), (3, 2, 2), (3, 9, 3)):
        outcome = drive(rule(k=k).begin(range(degree), 10), Given())
        assert len(set(outcome.peers)) == drawn
        assert outcome.reason is (Reason.UNIFORM if drawn else Reason.NONE)
        assert outcome.selected is False
        assert outcome.direction == (direction if drawn else "pull")
    counts = np.bincount([p for seed in range(600) for p in rule(k=2).begin(range(5), 0, seed).outcome.peers])
    assert counts.sum() == 1200
    assert chisquare(counts).pvalue > 1e-3
    with pytest.raises(ValueError, match="k must"):
        rule(k=0)


def test_dfedpgp_trains_the_head_first():
    training = method("dfedpgp").training
    assert isinstance(training, Alternating)
    assert training.first == "head"


def test_in_the_simulator_no_weight_is_lost_while_clients_and_links_come_and_go(tmp_path):
    network = {"available": 0.7, "drop": 0.2, "delay": 0.3, "max_delay": 2}
    simulator = finished(config("dfedpgp", rounds=6, network=network), tmp_path / "run")
    weights = simulator.method.exchange.weights
    assert len(weights) == CLIENTS
    assert weights.sum() == pytest.approx(CLIENTS, abs=1e-9)
    assert np.ptp(weights) > 0.1
    decisions = simulator.directory.table("decisions")
    assert set(decisions.filter(pl.col("merged") > 0)["direction"]) == {"push"}
    assert (decisions["control_bytes"] == 4 * decisions["merged"]).all()


@pytest.mark.parametrize("spec", ["dfedpgp", "ocd-fl"])
def test_nothing_is_pushed_over_a_dead_link(tmp_path, spec, monkeypatch):
    """A sender sees the links on which it can ask; its model travels the other way."""
    layer, moved = type(method(spec).exchange), []
    plain = layer.mix
    monkeypatch.setattr(
        layer, "mix", lambda self, tasks, number, mixes: (moved.append(mixes), plain(self, tasks, number, mixes))[1]
    )
    simulator = finished(config(spec, rounds=4, network={"drop": 0.4}), tmp_path / "run")
    heard = [{k: set(simulator.world.view(t).peers(k).tolist()) for k in range(CLIENTS)} for t in range(4)]
    arrived = sum(len(mix.peers) for mixes in moved for mix in mixes.values())
    assert all(set(mix.peers) <= heard[t][k] for t, mixes in enumerate(moved) for k, mix in mixes.items())
    assert 0 < arrived < simulator.directory.table("decisions")["merged"].sum()
