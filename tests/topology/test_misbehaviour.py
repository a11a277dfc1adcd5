"""Misbehaviour: exactly as many culprits as asked for, and lies of the stated kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagefl.streams import stream
from sagefl.topology import Misbehaviour, TopologyError, false_answers, poison_row, wrong_labels

Interval = Callable[[float, int, float], tuple[float, float]]

KINDS = ("wrong-answers", "flatter", "poison", "flatter-poison", "free-rider", "free-noise", "stale")


@given(kind=st.sampled_from(KINDS), fraction=st.floats(0, 1), clients=st.integers(1, 200), seed=st.integers(0, 10**9))
def test_an_exact_number_of_culprits(kind: str, fraction: float, clients: int, seed: int) -> None:
    bad = Misbehaviour(kind, fraction).culprits(clients, seed)  # type: ignore[arg-type]
    assert bad.dtype == np.bool_
    assert bad.shape == (clients,)
    assert bad.sum() == round(fraction * clients)
    assert (bad == Misbehaviour("poison", fraction).culprits(clients, seed)).all()  # whatever they do
    assert (bad <= Misbehaviour("poison", (1 + fraction) / 2).culprits(clients, seed)).all()


def test_nobody_misbehaves_unless_asked() -> None:
    assert not Misbehaviour().culprits(10, 1).any()
    assert not Misbehaviour("none", 0.5).culprits(10, 1).any()


def test_culprits_depend_on_the_seed_and_spare_nobody(interval: Interval) -> None:
    drawn = np.stack([Misbehaviour("poison", 0.2).culprits(20, seed) for seed in range(500)])
    # Each client is a culprit in a fifth of the seeds: all 20 in their binomial intervals with 99.99 % confidence.
    low, high = interval(1 - 1e-4 / 20, 500, 0.2)
    assert low <= drawn.sum(axis=0).min() <= drawn.sum(axis=0).max() <= high


def test_what_each_kind_does() -> None:
    made = [Misbehaviour(kind, stale=3) for kind in KINDS]  # type: ignore[arg-type]
    does = {m.kind: (m.lies, m.flatters, m.poisons, m.rides_free, m.history) for m in made}
    assert does == {
        "wrong-answers": (True, False, False, False, 0),
        "flatter": (False, True, False, False, 0),
        "poison": (False, False, True, False, 0),
        "flatter-poison": (False, True, True, False, 0),
        "free-rider": (False, False, False, True, 0),
        "free-noise": (False, False, False, True, 0),
        "stale": (False, False, False, False, 3),
    }
    assert not any((Misbehaviour().lies, Misbehaviour().flatters, Misbehaviour().poisons))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "lie"}, "unknown misbehaviour 'lie'; known: none, wrong-answers"),
        ({"fraction": 1.2}, "misbehaviour fraction must be a number between 0 and 1"),
        ({"poison": "arsenic"}, "poison must be 'noise' or 'flip', got 'arsenic'"),
        ({"scale": -1.0}, "poison scale must be a number of at least 0"),
        ({"scale": float("inf")}, "poison scale must be finite"),
        ({"stale": 0}, "stale must be a whole number of at least 1"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Misbehaviour(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_wrong_labels_are_uniform_over_the_other_classes(dtype: type[np.integer], interval: Interval) -> None:
    honest = np.full((100, 200), 3, dtype=dtype)
    lies = wrong_labels(honest, stream(1, "test"), classes=10)
    assert lies.dtype == dtype
    assert lies.shape == honest.shape
    counts = np.bincount(lies.ravel(), minlength=10)
    assert counts[3] == 0
    # The other nine in their binomial intervals, all together with 99.99 % confidence.
    low, high = interval(1 - 1e-4 / 9, honest.size, 1 / 9)
    others = np.delete(counts, 3)
    assert low <= others.min() <= others.max() <= high
    assert (honest == 3).all()


@given(labels=st.lists(st.integers(0, 255), max_size=30), seed=st.integers(0, 100))
def test_no_wrong_label_equals_the_honest_one(labels: list[int], seed: int) -> None:
    honest = np.array(labels, dtype=np.uint8)  # 256 classes: adding in uint8 would wrap
    lies = wrong_labels(honest, stream(seed, "test"), classes=256)
    assert (lies != honest).all()
    assert (lies == wrong_labels(honest, stream(seed, "test"), classes=256)).all()


def test_wrong_labels_needs_another_class_and_labels_in_range() -> None:
    with pytest.raises(TopologyError, match="classes must be a whole number of at least 2"):
        wrong_labels(np.zeros(3, dtype=np.int64), stream(1, "test"), classes=1)
    with pytest.raises(TopologyError, match="labels must lie in 0 to 9, got 0 to 10"):
        wrong_labels(np.array([0, 10]), stream(1, "test"), classes=10)


def test_false_answers_keep_the_form_of_honest_ones() -> None:
    rng = np.random.default_rng(2)
    labels, logs = rng.integers(0, 10, 40), np.log(rng.dirichlet(np.ones(10), 40)).astype(np.float32)
    latents = rng.normal(size=(40, 6)).astype(np.float32)
    assert (false_answers("labels", labels, rng, 10) != labels).all()
    shifted = false_answers("probs", logs, rng, 10)
    assert np.array_equal(np.sort(shifted), np.sort(logs))  # the same probabilities, of other classes
    assert (shifted.argmax(1) != logs.argmax(1)).all()
    noise = false_answers("latents", latents, rng, 10)
    assert (noise.shape, noise.dtype) == (latents.shape, latents.dtype)
    assert np.linalg.norm(noise) == pytest.approx(np.linalg.norm(latents), rel=1e-5)
    assert abs(np.corrcoef(noise.ravel(), latents.ravel())[0, 1]) < 0.3


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_poison_keeps_the_norm_and_loses_the_model(scale: float, dtype: type[np.floating]) -> None:
    row = stream(1, "row").normal(size=5_000).astype(dtype)
    before = row.copy()
    noise = poison_row(row, stream(2, "test"), scale)
    flipped = poison_row(row, stream(2, "test"), scale, mode="flip")
    assert (row == before).all()
    for ruined in (noise, flipped):
        assert ruined.dtype == dtype
        assert ruined.shape == row.shape
        assert np.linalg.norm(ruined) == pytest.approx(scale * np.linalg.norm(row), rel=1e-5)
    assert flipped == pytest.approx(-scale * row)
    if scale:
        # The cosine of independent directions has standard deviation 1 / sqrt(5000) = .014.
        assert abs(noise @ row) / (np.linalg.norm(noise) * np.linalg.norm(row)) < 5 * 0.0142


def test_poison_of_nothing() -> None:
    rng = stream(1, "test")
    assert poison_row(np.zeros(4, dtype=np.float32), rng).tolist() == [0, 0, 0, 0]
    assert poison_row(np.empty(0, dtype=np.float32), rng).size == 0
    with pytest.raises(TopologyError, match="poison must be"):
        poison_row(np.zeros(4), rng, mode="mud")  # type: ignore[arg-type]
