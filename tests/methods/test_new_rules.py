"""Epidemic learning, SketchGuard, the median and DFCA against literal transcriptions of what was published."""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from clusters import CLIENTS, cluster, clustered_world, config, simulate
from driving import Given, drive
from hypothesis import given
from hypothesis import strategies as st

from sagefl.exchange import Mix, resolve
from sagefl.learning.sketch import SKETCH, count_sketch
from sagefl.learning.training import LocalTraining
from sagefl.methods.dfca import COPIES, Clustered
from sagefl.methods.median import coordinate_median
from sagefl.selection import ME, Reason
from sagefl.selection.epidemic import EpidemicLearning
from sagefl.selection.sketchguard import SketchGuard
from sagefl.simulation.engines import make_engine

# Epidemic learning: the authors' EL_Local.py in sacs-epfl/decentralizepy ---------------------------------------------


def test_everybody_sends_to_s_others_and_averages_what_arrives_equally():
    nodes = range(10)
    outcomes = {
        i: drive(EpidemicLearning(s=3).begin([j for j in nodes if j != i], 0, seed=(7, 0, i)), Given()) for i in nodes
    }
    assert all(len(set(o.peers)) == 3 and o.direction == "push" for o in outcomes.values())
    values = np.random.default_rng(0).normal(size=10)
    mixes = resolve(outcomes, {}, 0.5)
    for i in nodes:  # x_i <- (x_i + sum of what arrived) / (1 + how many arrived)
        arrived = [j for j in nodes if i in outcomes[j].peers]
        expected = (values[i] + sum(values[j] for j in arrived)) / (1 + len(arrived))
        if arrived:
            mix = mixes[i]
            assert mix.own * values[i] + sum(w * values[j] for j, _, w in mix.pulls) == pytest.approx(expected)


def test_the_graph_is_new_every_round_and_uniform():
    counts = np.zeros(9)
    for round in range(900):
        counts[list(drive(EpidemicLearning(s=3).begin(range(9), 0, seed=(1, round, 0)), Given()).peers)] += 1
    assert counts.sum() == 2700
    assert (np.abs(counts - 300) < 5 * sqrt(900 * (1 / 3) * (2 / 3))).all()
    assert drive(EpidemicLearning().begin((), 0), Given()).reason is Reason.NONE


# SketchGuard: the authors' `SketchguardAggregator` --------------------------------------------------------------------


def screen(own: Any, sketches: dict[str, Any], t: int, rounds: int, past: list[float]) -> list[str]:
    """Who is accepted, word for word."""
    factor = 1.5 if len(past) >= 3 and sum(past[-3:]) / 3 < 0.3 else 1.0
    norm = sqrt(sum(v * v for v in own))
    threshold = 2.0 * exp(-1.0 * t / max(1, rounds)) * factor * norm
    distances = {k: sqrt(sum((a - b) ** 2 for a, b in zip(own, s, strict=True))) for k, s in sketches.items()}
    accepted = [k for k, d in distances.items() if d <= threshold]
    return accepted or [min(distances, key=distances.__getitem__)]


@given(
    sketches=st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=6),
    past=st.lists(st.floats(0, 1), max_size=3),
    t=st.integers(0, 9),
)
def test_the_screen_is_that_of_a_literal_transcription(sketches, past, t):
    named, own = dict(zip("abcdef", sketches, strict=False)), (3.0, 1.0)
    answers = Given(readings={"sketch": {ME: own, **named}})
    decision = SketchGuard().begin(tuple(named), 0, round=t, rounds=10, state={"accepted": past})
    outcome = drive(decision, answers)
    assert list(outcome.peers) == screen(own, named, t, 10, past)
    assert sum(outcome.weights.values()) == pytest.approx(0.5)  # alpha of one's own, the rest shared equally
    assert outcome.inspected == ()
    assert outcome.state["accepted"][:-1] == past[-2:]


def test_a_sketch_is_the_signed_sum_of_its_buckets():
    rng = np.random.default_rng(1)
    a, b = (torch.from_numpy(rng.normal(size=5000).astype(np.float32)) for _ in range(2))
    units = [count_sketch(unit) for unit in torch.eye(60, 5000)]
    assert all(np.abs(u).sum() == 1 for u in units)  # one bucket, one sign
    by_hand = sum(float(a[i]) * u for i, u in enumerate(units))
    assert count_sketch(torch.cat([a[:60], torch.zeros(4940)])) == pytest.approx(by_hand, abs=1e-5)
    assert len(count_sketch(a)) == SKETCH
    ratio = np.linalg.norm(count_sketch(a) - count_sketch(b)) / float((a - b).norm())
    assert 0.8 < ratio < 1.2  # distances are kept


def test_a_ruined_model_is_screened_out_and_never_fetched(tmp_path):
    poisoned = {"misbehaviour": "poison", "misbehaving": 0.25}
    runs = {m: simulate(config(m, network=poisoned), tmp_path / m) for m in ("sketchguard", "d-psgd", "median")}
    final = {m: float(run.table("metrics").tail(1)["client"][0]) for m, run in runs.items()}
    assert final["sketchguard"] > final["d-psgd"]
    assert final["median"] > final["d-psgd"]
    decisions = runs["sketchguard"].table("decisions")
    assert decisions.filter(decisions["round"] == 7)["merged"].max() == 8  # of eleven neighbours three are ruined


# The coordinate-wise median, which the abstract of Yin et al. 2018 names ----------------------------------------------


