"""Groups are found where there are some, and not where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from sagefl.runs.kinship import adjusted_rand, find_kin, label_overlap

CLIENTS, SAMPLES = 16, 60


def planted(groups: np.ndarray, apart: float, seed: int, p: float = 1.0) -> np.ndarray:
    """Gaps as often up as down among kin, more often up among strangers; a share of the pairs is unknown."""
    rng = np.random.default_rng(seed)
    far = groups[:, None] != groups[None, :]
    rise = rng.random((CLIENTS, CLIENTS, SAMPLES)) < 0.15 + apart * far[:, :, None]
    gaps = rise.astype(float) - (rng.random((CLIENTS, CLIENTS, SAMPLES)) < 0.15)
    gaps[rng.random((CLIENTS, CLIENTS)) > p] = np.nan
    gaps[range(CLIENTS), range(CLIENTS)] = np.nan
    return gaps


@pytest.mark.parametrize("count", [2, 3, 4])
def test_planted_groups_are_found(count: int) -> None:
    truth = np.arange(CLIENTS) % count
    for seed in range(5):
        found = find_kin(planted(truth, 0.3, seed, p=0.8))
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


def test_other_classes_are_no_other_kind() -> None:
    """Clients that hold few classes err on each other's samples; with their label shares that is seen through."""
    rng = np.random.default_rng(3)
    overlap = label_overlap(rng.dirichlet(np.full(10, 0.2), CLIENTS))
    for groups, count in ((np.zeros(CLIENTS, int), 1), (np.arange(CLIENTS) % 2, 2)):
        far = groups[:, None] != groups[None, :]
        error = 0.9 - 0.7 * overlap + 0.25 * far * overlap
        gaps = (rng.random((CLIENTS, CLIENTS, 200)) < error[:, :, None]) - 0.1
        gaps[range(CLIENTS), range(CLIENTS)] = np.nan
        blind, seeing = find_kin(gaps), find_kin(gaps, overlap)
        assert adjusted_rand(np.array(blind.groups), groups) < 0.5
        assert len(seeing.sizes) == 1 if count == 1 else adjusted_rand(np.array(seeing.groups), groups) > 0.7


def test_agreement_is_one_for_the_same_partition_and_about_nothing_by_chance() -> None:
    rng = np.random.default_rng(0)
    assert adjusted_rand(np.array([0, 0, 1, 2]), np.array([2, 2, 0, 1])) == 1
    assert abs(np.mean([adjusted_rand(rng.integers(3, size=30), rng.integers(3, size=30)) for _ in range(200)])) < 0.02


@pytest.mark.parametrize("shape", [(1, 1, 8), (3, 3, 1), (2, 2, 0)])
def test_nobody_is_told_apart_by_no_answers(shape: tuple[int, int, int]) -> None:
    """A client without others, or a half of the samples with nothing in it."""
    gaps = np.zeros(shape)
    gaps[range(shape[0]), range(shape[0])] = np.nan
    found = find_kin(gaps)
    assert (found.groups, found.between) == ((0,) * shape[0], None)
