from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
import torch
from clusters import CLIENTS, clustered_world, config
from driving import Given, drive
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call
from torch.nn import functional as F

from sagefl.exchange import Mix
from sagefl.learning.tasks import Ensemble, Evaluate, Train
from sagefl.learning.training import LocalTraining
from sagefl.methods.federico import FLOOR, FedericoRule, ReturnedGradients, responsibilities
from sagefl.selection import ME, Reason
from sagefl.simulation.engines import make_engine


def test_responsibilities_by_hand():
    # Likelihoods 1 and 1/3 at even shares: 3/4, 1/4. At shares 1/4, 3/4 they are even.
    losses = np.array([[0.0], [log(3)]])
    assert responsibilities(np.array([0.5, 0.5]), losses).ravel() == pytest.approx([0.75, 0.25])
    assert responsibilities(np.array([0.25, 0.75]), losses).ravel() == pytest.approx([0.5, 0.5])
    far = responsibilities(np.array([0.5, 0.5]), np.array([[900.0, 0.0], [0.0, 900.0]]))
    assert far.tolist() == [[0.0, 1.0], [1.0, 0.0]]  # no overflow


def literal_e_step(pi, losses, downloads, momentum):
    """One E-step, sample by sample, from descriptions of arXiv:2210.06597 (its pages were not readable).

    r_n(j) = pi(j) exp(-loss_j(x_n)) / sum_l pi(l) exp(-loss_l(x_n)) over the models asked, which are oneself and the
    `downloads` of the largest share; pi(j) <- momentum pi(j) + (1 - momentum) (share of those asked) mean_n r_n(j).
    """
    others = sorted((p for p in pi if p != ME), key=lambda p: -pi[p])[:downloads]
    asked, samples = [ME, *others], range(len(losses[ME]))
    held, after = sum(pi[j] for j in asked), dict(pi)
    for j in asked:
        r = [pi[j] * exp(-losses[j][n]) / sum(pi[i] * exp(-losses[i][n]) for i in asked) for n in samples]
        after[j] = max(momentum * pi[j] + (1 - momentum) * held * sum(r) / len(r), FLOOR)
    total = sum(after[j] for j in asked)
    return after, {j: after[j] / total for j in others}


@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), downloads=st.integers(1, 4), momentum=st.floats(0, 0.9))
def test_the_e_step_is_that_of_a_literal_transcription(seed, n, downloads, momentum):
    rng, peers = np.random.default_rng(seed), "abcdef"[:n]
    raw = rng.random(n + 1) + 0.01
    pi = dict(zip((ME, *peers), (raw / raw.sum()).tolist(), strict=True))
    losses = {p: (3 * rng.random(5)).tolist() for p in pi}
    rule = FedericoRule(downloads=downloads, epsilon=0.0, momentum=momentum)
    outcome = drive(rule.begin(peers, 5, state={"pi": pi}), Given(inspections={"losses": losses}))
    after, weights = literal_e_step(pi, losses, downloads, momentum)
    assert outcome.state["pi"] == pytest.approx(after)
    assert outcome.weights == pytest.approx(weights)


def test_one_e_step_by_hand():
    # Even shares 1/2, 1/2. Two samples: r(a) = 1/4 and 3/4, mean 1/2; with a third of 3/4: mean 7/12.
    third = log(3)
    losses = {ME: [0.0, third, third], "a": [third, 0.0, 0.0]}
    outcome = drive(FedericoRule(momentum=0.5).begin("a", 3), Given(inspections={"losses": losses}))
    share = 0.5 * 0.5 + 0.5 * 7 / 12
    assert outcome.weights == {"a": pytest.approx(share)}
    assert outcome.state["pi"] == {ME: pytest.approx(1 - share), "a": pytest.approx(share)}


def test_models_not_asked_keep_their_share_and_weights_are_over_those_pulled():
    state = {"pi": {ME: 0.2, "a": 0.4, "b": 0.3, "c": 0.1}}
    losses = {ME: [1.0], "a": [1.0], "b": [1.0]}
    rule = FedericoRule(downloads=2, epsilon=0.0)
    outcome = drive(rule.begin("abc", 1, state=state), Given(inspections={"losses": losses}))
    assert set(outcome.inspected) == {"a", "b"}
    assert outcome.state["pi"] == pytest.approx(state["pi"])  # equal losses say nothing new
    assert outcome.weights == {"a": pytest.approx(0.4 / 0.9), "b": pytest.approx(0.3 / 0.9)}
    assert sum(outcome.state["pi"].values()) == pytest.approx(1)


