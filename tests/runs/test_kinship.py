"""Groups are found where there are some, and not where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from sagefl.runs.kinship import adjusted_rand, find_kin

CLIENTS, SAMPLES = 16, 60


def planted(groups: np.ndarray, harm: float, seed: int, p: float = 0.5) -> np.ndarray:
    """Changes in error by mixing: as often better as worse with kin, more often worse with strangers."""
    rng = np.random.default_rng(seed)
    far = groups[:, None] != groups[None, :]
    rise = rng.random((CLIENTS, CLIENTS, SAMPLES)) < 0.15 + harm * far[:, :, None]
    fall = rng.random((CLIENTS, CLIENTS, SAMPLES)) < 0.15
    costs = rise.astype(float) - fall
    costs[~np.triu(rng.random((CLIENTS, CLIENTS)) < p, 1)] = np.nan
    for i, j in zip(*np.triu_indices(CLIENTS, 1), strict=True):  # links have two ends
        costs[j, i] = np.nan if np.isnan(costs[i, j, 0]) else rise[j, i].astype(float) - fall[j, i]
    return costs


@pytest.mark.parametrize("count", [2, 3, 4])
def test_planted_groups_are_found(count: int) -> None:
    truth = np.arange(CLIENTS) % count
    for seed in range(5):
        found = find_kin(planted(truth, 0.3, seed, p=1))
        assert adjusted_rand(np.array(found.groups), truth) == 1
        assert found.between is not None
        assert abs(found.between - 0.3) < 0.05 > abs(found.within)
        assert found.contrast[0] > 0.2


def test_where_all_are_alike_there_is_one_group() -> None:
    """The control: pure noise makes groups in few cases, and hardly ever such that both halves agree on."""
    found = [find_kin(planted(np.zeros(CLIENTS, int), 0, seed)) for seed in range(60)]
    assert sum(f.between is not None for f in found) <= 8
    assert sum(f.between is not None and f.agreement >= 0.75 for f in found) <= 1


def test_where_everybody_harms_everybody_there_are_no_groups_either() -> None:
    found = find_kin(planted(np.arange(CLIENTS), 0.3, 1))
    assert found.between is None or found.agreement < 0.75
    assert find_kin(planted(np.arange(CLIENTS), 0.3, 1)).groups == found.groups


def test_answers_join_parts_of_a_group_that_no_link_joins() -> None:
    truth = np.arange(CLIENTS) % 2
    costs = planted(truth, 0.4, 3, p=1)
    apart = np.arange(CLIENTS) // 4  # four parts, two of each group; no links between those of a group
    costs[(truth[:, None] == truth[None, :]) & (apart[:, None] // 2 != apart[None, :] // 2)] = np.nan
    far = (truth[:, None] != truth[None, :])[:, :, None] * np.ones(SAMPLES)
    answers = (np.random.default_rng(1).random(far.shape) < 0.3 + 0.5 * far).astype(float)
    assert adjusted_rand(np.array(find_kin(costs, answers).groups), truth) == 1


def test_agreement_is_one_for_the_same_partition_and_about_nothing_by_chance() -> None:
    rng = np.random.default_rng(0)
    assert adjusted_rand(np.array([0, 0, 1, 2]), np.array([2, 2, 0, 1])) == 1
    assert abs(np.mean([adjusted_rand(rng.integers(3, size=30), rng.integers(3, size=30)) for _ in range(200)])) < 0.02
