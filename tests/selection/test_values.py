"""Certificates on errors of values: where no peer is better, few certify anybody; without the clip many would."""

from __future__ import annotations

import numpy as np
import pytest
import run_nulls
from nulls import Draw, count_false, lower_limit, upper_limit
from real_runs import false_runs
from run_nulls import Null, Play, Terms, evidence, false_by_round, largest_advantage, limits, rotated

from sagefl import LABEL_ERRORS, SageM
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


# What sage-m bets on: a pool that all peers err on alike, over the rounds of a run -----------------------------------


def pool(degree: int, clip: float | None) -> Null:
    """Each peer makes every other's errors once, so that over the pool they are tied exactly."""
    errors = predictions(clip)

    def losses(play: Play) -> np.ndarray:
        return errors(play.runs, degree, play.null.anchors, play.rng)

    return Null(degree, 12 * degree, rotated(losses))


@pytest.mark.parametrize("runs", [400, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("degree", [2, 7])
@pytest.mark.parametrize("looks", [False, True])
def test_runs_on_clipped_errors_rarely_certify_falsely(degree: int, runs: int, looks: bool) -> None:
    null = pool(degree, spread(TARGETS))
    assert largest_advantage(null, 1) < 1e-12
    false = int(false_by_round(null, runs, Terms(looks=looks, rounds=50)).any(axis=1).sum())
    assert limits(false, runs)[0] <= DELTA
    assert false / runs <= DELTA


def test_on_errors_that_are_cut_off_too_late_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: raw errors tie just as well, but a bet loses 1 at most, and to cut off the difference is a bias."""
    monkeypatch.setattr(run_nulls, "evidence", lambda *world: np.maximum(evidence(*world), -1))
    null = pool(7, None)
    assert largest_advantage(null, 1) < 1e-12
    false = int(false_by_round(null, 400, Terms(rounds=50)).any(axis=1).sum())
    assert limits(false, 400)[0] > DELTA, false


def test_real_decisions_of_sage_m_on_clipped_errors() -> None:
    false = false_runs(lambda null: SageM(recheck=1.0, margin=0.0, block=null.each), pool(4, spread(TARGETS)), 60, 20)
    assert limits(int(false.any(axis=1).sum()), 60)[0] <= DELTA
