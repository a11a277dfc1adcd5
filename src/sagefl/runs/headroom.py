"""What choosing could gain in a world, and how much of it a rule gets: headroom and capture, with intervals over seeds.

Headroom is the better of `oracle` (a draw within one's own group) and `local` (staying at home), minus `rg`: what a
client that always knew which neighbour helps, or that none does, gains over one that draws blindly. The capture of a
rule is its own gain over `rg` as a share of that. Averaging with many is no part of it: one pull cannot reach it.

Accuracy is that on one's own group's test set, and on clients' own data where there are no groups. Everything here
takes scores by seed and method; `runs_scores` reads them from finished runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean
from typing import Any

import numpy as np

from .config import RunConfig, method_label
from .intervals import Estimate, estimate, t_quantile

GOSSIP, REFERENCES = "rg", ("oracle", "local")
Scores = Mapping[int, Mapping[str, float]]  # accuracy by seed and method
LITTLE = 0.01  # below a point of headroom a share of it says nothing


@dataclass(frozen=True)
class Capture:
    """The share of the headroom that a method gets."""

    share: float
    low: float  # an interval over seeds; the whole line where nothing is known
    high: float


@dataclass(frozen=True)
class Headroom:
    """What choosing could gain in one world."""

    over_gossip: Estimate  # of the better reference, paired by seed
    reference: str  # which that is: in the mean over seeds
    scores: Scores  # of the seeds in which all three were run

    @property
    def worth_sharing(self) -> bool:
        """Whether there is enough of it that shares of it mean something."""
        return self.over_gossip.mean >= LITTLE

    def capture(self, method: str, level: float = 0.95) -> Capture | None:
        """A method's gain over `rg` as a share of the headroom; None where there is too little or it was not run."""
        rows = [row for row in self.scores.values() if method in row]
        if not rows or not self.worth_sharing:
            return None
        gain = [row[method] - row[GOSSIP] for row in rows]
        room = [row[self.reference] - row[GOSSIP] for row in rows]
        return captured(gain, room, level)


def headroom(scores: Scores) -> Headroom | None:
    """Over the seeds in which `rg`, `oracle` and `local` were all run; None without any."""
    whole = {seed: row for seed, row in sorted(scores.items()) if {GOSSIP, *REFERENCES} <= row.keys()}
    if not whole:
        return None
    reference = max(REFERENCES, key=lambda name: fmean(row[name] for row in whole.values()))
    return Headroom(estimate([row[reference] - row[GOSSIP] for row in whole.values()]), reference, whole)


def captured(gain: Sequence[float], room: Sequence[float], level: float = 0.95) -> Capture | None:
    """The mean gain over the mean headroom of the same seeds; None without headroom.

    The interval is Fieller's for a ratio of paired means; it is the whole line with a single seed, or where the
    headroom itself could be nothing.
    """
    return Capture(fmean(gain) / fmean(room), *_fieller(gain, room, level)) if fmean(room) > 0 else None


def _fieller(gain: Sequence[float], room: Sequence[float], level: float) -> tuple[float, float]:
    """All ratios r at which the mean of gain - r * room is not significantly different from 0."""
    n = len(gain)
    if n < 2:
        return -inf, inf
    covariance = np.cov(gain, room) / n
    t2 = t_quantile(0.5 + level / 2, n - 1) ** 2
    a = fmean(room) ** 2 - t2 * covariance[1, 1]
    b = fmean(room) * fmean(gain) - t2 * covariance[0, 1]
    c = fmean(gain) ** 2 - t2 * covariance[0, 0]
    if a <= 0:  # the headroom itself may be nothing
        return -inf, inf
    half = sqrt(max(b * b - a * c, 0.0))
    return float((b - half) / a), float((b + half) / a)


# Of runs --------------------------------------------------------------------------------------------------------------


def own_metric(config: RunConfig) -> str:
    """The metric that headroom is about: on one's own group's test set, or on clients' own data."""
    return "accuracy" if config.world.grouped else "client"


def runs_scores(runs: Iterable[tuple[RunConfig, Mapping[str, Any]]]) -> dict[str, dict[int, dict[str, float]]]:
    """The scores of runs (with what they measured last), by setting: everything but method and seed is the same."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for config, measured in runs:
        score = measured.get(own_metric(config))
        if score is not None:
            of_seed = found.setdefault(config.setting_digest, {}).setdefault(config.seed, {})
            of_seed[method_label(config.method.model_dump())] = float(score)
    return found


def headrooms(runs: Iterable[tuple[RunConfig, Mapping[str, Any]]]) -> list[str]:
    """A sentence on every setting among these runs that has its references."""
    held = list(runs)
    grouped = {config.setting_digest: config.world.grouped for config, _ in held}
    rooms = {setting: headroom(scores) for setting, scores in runs_scores(held).items()}
    return [said(room, grouped=grouped[setting]) for setting, room in rooms.items() if room is not None]


def said(room: Headroom, *, grouped: bool) -> str:
    """Headroom in a sentence, and who captures how much of it in another."""
    about = "group accuracy" if grouped else "client accuracy"
    score = {name: fmean(row[name] for row in room.scores.values()) for name in (*REFERENCES, GOSSIP)}
    seeds, (low, high) = room.over_gossip.seeds, room.over_gossip.interval()
    spread = f" [{100 * low:+.1f}, {100 * high:+.1f}] over {seeds} seeds" if seeds > 1 else ""
    figures = ", ".join(f"{name} {value:.4f}" for name, value in score.items())
    what = f"Headroom: {100 * room.over_gossip.mean:+.1f} points of {about}{spread} ({figures})"
    if not room.worth_sharing:
        return f"{what}; there is nothing to choose here."
    others = dict.fromkeys(name for row in room.scores.values() for name in row if name not in score)
    shares = ", ".join(f"{name} {shown(room.capture(name))}" for name in others)
    return f"{what}; captured by {shares}." if shares else f"{what}."


def shown(capture: Capture | None) -> str:
    """Capture in a few characters."""
    if capture is None:
        return "-"
    spread = "" if capture.low == -inf else f" [{capture.low:.0%}, {capture.high:.0%}]"
    return f"{capture.share:.0%}{spread}"
