from __future__ import annotations

import math

import numpy as np
import pytest
from clusters import config, finds_cluster, picks, run_clusters, simulate
from driving import Given, drive
from scipy.stats import kstest, norm

from sagefl.selection import ME, Reason
from sagefl.selection.cfns_lite import CfnsLite, gaussian_sigma
from sagefl.selection.outcome import decode, encode

EXACT = {"private": False, "closeness": 0.0, "graph": 0.0}


def told(layers: dict, losses: dict | None = None, degrees: dict | None = None) -> Given:
    return Given(
        readings={
            "last-layer": {p: np.array(layer) for p, layer in layers.items()},
            "loss": losses or dict.fromkeys(layers, 1.0),
            "degree": degrees or dict.fromkeys(layers, 3.0),
        }
    )


def test_noise_of_the_analytic_mechanism():
    assert gaussian_sigma(1.0, 1.0, 1e-5) == pytest.approx(3.7306, abs=1e-4)  # the classical formula says 4.845
    assert gaussian_sigma(2.0, 1.0, 1e-5) == pytest.approx(2 * gaussian_sigma(1.0, 1.0, 1e-5))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 100.0])
def test_the_noise_is_exactly_enough(epsilon):
    """The privacy loss exceeds epsilon with the allowed probability, and with less noise it would be more."""

    def leak(sigma: float) -> float:
        return norm.cdf(1 / (2 * sigma) - epsilon * sigma) - np.exp(
            epsilon + norm.logcdf(-1 / (2 * sigma) - epsilon * sigma)
        )

    sigma = gaussian_sigma(1.0, epsilon, 1e-5)
    assert leak(sigma) <= 1e-5 * (1 + 1e-3)
    assert leak(0.99 * sigma) > 1e-5


def test_similar_last_layers_are_merged():
    answers = told({ME: [1.0, 0.0], "a": [0.0, 2.0], "b": [3.0, 0.0], "c": [1.0, 1.0], "d": [-1.0, 0.0]})
    outcome = drive(CfnsLite(**EXACT).begin("abcd", 8), answers)
    assert outcome.trace[0].scores == pytest.approx((0.0, 1.0, math.sqrt(0.5), -1.0))
    assert outcome.peers == ("b", "c")
    assert outcome.weights == pytest.approx({"b": 1 / 3, "c": 1 / 3})
    assert outcome.reads == {"last-layer": 4, "loss": 4, "degree": 4}  # one's own are free


def test_all_factors_by_hand():
    layers = {ME: [1.0, 0.0], "a": [1.0, 0.0], "b": [0.0, 1.0]}
    answers = told(layers, {ME: 1.0, "a": 2.0, "b": 60.0}, {"a": 2.0, "b": 8.0})
    rule = CfnsLite(similarity=0.5, closeness=2.0, graph=4.0, private=False)
    # a: .5 * 1 - 2 * |2 - 1|/5 + 4 * 2/8; b: 0 - 2 * |5 - 1|/5 + 4 (losses are clipped at 5)
    assert drive(rule.begin("ab", 8), answers).trace[0].scores == pytest.approx((1.1, 2.4))


def test_scores_are_averaged_over_rounds():
    rule = CfnsLite(memory=0.75, **EXACT)
    first = drive(rule.begin("ab", 8), told({ME: [1.0, 0.0], "a": [1.0, 0.0], "b": [0.0, 1.0]}))
    assert first.state["scores"] == {"a": 1.0, "b": 0.0}
    answers = told({ME: [1.0, 0.0], "a": [0.0, 1.0], "c": [-1.0, 0.0]})
    second = drive(rule.begin("ac", 8, state=decode(encode(first.state)), round=1), answers)
    assert second.state["scores"] == {"a": 0.75, "b": 0.0, "c": -1.0}  # b is away, c is new


def test_what_is_read_is_perturbed_at_the_stated_scale():
    """Whatever the size of a layer, the similarity is off by one Gaussian of the mechanism's sigma."""
    rule = CfnsLite(closeness=0.0, graph=0.0, epsilon=5.0)
    layer = np.random.default_rng(1).normal(size=300)
    answers = told({ME: layer, "a": 7 * layer})
    errors = [drive(rule.begin("a", 8, seed), answers).trace[0].scores[0] - 1.0 for seed in range(400)]
    assert kstest(errors, norm(scale=gaussian_sigma(2.0, 5.0, 1e-5)).cdf).pvalue > 1e-3
    with_losses = CfnsLite(similarity=0.0, closeness=1.0, graph=0.0, epsilon=5.0)
    same = told({ME: layer, "a": layer}, {ME: 1.0, "a": 1.0})
    off = [-drive(with_losses.begin("a", 8, seed), same).trace[0].scores[0] for seed in range(400)]
    scale = gaussian_sigma(1.0, 5.0, 1e-5)
    assert kstest(off, lambda x: 2 * norm(scale=scale).cdf(x) - 1).pvalue > 1e-3


def test_few_neighbours():
    rule = CfnsLite(k=5)
    assert drive(rule.begin((), 8), Given()).reason is Reason.NONE
    answers = told({ME: [1.0, 0.0], "a": [1.0, 0.0], "b": [0.0, 0.0]})
    assert drive(rule.begin("a", 8), answers).peers == ("a",)
    assert set(drive(rule.begin("ab", 8), answers).peers) == {"a", "b"}  # a layer of zeros is nobody's problem


@pytest.mark.parametrize("options", [{"k": 0}, {"epsilon": 0.0}, {"delta": 1.0}, {"memory": 1.0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        CfnsLite(**options)


def test_it_finds_its_cluster_through_the_noise_and_better_without(tmp_path):
    noisy = run_clusters("cfns-lite", tmp_path / "noisy")
    assert finds_cluster(noisy, since=3)
    exact = run_clusters("cfns-lite:private=false", tmp_path / "exact")
    within, total, _ = picks(exact, since=3)
    assert within > 0.95 * total
    assert picks(noisy, since=3)[0] < within


def test_layers_and_scalars_are_control_bytes(tmp_path):
    decisions = simulate(config("cfns-lite", rounds=2), tmp_path / "run").table("decisions")
    assert (decisions["control_bytes"] == decisions["degree"] * (4 * 24 * 6 + 4 + 4)).all()
    assert set(decisions["merged"]) == {2}
