"""The paper's formulas: values from the audit of the paper, values computed by hand, and what they imply."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil

import pytest

import sagefl.selection
import sagefl.streams
from sagefl import SageOS
from sagefl.selection import theory
from sagefl.selection.planning import plan_stages

STAGES = (16, 32, 64, 128)


# Golden values: d = 6, L = 4, delta = .1, lambda = 2e-3 ---------------------------------------------------------------


@pytest.mark.parametrize(("anchors", "width"), [(16, 0.8785), (32, 0.6212), (64, 0.4392), (128, 0.3106)])
def test_golden_widths(anchors: int, width: float) -> None:
    r = theory.radius(anchors, degree=6, stages=4, delta=0.1)
    assert theory.certificate_width(r, 6) == pytest.approx(width, abs=5e-5)
    assert theory.certificate_width(r, 6, tight=True) == pytest.approx(width * 5 / 6, abs=5e-5)


@pytest.mark.parametrize(
    ("anchors", "ahead", "cost", "cumulative"),
    [(16, 32, 0.192, 0.384), (32, 64, 0.384, 0.768), (64, 128, 0.768, 1.536)],
)
def test_golden_costs(anchors: int, ahead: int, cost: float, cumulative: float) -> None:
    assert theory.stage_cost(2e-3, 6, anchors, ahead) == pytest.approx(cost, abs=1e-12)
    assert theory.stage_cost(2e-3, 6, anchors, ahead, cumulative=True) == pytest.approx(cumulative, abs=1e-12)


def test_golden_dominance() -> None:
    assert theory.dominance_threshold(2e-3, 6, 16) == pytest.approx(0.192, abs=1e-12)


def test_the_defaults_of_the_functions_are_the_papers() -> None:
    assert theory.radius(64, 6) == theory.radius(64, 6, stages=4, delta=0.1, loss_bound=1.0)
    assert SageOS() == SageOS(schedule=STAGES, delta=0.1, probe_cost=2e-3, loss_bound=1.0, radius="printed")
    assert SageOS().cost == "incremental"
    assert SageOS().stages == "nominal"
    assert SageOS().ties == "random"


# By hand --------------------------------------------------------------------------------------------------------------


def test_radius_by_hand() -> None:
    # log(2 * 5 * 4 / .05) = log 800 = 6.684611728; / (2 * 50) = .06684611728; root .2585462; times M = 3: .7756385
    assert theory.radius(50, 5, stages=4, delta=0.05, loss_bound=3.0) == pytest.approx(0.7756385, abs=1e-7)


def test_sufficient_anchors_by_hand() -> None:
    # 8 / .3^2 = 88.8889; log(2 * 7 * 4 / .1) = log 560 = 6.327937; product 562.483: 563 is the first above
    assert theory.sufficient_anchors(0.3, 7) == 563
    # M = 2 and the gap twice as large is the same problem
    assert theory.sufficient_anchors(0.6, 7, loss_bound=2.0) == 563


def test_sufficient_anchors_separate() -> None:
    """On the good event a gap Delta shows as at least Delta - 2r, and that must exceed 2r."""
    for gap in (0.05, 0.2, 0.5, 1.0):
        m = theory.sufficient_anchors(gap, 6)
        assert gap - 2 * theory.radius(m, 6) > 2 * theory.radius(m, 6)
        assert gap - 2 * theory.radius(m - 1, 6) <= 2 * theory.radius(m - 1, 6)


def test_lower_bound_by_hand() -> None:
    # gap .1, delta .1: (1 - .01)/8 * 100 * log 2.5 = 12.375 * .916291 = 11.33910
    assert theory.lower_bound(0.1, 0.1) == pytest.approx(11.33910, abs=1e-4)
    assert theory.lower_bound(0.2, 0.1, loss_bound=2.0) == pytest.approx(11.33910, abs=1e-4)
    for gap in (0.01, 0.1, 0.5):  # the second inequality of eq:lower, and no bound may exceed what suffices
        assert theory.lower_bound(gap, 0.1) >= 3 / 32 / gap**2 * math.log(1 / 0.4) - 1e-9
        assert theory.lower_bound(gap, 0.1) < theory.sufficient_anchors(gap, 2)


def test_information_bound_and_margin_by_hand() -> None:
    assert theory.information_bound(0.1, 0.3) == pytest.approx(0.4)
    assert theory.information_bound(-0.5, 0.3) == 0.0
    # d = 6, 64 -> 128, A = .1: .768 - (.1 + .43923) = .22877, so it stops; at A = .4 it would go on
    assert theory.continuation_margin(0.1, 64, 128, 6) == pytest.approx(0.22877, abs=1e-5)
    assert theory.continuation_margin(0.4, 64, 128, 6) < 0


def test_degree_condition_by_hand() -> None:
    # d = 3, 16 -> 32: .002 * 16 * 3 * sqrt(32 * log 240) = .096 * 13.2433 = 1.27136 >= 1; d = 2: .064 * 12.7437 = .8156
    assert theory.degree_condition(16, 32, 3)
    assert not theory.degree_condition(16, 32, 2)
    assert not theory.degree_condition(16, 32, 3, loss_bound=1.28)
    assert theory.degree_condition(16, 32, 3, loss_bound=1.27)
    for degree in range(3, 51):
        assert all(theory.degree_condition(m, n, degree) for m, n in zip(STAGES, STAGES[1:], strict=False))


def test_degree_condition_means_what_it_says() -> None:
    """Where it holds, the margin really grows with the degree (prop:degree)."""
    for m, ahead in zip(STAGES, STAGES[1:], strict=False):
        for degree in range(1, 40):
            if theory.degree_condition(m, ahead, degree):
                now = theory.continuation_margin(0.2, m, ahead, degree)
                assert theory.continuation_margin(0.2, m, ahead, degree + 1) > now


def test_probe_price_by_hand() -> None:
    # 785 bytes an evaluation, 864,000 a model, .05 of risk for a model: 785 * .05 / 864000 = 4.54282e-05
    assert theory.probe_price(784, 1, 864_000, 0.05) == pytest.approx(4.54282e-05, rel=1e-5)
    # the paper's lambda = 2e-3 says that a model transfer is worth 2.2 of risk: more than there is
    assert theory.probe_price(784, 1, 864_000, 2.2013) == pytest.approx(2e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: theory.radius(0, 6), "anchors=0"),
        (lambda: theory.radius(16, 0), "degree=0"),
        (lambda: theory.radius(16, 6, delta=1.0), r"delta in \(0, 1\)"),
        (lambda: theory.radius(16, 6, loss_bound=0), "M > 0"),
        (lambda: theory.sufficient_anchors(0.0, 6), "gap must be positive"),
        (lambda: theory.lower_bound(0.6), "0 < gap <= M/2"),
        (lambda: theory.lower_bound(0.1, delta=0.25), "delta < 1/4"),
        (lambda: theory.probe_price(784, 1, 0, 0.05), "model_bytes must be positive"),
        (lambda: theory.probe_price(-1, 1, 9, 0.05), "must not be negative"),
    ],
)
def test_arguments_outside_a_formulas_domain(call: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()  # type: ignore[operator]


# What follows ---------------------------------------------------------------------------------------------------------


def test_stage_16_can_never_certify_at_the_defaults() -> None:
    for degree in range(1, 1001):
        width = theory.certificate_width(theory.radius(16, degree), degree)
        assert not theory.can_certify(width, degree)
    assert theory.can_certify(theory.certificate_width(theory.radius(32, 6), 6), 6)


def test_the_plan_says_so() -> None:
    plan = plan_stages(SageOS(), degree=6)
    assert [s.can_certify for s in plan.stages] == [False, True, True, True]
    assert [s.gossip_upto for s in plan.stages] == [None, None, pytest.approx(0.3288, abs=5e-5), None]
    assert plan.remarks()[0].startswith("Stage 16 cannot certify: 0.8785 is needed and the largest possible advantage")
    assert "0.192" in plan.remarks()[-1]


def test_the_audit_of_the_cost_rule() -> None:
    """With A = 0 the printed rule can fire from d = 31, 11 and 4 on at stages 16, 32 and 64."""
    for index, least in ((0, 31), (1, 11), (2, 4)):
        can = [d for d in range(1, 60) if plan_stages(SageOS(), d).stages[index].gossip_upto is not None]
        assert can == list(range(least, 60))


def test_a_plan_knows_when_a_stage_cannot_continue() -> None:
    dear = plan_stages(SageOS(probe_cost=1.0), degree=6)
    assert not dear.stages[0].continues
    assert "never continues" in dear.remarks()[0]
    # d = 6 at 16 anchors: giving up at .85 leaves nothing, because no advantage above 5/6 exists
    barely = plan_stages(SageOS(probe_cost=(0.8785 + 0.85) / 96), degree=6)
    assert barely.stages[0].gossip_upto == pytest.approx(0.85, abs=1e-3)
    assert not barely.stages[0].continues
    assert plan_stages(SageOS(), degree=6).stages[0].continues
    with pytest.raises(ValueError, match="at least 1"):
        plan_stages(SageOS(), degree=0)


def test_doctests() -> None:
    modules = [f"sagefl.selection.{m.name}" for m in pkgutil.iter_modules(sagefl.selection.__path__)]
    results = [doctest.testmod(importlib.import_module(name)) for name in (*modules, "sagefl.streams")]
    assert sum(r.failed for r in results) == 0
    assert sum(r.attempted for r in results) >= 5
