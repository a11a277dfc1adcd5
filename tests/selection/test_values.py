"""Certificates on errors of values: where no peer is better, few certify anybody; without the clip many would."""

from __future__ import annotations

import numpy as np
import pytest
from nulls import Draw, count_false, lower_limit, upper_limit

from sagefl import LABEL_ERRORS
from sagefl.data.targets import spread
from sagefl.selection.scoring import Outputs

DELTA, DEGREE, LEVEL = 0.1, 4, 0.99
TARGETS = np.random.default_rng(1).standard_t(2, size=(20_000, 1)).astype(np.float32)  # some are far out


def predictions(clip: float | None) -> Draw:
    """Peers whose predictions are equally wrong: what they share, and heavy-tailed errors of their own."""
    form = None if clip is None else Outputs(1, clip=clip).form(LABEL_ERRORS)

    def draw(n: int, d: int, m: int, rng: np.random.Generator) -> np.ndarray:
        truth = rng.choice(TARGETS[:, 0], size=(n, 1, m))
        told = 0.5 * truth + rng.normal(size=(n, 1, m)) + 0.7 * rng.standard_t(2, size=(n, d, m))
        whole = np.broadcast_to(truth, told.shape).reshape(-1, 1)
        if form is None:
            return np.abs(told - truth) / spread(TARGETS)
        return form.score(told.reshape(-1, 1).astype(np.float32), whole).reshape(told.shape)

    return draw


@pytest.mark.parametrize("decisions", [2000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_false_certification_of_regression_errors_stays_below_delta(decisions: int) -> None:
    false = count_false(predictions(spread(TARGETS)), DEGREE, decisions, DEGREE / DELTA)
    assert upper_limit(false, decisions, LEVEL) < DELTA


def test_without_the_clip_it_would_not() -> None:
    false = count_false(predictions(None), DEGREE, 2000, DEGREE / DELTA)
    assert lower_limit(false, 2000, LEVEL) > DELTA