@given(st.lists(st.lists(st.floats(-99, 99, width=32), min_size=3, max_size=3), min_size=1, max_size=7))
def test_every_coordinate_is_the_median(rows):
    expected = np.median(np.array(rows, dtype=np.float64), axis=0)
    assert coordinate_median([torch.tensor(row) for row in rows]).numpy() == pytest.approx(expected, abs=1e-4)


def test_fewer_than_half_cannot_move_it_out_of_the_others():
    honest, bad = [torch.tensor([float(i)]) for i in range(3)], [torch.tensor([1e9]), torch.tensor([float("nan")])]
    assert 0 <= float(coordinate_median([*honest, *bad])) <= 2


# DFCA: the running average of its abstract; the choice as in `get_inference_stats` of both codes ----------------------


def test_dfca_finds_the_groups_and_a_model_for_each(tmp_path):
    run = simulate(config("dfca", rounds=8), tmp_path / "run")
    assert float(run.table("metrics").tail(1)["client"][0]) > 0.9
    traffic = run.table("decisions")
    assert set(traffic["control_bytes"]) == {4 * (CLIENTS - 1)}


def test_dfca_takes_a_round_as_a_literal_transcription_does():
    """The choice as in `get_inference_stats` of dfca.py (jonaskir6/dfca, mnist/notebooks/exp_1) and of IFCA's
    train_cluster_mnist.py: the smallest mean loss on all of one's training data. The average as the paper's abstract
    has it: what arrives enters the copy of its cluster, sequentially; one's own copy is the first."""
    world, k = clustered_world(config("dfca")), 3
    layer = Clustered(k)
    extras = layer.extras(world.layout.width, world.layout.shared_stop)
    engine = make_engine("sequential", world, LocalTraining(), extras=extras)
    p, rng = engine.population, torch.Generator().manual_seed(7)
    p.reset(world.initial)
    layer.begin(engine, CLIENTS)
    for _ in range(3):
        mine = {c: [copy.clone() for copy in p.extras[COPIES][c].view(k, -1)] for c in range(CLIENTS)}
        took = dict(layer.clusters)
        trained = {c: p.params[c] + 0.3 * torch.randn(world.layout.width, generator=rng) for c in range(CLIENTS)}
        for c, row in trained.items():
            p.params[c].copy_(row)
            p.snapshots[p.slot(0), c].copy_(row)
        around = {c: [j for j in range(CLIENTS) if (j - c) % 4 == 1] for c in range(CLIENTS)}
        layer.publish(engine, CLIENTS, 0)
        layer.mix(engine, 0, {c: Mix(0.1, tuple((j, 0, 0.1) for j in js)) for c, js in around.items()})
        for c in range(CLIENTS):
            mine[c][took[c]], held = trained[c], [1] * k
            for j in around[c]:
                n, cluster_of = held[took[j]], took[j]
                mine[c][cluster_of] = (n * mine[c][cluster_of] + trained[j]) / (n + 1)
                held[cluster_of] += 1
            losses = [_mean_loss(world, copy, c) for copy in mine[c]]
            assert layer.clusters[c] == losses.index(min(losses))
            assert torch.allclose(p.extras[COPIES][c].view(k, -1), torch.stack(mine[c]), atol=1e-5)
            assert torch.allclose(p.params[c], mine[c][layer.clusters[c]], atol=1e-5)


def _mean_loss(world, row, client):
    """Cross-entropy of a row's model on a client's training data, by torch's own functions alone."""
    world.layout.bind(world.model, row)
    mine = world.federation.roles[client].train
    with torch.no_grad():
        out = world.model(torch.from_numpy(world.dataset.train_x[mine]))
        return float(torch.nn.functional.cross_entropy(out, torch.from_numpy(world.dataset.train_y[mine])))


def test_dfca_averages_what_arrives_by_cluster_one_after_another():
    """copy <- (n copy + model) / (n + 1), cluster by cluster; then the copy of the lowest loss is taken."""
    world = clustered_world(config("dfca"))
    layer = Clustered(2)
    engine = make_engine(
        "sequential", world, LocalTraining(), extras=layer.extras(world.layout.width, world.layout.shared_stop)
    )
    p = engine.population
    p.reset(world.initial)
    layer.begin(engine, CLIENTS)
    copies = p.extras[COPIES][0].view(2, -1).clone()
    assert not torch.equal(copies[0], copies[1])  # started apart
    assert copies[0].sort().values.tolist() == copies[1].sort().values.tolist()  # of the same numbers
    rng = torch.Generator().manual_seed(3)
    for k in range(CLIENTS):
        p.snapshots[p.slot(0), k].copy_(torch.randn(world.layout.width, generator=rng))
    layer.clusters = {k: cluster(k) for k in range(CLIENTS)}
    layer.mix(engine, 0, {0: Mix(0.5, ((1, 0, 0.1), (2, 0, 0.1), (4, 0, 0.1)))})
    sent = p.snapshots[p.slot(0)]
    assert torch.allclose(p.extras[COPIES][0].view(2, -1)[0], (copies[0] + sent[2] + sent[4]) / 3, atol=1e-5)
    assert torch.allclose(p.extras[COPIES][0].view(2, -1)[1], (copies[1] + sent[1]) / 2, atol=1e-5)
    assert torch.equal(p.params[0], p.extras[COPIES][0].view(2, -1)[layer.clusters[0]])
