"""How far each stopping rule is from optimal stopping, measured: two neighbours, a prior, a price.

For two neighbours optimal stopping can be computed exactly (`sagefl.selection.bellman`), so a rule's distance from it
is a number. Worlds are drawn from the prior, and every rule decides on the same ones. So do the two optimal policies:
their expected costs are known, so their costs on these worlds show how lucky the worlds were, and that is taken out of
every rule's mean (control variates). Cost = risk of what is taken - R_RG + lambda per evaluation, with true risks:
negative means that deciding paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..runs.intervals import t_quantile
from ..selection import AnchorQuery, Outcome, RandomGossip, SageE, SageEVanilla, SageOS, Selector, VanillaSage, replay
from ..selection.bellman import Optima, Prior, sample_losses, solve
from ..selection.theory import DELTA, PROBE_COST
from ..streams import stream

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RuleRegret:
    """One rule on the worlds that all rules saw; its distances from the optima have the same error as its cost."""

    label: str
    taken: float  # share of decisions that did not gossip
    evaluations: float
    cost: float
    error: float  # half the width of the 95 % interval


@dataclass(frozen=True)
class RegretReport:
    """All rules against both optima; the optima's costs are exact."""

    prior: Prior
    probe_cost: float
    delta: float
    decisions: int
    certified_cost: float
    unconstrained_cost: float
    rules: tuple[RuleRegret, ...]


def rules(probe_cost: float, delta: float) -> dict[str, Selector]:
    """The rules that are compared; those that never stop for a price ignore lambda."""
    return {
        "rg": RandomGossip(),
        "aq-128": AnchorQuery(),
        "sage-os": SageOS(delta=delta, probe_cost=probe_cost),
        "sage-os, tight": SageOS(delta=delta, probe_cost=probe_cost, radius="tight"),
        "sage-vanilla": VanillaSage(delta=delta),
        "sage-e-vanilla": SageEVanilla(delta=delta),
        "sage-e, no stop": SageE(delta=delta, probe_cost=probe_cost, stop="none"),
        "sage-e, voi": SageE(delta=delta, probe_cost=probe_cost, stop="voi"),
        "sage-e, voi at the stages": SageE(delta=delta, probe_cost=probe_cost, stop="voi", looks="stages"),
        "sage-e, predictive at the stages": SageE(delta=delta, probe_cost=probe_cost, looks="stages"),
        "sage-e, predictive": SageE(delta=delta, probe_cost=probe_cost),
    }


def measure_regret(
    prior: Prior,
    probe_cost: float = PROBE_COST,
    delta: float = DELTA,
    decisions: int = 1000,
    seed: int = 0,
    compared: Mapping[str, Selector] | None = None,
) -> RegretReport:
    """Every rule's cost on the same `decisions` worlds of 128 anchors, and the exact costs of the optima."""
    if decisions < 10:
        raise UsageError(f"an interval needs more decisions, at least 10, got {decisions}")
    optima = solve(prior, probe_cost, delta)
    losses, gains = sample_losses(prior, decisions, stream(seed, "regret"))
    luck = np.stack([_luck(optima, losses, gains, probe_cost, certified) for certified in (True, False)], axis=1)
    found = [
        _measured(label, [replay(rule, x, (seed, i)) for i, x in enumerate(losses)], gains, probe_cost, luck)
        for label, rule in (compared or rules(probe_cost, delta)).items()
    ]
    return RegretReport(prior, probe_cost, delta, decisions, -optima.certified, -optima.unconstrained, tuple(found))


def _measured(label: str, outcomes: Sequence[Outcome], gains: Values, probe_cost: float, luck: Values) -> RuleRegret:
    evaluations = np.array([float(o.evaluations) for o in outcomes])
    # Gossip counts with its expectation, which is 0 whoever is drawn.
    taken = np.array([o.peers[0] if o.selected else -1 for o in outcomes])
    cost, error = controlled_mean(_costs(taken, gains, probe_cost * evaluations), luck)
    return RuleRegret(label, float((taken >= 0).mean()), float(evaluations.mean()), cost, error)


def controlled_mean(values: Values, controls: Values) -> tuple[float, float]:
    """The mean of `values` and half the width of its 95 % interval, given controls of known mean 0 (a column each)."""
    design = np.column_stack([np.ones(len(values)), controls])
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ values
    freedom = len(values) - design.shape[1]
    variance = float(((values - design @ fitted) ** 2).sum()) / freedom
    return float(fitted[0]), t_quantile(0.975, freedom) * sqrt(variance * float(inverse[0, 0]))


def _luck(optima: Optima, losses: Values, gains: Values, probe_cost: float, certified: bool) -> Values:
    """What an optimal policy cost on each world beyond its expectation."""
    taken, bought = optima.follow(losses, certified=certified)
    price = (2 * probe_cost * bought).astype(np.float64)
    return _costs(taken, gains, price) + (optima.certified if certified else optima.unconstrained)


def _costs(taken: npt.NDArray[np.int64], gains: Values, price: Values) -> Values:
    """`gains` are those of peer 0 over gossip; peer 1 gains the opposite."""
    costs: Values = price - np.select([taken == 0, taken == 1], [gains, -gains], 0.0)
    return costs
