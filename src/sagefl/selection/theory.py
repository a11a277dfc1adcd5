"""The paper's formulas as functions. Each docstring names the equation by its LaTeX label.

Names: `anchors` m, `degree` d, `stages` L, `delta`, `loss_bound` M, `probe_cost` lambda, `advantage` A, `gap` Delta.
Defaults are the paper's operating point, which stands here and nowhere else.
"""

from __future__ import annotations

from math import floor, log, sqrt

SCHEDULE = (16, 32, 64, 128)  # anchors m_1 < ... < m_L
PROBE_COST = 2e-3  # lambda
DELTA = 0.1


def radius(
    anchors: int, degree: int, stages: int = len(SCHEDULE), delta: float = DELTA, loss_bound: float = 1.0
) -> float:
    """Confidence radius r of every empirical risk after `anchors` anchors (eq:radius).

    `r = M sqrt(log(2 d L / delta) / (2 m))`: Hoeffding with a union bound over peers and looks.

    >>> [round(2 * radius(m, degree=6), 4) for m in SCHEDULE]
    [0.8785, 0.6212, 0.4392, 0.3106]
    """
    if not (anchors > 0 and degree > 0 and stages > 0 and 0 < delta < 1 and loss_bound > 0):
        raise ValueError(
            f"a radius needs positive counts, delta in (0, 1) and M > 0, got {anchors=}, {degree=}, {stages=}, "
            f"{delta=}, {loss_bound=}"
        )
    return loss_bound * sqrt(log(2 * degree * stages / delta) / (2 * anchors))


def certificate_width(radius: float, degree: int, *, tight: bool = False) -> float:
    """What the advantage must exceed: 2r (eq:gossip-cert), or 2r(1 - 1/d).

    The tighter width holds on the same event: in `R_RG - R_j = (1/d) sum_i (R_i - R_j)` the term i = j is exactly 0.
    """
    return 2 * radius * (1 - 1 / degree) if tight else 2 * radius


def can_certify(width: float, degree: int, loss_bound: float = 1.0) -> bool:
    """Whether any losses at all can certify at this width: the largest possible advantage is M (d - 1)/d."""
    return loss_bound * (degree - 1) / degree > width


def stage_cost(probe_cost: float, degree: int, anchors: int, next_anchors: int, *, cumulative: bool = False) -> float:
    """Price of the next stage in risk units (eq:stage-cost): `lambda d (m_next - m)`.

    `cumulative` charges `lambda d m_next` instead; the paper's evidence table fits that far better (see the audit),
    but only the incremental price carries the proof.
    """
    return probe_cost * degree * (next_anchors if cumulative else next_anchors - anchors)


def sufficient_anchors(
    gap: float, degree: int, stages: int = len(SCHEDULE), delta: float = DELTA, loss_bound: float = 1.0
) -> int:
    """Fewest anchors that guarantee separation at risk gap `gap` (eq:samplecomplexity).

    The smallest integer m with `m > 8 M^2 / Delta^2 log(2 d L / delta)`.

    >>> sufficient_anchors(gap=0.2, degree=6)
    1235
    """
    _positive(gap=gap, loss_bound=loss_bound)
    return floor(8 * (loss_bound / gap) ** 2 * log(2 * degree * stages / delta)) + 1


def lower_bound(gap: float, delta: float = DELTA, loss_bound: float = 1.0) -> float:
    """Anchors that *no* rule can do without at risk gap `gap` (eq:lower, first inequality).

    `m >= (1 - Delta^2/M^2)/8 * M^2/Delta^2 * log(1/(4 delta))` for two peers. The theorem is stated for gaps up to
    M/2 and delta below 1/4, so other arguments are refused.
    """
    _positive(gap=gap, loss_bound=loss_bound)
    if not 0 < gap / loss_bound <= 0.5 or not 0 < delta < 0.25:
        raise ValueError(f"the lower bound is proved for 0 < gap <= M/2 and 0 < delta < 1/4, got {gap=}, {delta=}")
    ratio = (gap / loss_bound) ** 2
    return (1 - ratio) / 8 / ratio * log(1 / (4 * delta))


def dominance_threshold(probe_cost: float, degree: int, first_stage: int = SCHEDULE[0]) -> float:
    """Value of perfect peer information below which immediate gossip is optimal (eq:dominance): `lambda d m_1`."""
    return probe_cost * degree * first_stage


def information_bound(advantage: float, width: float) -> float:
    """The most that perfect information could still gain over gossip (eq:vpi): `[A + 2r]_+`."""
    return max(advantage + width, 0.0)


def continuation_margin(
    advantage: float,
    anchors: int,
    next_anchors: int,
    degree: int,
    stages: int = len(SCHEDULE),
    delta: float = DELTA,
    probe_cost: float = PROBE_COST,
    loss_bound: float = 1.0,
) -> float:
    """mu = lambda d (m_next - m) - [A + 2r]_+; SAGE-OS continues while it is negative (before prop:degree)."""
    r = radius(anchors, degree, stages, delta, loss_bound)
    return stage_cost(probe_cost, degree, anchors, next_anchors) - information_bound(advantage, 2 * r)


def degree_condition(
    anchors: int,
    next_anchors: int,
    degree: int,
    stages: int = len(SCHEDULE),
    delta: float = DELTA,
    probe_cost: float = PROBE_COST,
    loss_bound: float = 1.0,
) -> bool:
    """Whether a denser neighbourhood stops no later at this stage (eq:degcond).

    `lambda (m_next - m) d sqrt(2 m log(2 d L / delta)) >= M`. At the paper's settings it fails for d <= 2 at the
    first stage and holds everywhere else.

    >>> [degree_condition(16, 32, degree) for degree in (1, 2, 3)]
    [False, False, True]
    """
    growth = probe_cost * (next_anchors - anchors) * degree * sqrt(2 * anchors * log(2 * degree * stages / delta))
    return growth >= loss_bound


def probe_price(input_bytes: float, answer_bytes: float, model_bytes: float, risk_per_model: float) -> float:
    """Lambda from byte prices (eq:lambda): how much risk one anchor-peer evaluation must be worth.

    `risk_per_model` is the drop in risk for which you would just pay one more model transfer; it fixes the exchange
    rate chi between bytes and risk, and `lambda = (input + answer) * risk_per_model / model`.

    >>> f"{probe_price(784, 1, 864_000, risk_per_model=0.05):.1e}"   # Fashion-MNIST, float32 model
    '4.5e-05'
    """
    _positive(model_bytes=model_bytes)
    if min(input_bytes, answer_bytes, risk_per_model) < 0:
        raise ValueError("byte prices and risk_per_model must not be negative")
    return (input_bytes + answer_bytes) * risk_per_model / model_bytes


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
