"""The stopping map: what each stage can decide, and what two rules do on one drawn neighbourhood.

The closed-form part (radius, width, price, thresholds) is computed in the page, so that sliders respond at once; a test
compares it with `sagefl.selection.planning`. Here a neighbourhood is drawn and SAGE-OS and SAGE-E are replayed on it.

The draw: one peer is better than the others by as much as gives the requested lead over a random draw; given the
anchor, errors share a Gaussian latent difficulty with correlation 1/2, as in the synthetic world of the studies. Draws
are nested: moving one slider keeps the random numbers behind the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite
from statistics import NormalDist
from typing import Any

import numpy as np

from ..selection import Outcome, SageE, SageOS, Selector, replay
from ..selection.explain import conclusion
from ..selection.requests import Array
from ..selection.theory import DELTA, PROBE_COST, SCHEDULE
from ..streams import stream
from .plain import plain

MOST_PEERS, MOST_ANCHORS = 40, 1024
RHO = 0.5


@dataclass(frozen=True)
class MapSettings:
    """The positions of the sliders."""

    degree: int = 6
    delta: float = DELTA
    probe_cost: float = PROBE_COST
    first: int = SCHEDULE[0]
    stages: int = len(SCHEDULE)
    loss_bound: float = 1.0
    lead: float = 0.4
    draw: int = 1

    def __post_init__(self) -> None:
        ranges = {
            "degree": (1, MOST_PEERS),
            "delta": (1e-4, 0.5),
            "probe_cost": (0, 1),
            "first": (1, SCHEDULE[-1]),
            "stages": (1, 8),
            "loss_bound": (0.01, 100),
            "lead": (0, 1),
            "draw": (0, 2**31),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not (isfinite(value) and low <= value <= high):
                raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {value:g}")
        if self.schedule[-1] > MOST_ANCHORS:
            raise ValueError(f"the schedule must end at {MOST_ANCHORS} anchors or before, got {self.schedule}")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> MapSettings:
        """From the page's query; whatever is missing keeps its default."""
        whole = ("degree", "first", "stages", "draw")
        values: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            if name in given:
                try:
                    values[name] = int(given[name]) if name in whole else float(given[name])
                except ValueError:
                    raise ValueError(f"{name} must be a number, got {given[name]!r}") from None
        return cls(**values)

    @property
    def schedule(self) -> tuple[int, ...]:
        """A doubling schedule."""
        return tuple(self.first * 2**i for i in range(self.stages))

    @property
    def risks(self) -> Array:
        """True risks as shares of M; the first peer leads the mean by `lead`, or by as much of it as fits."""
        others = max(self.degree - 1, 1)
        gap = min(self.lead * self.degree / others, 0.96) if self.degree > 1 else 0.0
        risks = np.full(self.degree, 0.5 + gap / 2)
        risks[0] = 0.5 - gap / 2
        return risks


def drawn_losses(settings: MapSettings) -> Array:
    """A (peers x anchors) matrix of losses 0 or M."""
    rng = stream(settings.draw, "stopping-map")
    shared = rng.standard_normal(MOST_ANCHORS)
    own = rng.standard_normal((MOST_PEERS, MOST_ANCHORS))
    width = settings.schedule[-1]
    latent = np.sqrt(RHO) * shared[:width] + np.sqrt(1 - RHO) * own[: settings.degree, :width]
    limits = np.array([NormalDist().inv_cdf(risk) for risk in settings.risks])
    return np.where(latent < limits[:, None], settings.loss_bound, 0.0)


def play(settings: MapSettings) -> dict[str, Any]:
    """What both rules do on the same drawn neighbourhood."""
    losses, m = drawn_losses(settings), settings
    common: dict[str, Any] = {"delta": m.delta, "probe_cost": m.probe_cost, "loss_bound": m.loss_bound}
    last = m.schedule[-1]
    paper = SageOS(schedule=m.schedule, **common)
    betting = SageE(first=min(8, last), largest=last, **common)
    names = [f"peer {j + 1}" for j in range(m.degree)]
    return plain(  # type: ignore[no-any-return]
        {
            "risks": m.risks * m.loss_bound,
            "lead": float(m.risks.mean() - m.risks[0]) * m.loss_bound,
            "paper": _played(paper, replay(paper, losses, m.draw, peers=names)),
            "betting": _played(betting, replay(betting, losses, m.draw, peers=names)),
        },
        5,
    )


def _played(rule: Selector, outcome: Outcome) -> dict[str, Any]:
    return {
        "rule": rule.id,
        "reason": outcome.reason.value,
        "peers": outcome.peers,
        "evaluations": outcome.evaluations,
        "conclusion": conclusion(outcome),
        "path": [
            {
                "anchors": s.anchors,
                "fired": s.fired,
                "advantage": s.advantage,
                "wealth": max(s.wealth) if s.wealth else None,
                "threshold": s.threshold,
            }
            for s in outcome.trace
        ],
    }


GRID: dict[str, tuple[float, ...]] = {
    "degree": (3, 6, 12),
    "delta": (0.05, 0.1),
    "probe_cost": (0.0, 2e-3, 8e-3),
    "lead": (0.1, 0.2, 0.3, 0.4, 0.5),
}
"""The settings at which a frozen report has played the draws; elsewhere it shows the nearest and says so."""


def grid() -> dict[str, Any]:
    """Both rules at every grid point, for the frozen report."""
    points = []
    for degree, delta, cost, lead in product(*GRID.values()):
        settings = MapSettings(degree=int(degree), delta=delta, probe_cost=cost, lead=lead)
        points.append({"degree": degree, "delta": delta, "probe_cost": cost, "lead": lead, "play": play(settings)})
    return {"axes": GRID, "points": points}
