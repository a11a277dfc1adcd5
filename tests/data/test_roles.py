"""The three roles of a client's samples never overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sagefl.data import Roles, split_roles
from sagefl.streams import stream


@given(st.integers(3, 2_000), st.integers(0, 2**32))
def test_roles_cover_all_samples_once_in_the_agreed_numbers(n: int, seed: int) -> None:
    indices = np.arange(n) * 3 + 1
    roles = split_roles(indices, stream(seed, "roles", 0))
    assert len(roles.anchor) == max(1, n // 10)
    assert len(roles.eval) == max(1, n // 10)
    assert len(roles) == n
    assert sorted([*roles.train, *roles.anchor, *roles.eval]) == indices.tolist()
    again = split_roles(indices, stream(seed, "roles", 0))
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(roles.items(), again.items(), strict=True))


@example(100, 0.29)  # floor(.29 * 100) is 28 in floating point
@given(st.integers(3, 500), st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.29, 0.3, 0.45]))
def test_other_fractions_are_floors_too(n: int, fraction: float) -> None:
    roles = split_roles(np.arange(n), np.random.default_rng(0), anchor=fraction, eval=0.1)
    assert len(roles.anchor) == max(1, round(fraction * 100) * n // 100)  # in integers, exact


def test_roles_are_drawn_at_random_and_anchors_come_in_random_order() -> None:
    indices = np.arange(1_000)
    roles = split_roles(indices, stream(1, "roles", 0))
    for _, part in roles.items():
        assert abs(part.mean() - 499.5) < 120
    assert not (np.diff(roles.anchor) > 0).all()
    other = split_roles(indices, stream(1, "roles", 1))
    assert set(roles.anchor) != set(other.anchor)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_samples(n: int) -> None:
    with pytest.raises(ValueError, match=rf"a client with {n} sample\(s\).*at least 3"):
        split_roles(np.arange(n), np.random.default_rng(0))


@pytest.mark.parametrize(("anchor", "evaluation"), [(0, 0.1), (0.1, 0), (0.5, 0.5), (-0.1, 0.1), (float("nan"), 0.1)])
def test_bad_fractions(anchor: float, evaluation: float) -> None:
    with pytest.raises(ValueError, match="positive fractions that leave something to train on"):
        split_roles(np.arange(50), np.random.default_rng(0), anchor=anchor, eval=evaluation)


def test_fractions_that_leave_nothing_to_train_on_for_a_small_client() -> None:
    with pytest.raises(ValueError, match=r"1 anchor\(s\) and 2 for evaluation leave nothing to train on"):
        split_roles(np.arange(3), np.random.default_rng(0), anchor=0.01, eval=0.98)


GOOD: dict[str, Any] = {"train": np.array([0, 1, 2]), "anchor": np.array([3]), "eval": np.array([4, 5])}


@pytest.mark.parametrize("role", ["train", "anchor", "eval"])
@pytest.mark.parametrize("other", ["train", "anchor", "eval"])
def test_an_overlap_cannot_be_built(role: str, other: str) -> None:
    stolen = GOOD[other][0]
    with pytest.raises(ValueError, match=f"sample {stolen} appears twice"):
        Roles(**(GOOD | {role: np.append(GOOD[role], stolen)}))


@pytest.mark.parametrize("bad", [np.array([], int), np.array([[9]]), np.array([9.0])])
def test_roles_must_be_positions(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"role 'anchor' is .*expected a vector of at least one position"):
        Roles(**(GOOD | {"anchor": bad}))
