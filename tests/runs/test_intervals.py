from __future__ import annotations

from math import inf, sqrt

import pytest
from scipy import stats

from sagefl.runs.intervals import estimate, share_interval, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 29, 200])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.999, 0.99999])
def test_quantiles_are_students(probability: float, freedom: int) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(("probability", "freedom"), [(0.4, 3), (1.0, 3), (0.9, 0)])
def test_quantiles_outside_their_range_are_refused(probability: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="expected a probability"):
        t_quantile(probability, freedom)


def test_an_estimate_is_the_textbooks() -> None:
    e = estimate([1.0, 2.0, 6.0])
    assert (e.mean, e.seeds) == (3.0, 3)
    assert e.standard_error == pytest.approx(sqrt(7) / sqrt(3))
    low, high = e.interval(0.95)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 2, loc=3.0, scale=sqrt(7 / 3)))


def test_one_seed_says_nothing_about_spread() -> None:
    e = estimate([0.4])
    assert e.standard_error is None
    assert e.interval() == (-inf, inf)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


@pytest.mark.parametrize(("hits", "total"), [(0, 1), (1, 1), (0, 253), (3, 39), (40, 40), (700, 1500)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_shares_have_the_exact_interval(hits: int, total: int, level: float) -> None:
    exact = stats.binomtest(hits, total).proportion_ci(level, method="exact")
    assert share_interval(hits, total, level) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(("hits", "total"), [(1, 0), (0, 0), (-1, 5), (6, 5)])
def test_shares_of_nothing_are_refused(hits: int, total: int) -> None:
    with pytest.raises(ValueError, match="some of at least one"):
        share_interval(hits, total)
