"""Rules against slow transcriptions of what was published, on random inputs; each says where its formula stands.

A place in a paper is named only where that page could be read; else it is the place in the authors' code, or that of a
description. PFedDST, OCD-FL, DPFL, FedeRiCo, CHOCO and the newer rules have theirs beside their other tests.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, log, sqrt

import numpy as np
import pytest
import torch
from driving import Given, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.exchange.masks import prune_and_regrow
from sagefl.exchange.push_sum import PushSum
from sagefl.selection import ME, Outcome, Reason
from sagefl.selection.d_psgd import DPSGD
from sagefl.selection.fedfomo import FedFomo
from sagefl.selection.gossip_learning import GossipLearning
from sagefl.selection.hoeffding_race import HoeffdingRace
from sagefl.selection.pens import Pens

seeds = st.integers(0, 10**6)


@given(seed=seeds, degree=st.integers(1, 9), m=st.integers(1, 3), rounds=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_pens_counts_and_keeps_as_in_its_two_phases(seed, degree, m, rounds):
    """`train_edu` in train_functions.py of guskarls/dfl-pens: the best m, then who was one more often than m T1 / d."""
    rng, peers = np.random.default_rng(seed), list(range(degree))
    rule, state, history = Pens(n_sampled=degree, m=m, first_phase=float(max(rounds, 1))), None, Counter()
    for t in range(rounds):
        losses = rng.permutation(degree).astype(float)
        outcome = drive(
            rule.begin(peers, 4, seed=(seed, t), round=t, rounds=9, state=state),
            Given(inspections={"ce": dict(enumerate(losses))}),
        )
        top = sorted(peers, key=lambda j: losses[j])[: min(m, degree)]
        assert set(outcome.peers) == set(top)
        assert outcome.weights == pytest.approx(dict.fromkeys(top, 1 / (len(top) + 1)))
        history.update(top)
        state = outcome.state
    kept = {j for j in peers if history[j] > rounds * min(m, degree) / degree + 1e-9} or set(peers)
    drawn = {drive(rule.begin(peers, 4, seed=s, round=rounds, rounds=9, state=state), Given()).peers for s in range(60)}
    assert {j for (j,) in drawn} <= kept
    assert len(drawn) == len(kept) or len(kept) > 5


@given(
    mine=st.floats(0.1, 3),
    peers=st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 5)), min_size=1, max_size=6),
)
def test_fedfomo_weighs_as_its_authors_do(mine, peers):
    """`compute_fomo_weights` in federation.py of NVlabs/FedFomo: (L_i(theta_i) - L_i(theta_n)) / |theta_n - theta_i|.

    What is negative counts 0, the rest is normalised.
    """
    losses, distances = (dict(enumerate(column)) for column in zip(*peers, strict=True))
    answers = Given(inspections={"ce": {ME: mine, **losses}, "distance": distances})
    outcome = drive(FedFomo(downloads=len(peers), epsilon=0.0).begin(range(len(peers)), 4), answers)
    raw = {n: max((mine - losses[n]) / distances[n], 0) for n in losses}
    total = sum(raw.values())
    expected = {n: w / total for n, w in raw.items() if w > 0} if total else {}
    assert (outcome.weights or {}) == pytest.approx(expected)


@given(seed=seeds, n=st.integers(2, 8))
def test_d_psgd_mixes_by_a_symmetric_doubly_stochastic_matrix(seed, n):
    """x <- sum_j W_ij x_j as every description has it; W by Metropolis and Hastings: 1 / (1 + max(d_i, d_j))."""
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < 0.6, 1)
    graph = upper | upper.T
    degrees, w = graph.sum(1), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            w[i, j] = 1 / (1 + max(degrees[i], degrees[j])) if graph[i, j] else 0
        w[i, i] = 1 - w[i].sum()
    for i in range(n):
        peers = np.flatnonzero(graph[i]).tolist()
        answers = Given(readings={"degree": dict(enumerate(degrees.tolist()))})
        outcome = drive(DPSGD().begin(peers, 0), answers)
        assert (outcome.weights or {}) == pytest.approx({j: w[i, j] for j in peers})
    assert w.sum(0) == pytest.approx(np.ones(n))


@given(mine=st.integers(1, 500), theirs=st.integers(1, 500), age=st.integers(0, 500), other=st.integers(0, 500))
def test_gossip_learning_merges_by_age(mine, theirs, age, other):
    """As descriptions of Hegedus et al. 2019 have it: w <- (t_1 w_1 + t_2 w_2) / (t_1 + t_2), the older age is kept."""
    answers = Given(readings={"samples": {ME: mine, "a": theirs}, "age": {"a": other}})
    outcome = drive(GossipLearning().begin(("a",), 0, state={"age": age}), answers)
    t1, t2 = age + mine, other + theirs
    assert outcome.weights == {"a": pytest.approx(t2 / (t1 + t2))}
    assert outcome.state["age"] == max(t1, t2)


@given(seed=seeds, n=st.integers(2, 7), steps=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_push_sum_is_u_and_w_mixed_alike(seed, n, steps):
    """Stochastic gradient push, which summaries of Liu et al. 2024 name: u <- P u, w <- P w, z = u / w.

    Columns of P sum to one.
    """
    rng, layer = np.random.default_rng(seed), PushSum()
    layer.begin(None, n)
    u, w = rng.normal(size=n), np.ones(n)
    z = u.copy()
    for _ in range(steps):
        sent = {j: rng.permutation([k for k in range(n) if k != j])[: rng.integers(0, 3)].tolist() for j in range(n)}
        p = np.zeros((n, n))
        for j, receivers in sent.items():
            p[[j, *receivers], j] = 1 / (1 + len(receivers))
        u, w = p @ u, p @ w
        pushes = {j: Outcome(tuple(to), bool(to), Reason.UNIFORM, direction="push") for j, to in sent.items()}
        mixes = layer.resolve(pushes, {}, 0.5)
        z = np.array([
            mixes[i].own * z[i] + sum(share * z[j] for j, _, share in mixes[i].pulls) if i in mixes else z[i]
            for i in range(n)
        ])  # fmt: skip
        assert z == pytest.approx(u / w)
        assert layer.weights == pytest.approx(w)


@given(seed=seeds, n=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_the_race_drops_whoever_lies_above_the_best_as_maron_and_moore_do(seed, n):
    """Maron and Moore 1993, as descriptions have it: drop a model whose lower bound exceeds the best's upper bound."""
    rng = np.random.default_rng(seed)
    losses = (rng.random((n, 128)) < rng.random((n, 1))).astype(float)
    rule = HoeffdingRace(finish="commit", ties="lowest-index")
    outcome = drive(rule.begin(range(n), 128), Given(probes=dict(enumerate(losses))))
    racing, stages = list(range(n)), (16, 32, 64, 128)
    for m in stages:
        radius = sqrt(log(2 * n * len(stages) / rule.delta) / (2 * m))
        risks = {j: losses[j, :m].mean() for j in racing}
        best = min(risks.values())
        racing = [j for j in racing if risks[j] - radius <= best + radius]
        if len(racing) == 1:
            break
    assert outcome.peers == (min(racing, key=lambda j: risks[j]),)
    assert (outcome.reason is Reason.CERTIFIED) == (len(racing) == 1)


@given(seed=seeds, size=st.integers(2, 40), share=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_masks_move_by_magnitude_and_gradient_as_dispfls_authors_do_it(seed, size, share):
    """`fire_mask` and `regrow_mask` in client.py of rong-dai/DisPFL.

    The smallest living weights die, as many dead ones of the largest gradient come alive.
    """
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(size, generator=generator) < 0.5).float()
    weights, gradient = torch.randn(2, size, generator=generator)
    alive = {i for i in range(size) if mask[i]}
    count = ceil(share * len(alive))
    for i in sorted(alive, key=lambda i: abs(float(weights[i])))[:count]:
        alive.remove(i)
    dead = sorted(set(range(size)) - alive, key=lambda i: -abs(float(gradient[i])))
    prune_and_regrow(mask, weights * mask, gradient, share)
    assert {i for i in range(size) if mask[i]} == alive | set(dead[:count])