def test_a_hopeless_model_loses_its_share_but_can_come_back():
    answers = Given(inspections={"losses": {ME: [0.0], "a": [0.0], "b": [50.0]}})
    state = None
    for round in range(60):
        state = drive(FedericoRule().begin("ab", 1, round, round=round, state=state), answers).state
    assert state["pi"]["a"] > 0.4
    assert 0.5 * FLOOR < state["pi"]["b"] < 10 * FLOOR
    back = Given(inspections={"losses": {ME: [50.0], "a": [50.0], "b": [0.0]}})
    for round in range(3):
        state = drive(FedericoRule().begin("ab", 1, round, round=round, state=state), back).state
    assert state["pi"]["b"] > 0.8


def test_neighbours_that_come_and_go():
    state = {"pi": {ME: 0.5, "gone": 0.5}}
    answers = Given(inspections={"losses": {ME: [1.0], "new": [1.0]}})
    outcome = drive(FedericoRule().begin(["new"], 1, state=state), answers)
    assert outcome.weights == {"new": pytest.approx(0.5)}  # even share 1/2 beside one's own 1/2
    assert outcome.state["pi"]["gone"] == 0.5
    assert drive(FedericoRule().begin((), 1, state=state), answers).reason is Reason.NONE
    assert state == {"pi": {ME: 0.5, "gone": 0.5}}


def test_the_samples_are_the_anchors_unless_told_otherwise():
    for split in ("anchor", "train"):
        answers = Given(inspections={"losses": {ME: [1.0], "a": [1.0]}})
        drive(FedericoRule(split=split).begin("a", 1), answers)
        assert answers.asked[0].split == split


@pytest.mark.parametrize("wrong", [{"downloads": 0}, {"epsilon": -0.1}, {"momentum": 1.0}, {"split": "eval"}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedericoRule(**wrong)


def literal_gradient(rows, shares, model, layout, x, y, which):
    """The M-step for one model, sample by sample: the mean of r_n(j) grad loss_j(x_n)."""
    total = torch.zeros(layout.width)
    for n in range(len(y)):
        losses = []
        for row in rows:
            out = functional_call(model, layout.views(row), (x[n : n + 1],))
            losses.append(float(F.cross_entropy(out, y[n : n + 1])))
        likelihoods = [share * exp(-loss) for share, loss in zip(shares, losses, strict=True)]
        r = likelihoods[which] / sum(likelihoods)
        leaf = rows[which].clone().requires_grad_()
        F.cross_entropy(functional_call(model, layout.views(leaf), (x[n : n + 1],)), y[n : n + 1]).backward()
        total += r * leaf.grad / len(y)
    return total


def test_gradients_go_back_to_their_owners_as_in_the_m_step():
    world = clustered_world(config("federico", training={"max_batches": 1, "batch_size": 16}))
    layer = ReturnedGradients(downloads=2, rate=0.5)
    extras = layer.extras(world.layout.width, world.layout.shared_stop)
    engine = make_engine("sequential", world, LocalTraining(), extras=extras)
    engine.population.reset(world.initial)
    engine.map([Train(k, 0) for k in range(CLIENTS)])
    p, bench = engine.population, engine._bench
    before = p.params.clone()
    layer.mix(engine, 0, {0: Mix(0.5, ((1, 0, 0.3), (2, 0, 0.2)))})
    x, y = bench.samples(bench.batches(0, 0, 0))
    rows = [p.snapshots[0, k] for k in (0, 1, 2)]
    for owner, which in ((1, 1), (2, 2)):
        expected = before[owner] - 0.5 * literal_gradient(rows, (0.5, 0.3, 0.2), bench.model, world.layout, x, y, which)
        assert torch.allclose(p.params[owner], expected, atol=1e-5)
        assert not torch.equal(p.params[owner], before[owner])
    assert torch.equal(p.params[0], before[0])  # nobody returned anything to 0, and nothing is averaged


def test_predictions_are_mixtures_of_the_models_pulled():
    world = clustered_world(config("federico"))
    engine = make_engine("sequential", world, LocalTraining())
    engine.population.reset(world.initial)
    engine.map([Train(k, 0) for k in range(CLIENTS)])
    p, bench, indices = engine.population, engine._bench, world.evaluation_sets[0]
    probabilities = []
    for row in (p.params[0], p.snapshots[0, 1], p.snapshots[0, 2]):
        bench.layout.bind(bench.model, row)
        probabilities.append(bench.infer(bench.corpus.train_x, indices).softmax(1))
    expected = 0.5 * probabilities[0] + 0.3 * probabilities[1] + 0.2 * probabilities[2]
    mixture = Ensemble(0, ((1, 0, 0.3), (2, 0, 0.2)))
    assert torch.allclose(mixture.infer(bench, 0, bench.corpus.train_x, indices).exp(), expected, atol=1e-6)
    right, _ = engine.map([Evaluate(0, indices, mixture)])[0]
    assert right == int((expected.argmax(1) == bench.corpus.train_y[torch.from_numpy(indices)]).sum())
