"""Partitions: every sample dealt once, minimum sizes, repeatability, and the skew each promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.data import IID, Dirichlet, Owners, Partitioner, Shards
from sagefl.streams import stream

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))


def spread(labels: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    """Samples of each class (columns) at each client (rows)."""
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


partitioners = st.one_of(
    st.builds(Dirichlet, st.floats(0.05, 100), st.integers(0, 3)),
    st.builds(Shards, st.integers(1, 4)),
    st.just(IID()),
)


@settings(deadline=None)
@given(
    partitioners,
    st.lists(st.integers(0, 6), min_size=120, max_size=400).map(np.array),
    st.integers(1, 8),
    st.integers(0, 2**32),
)
def test_every_sample_has_exactly_one_owner_and_the_seed_decides(
    partitioner: Partitioner, labels: np.ndarray, clients: int, seed: int
) -> None:
    parts = partitioner.assign(labels, clients, stream(seed, "partition"))
    assert len(parts) == clients
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert min(map(len, parts)) >= getattr(partitioner, "min_samples", 1)
    again = partitioner.assign(labels.copy(), clients, stream(seed, "partition"))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("partitioner", [Dirichlet(0.3), Shards(), IID()])
def test_another_seed_is_another_partition(partitioner: Partitioner) -> None:
    one, two = (partitioner.assign(LABELS, 10, stream(seed, "partition")) for seed in (1, 2))
    assert not all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


# --- Dirichlet ---


def test_small_alpha_redraws_until_all_have_enough() -> None:
    labels, shorts = np.repeat(np.arange(10), 6_000), []
    for seed in range(10):
        raw = Dirichlet(0.05, min_samples=0).assign(labels, 50, stream(seed, "partition"))
        shorts.append(min(map(len, raw)) < 10)
        kept = Dirichlet(0.05).assign(labels, 50, stream(seed, "partition"))
        assert min(map(len, kept)) >= 10
    assert sum(shorts) >= 8  # otherwise this test would prove nothing


def test_client_shares_of_a_class_have_dirichlet_moments() -> None:
    alpha, clients = 0.5, 8
    shares = np.concatenate(
        [
            spread(LABELS, Dirichlet(alpha, min_samples=0).assign(LABELS, clients, stream(seed, "p"))).T / 600
            for seed in range(60)
        ]
    )
    # Each share is Beta(alpha, (K - 1) alpha): mean 1/K, variance (1/K)(1 - 1/K) / (K alpha + 1).
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert shares.mean() == pytest.approx(1 / clients)
    assert shares.var() == pytest.approx(expected, rel=0.08)
    assert shares.mean(axis=0) == pytest.approx(np.full(clients, 1 / clients), abs=0.02)  # no client is favoured


def test_larger_alpha_is_less_skewed() -> None:
    def skew(alpha: float) -> float:
        counts = spread(LABELS, Dirichlet(alpha).assign(LABELS, 10, stream(3, "partition")))
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    assert skew(0.05) > skew(0.3) > skew(10) > 0.1


def test_which_samples_of_a_class_a_client_gets_is_random() -> None:
    parts = Dirichlet(50).assign(np.zeros(1_000, np.int64), 4, stream(1, "partition"))
    assert all(abs(part.mean() - 499.5) < 100 for part in parts)  # not consecutive blocks, whose means differ by 250


def test_impossible_and_hopeless_wishes_are_refused_clearly() -> None:
    with pytest.raises(ValueError, match="6000 samples cannot give 1000 clients 10 each"):
        Dirichlet(0.3).assign(LABELS, 1_000, stream(1, "partition"))
    with pytest.raises(
        ValueError, match=r"alpha=0.05.* 300 clients .*in 100 draws; on average \d+.* clients fell short"
    ):
        Dirichlet(0.05).assign(LABELS, 300, stream(1, "partition"))
    with pytest.raises(ValueError, match=r"in 3 draws.*larger alpha, fewer clients, a smaller min_samples"):
        Dirichlet(0.05, max_tries=3).assign(LABELS, 50, stream(1, "partition"))


# --- shards ---


def test_two_shards_mean_few_labels() -> None:
    parts = Shards(2).assign(LABELS, 10, stream(1, "partition"))
    counts = spread(LABELS, parts)
    assert [len(part) for part in parts] == [600] * 10
    assert (counts > 0).sum(axis=1).max() <= 2
    assert set(counts.ravel()) <= {0, 300, 600}


def test_shards_that_do_not_divide_the_data_lose_nothing() -> None:
    parts = Shards(3).assign(LABELS[:1_001], 7, stream(1, "partition"))
    assert sum(map(len, parts)) == 1_001
    assert max(map(len, parts)) - min(map(len, parts)) <= 3


# --- IID ---


def test_iid_is_even_in_size_and_label() -> None:
    counts = spread(LABELS, IID().assign(LABELS, 7, stream(1, "partition")))
    assert np.ptp(counts.sum(axis=1)) <= 1
    assert np.abs(counts / counts.sum(axis=1, keepdims=True) - 0.1).max() < 0.04


# --- all ---


@pytest.mark.parametrize("partitioner", [Dirichlet(1.0, min_samples=1), Shards(), IID()])
def test_ten_thousand_clients_are_dealt_all_there_is(partitioner: Partitioner) -> None:
    labels = np.repeat(np.arange(10), 200_000 if isinstance(partitioner, Dirichlet) else 6_000)
    parts = partitioner.assign(labels, 10_000, stream(1, "partition"))
    assert len(parts) == 10_000
    assert sum(map(len, parts)) == len(labels)


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf")])
def test_bad_alpha(alpha: float) -> None:
    with pytest.raises(ValueError, match="expected a positive number"):
        Dirichlet(alpha)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="min_samples is -1"):
        Dirichlet(1, min_samples=-1)
    with pytest.raises(ValueError, match="max_tries 0"):
        Dirichlet(1, max_tries=0)
    with pytest.raises(ValueError, match="per_client is 0"):
        Shards(0)


@pytest.mark.parametrize("partitioner", [Dirichlet(1.0), Shards(), IID()])
def test_bad_inputs(partitioner: Partitioner) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="clients is 0"):
        partitioner.assign(LABELS, 0, rng)
    with pytest.raises(ValueError, match="expected a vector of integers"):
        partitioner.assign(LABELS.astype(float), 2, rng)
    with pytest.raises(ValueError, match="3 samples cannot give 4 clients"):
        partitioner.assign(LABELS[:3], 4, rng)


# Owners that the data name --------------------------------------------------------------------------------------------


def owned(*sizes: int) -> np.ndarray:
    """Owners 0, 1, ... with so many samples each, mixed up."""
    return np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))


def test_a_client_holds_what_its_owner_has_and_nothing_else() -> None:
    owners = owned(30, 20, 10)
    parts = Owners(owners, 10).assign(np.zeros(60, np.int64), 3, stream(1, "partition"))
    assert [set(owners[part]) for part in parts] == [{0}, {1}, {2}]
    assert [len(part) for part in parts] == [30, 20, 10]
    assert all((np.diff(part) > 0).all() for part in parts)


def test_owners_with_too_little_take_no_part_and_the_seed_draws_among_too_many() -> None:
    owners = owned(30, 9, 20, 10, 40)
    labels = np.zeros(len(owners), np.int64)
    drawn = [
        tuple(int(owners[part[0]]) for part in Owners(owners, 10).assign(labels, 2, stream(seed, "partition")))
        for seed in range(60)
    ]
    assert set(drawn) == {(a, b) for a in (0, 2, 3, 4) for b in (0, 2, 3, 4) if a < b}
    again = [Owners(owners, 10).assign(labels, 2, stream(5, "partition")) for _ in range(2)]
    assert all(np.array_equal(a, b) for a, b in zip(*again, strict=True))


def test_more_clients_than_owners_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="name 3 owners, 2 of them with at least 10 samples, for 5 clients"):
        Owners(owned(30, 9, 20), 10).assign(np.zeros(59, np.int64), 5, stream(1, "partition"))
