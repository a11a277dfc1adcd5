"""Other rules on the same evidence: replay a run's recorded losses without training anything.

Every client-round of a run is a recorded (peers x anchors) matrix, so any rule that asks for no more than was recorded
can be run on it for free: sweeps of lambda, delta or the schedule cost seconds. A decision that asks for an anchor
that was not recorded is *uncovered* and left out; the share covered is always reported. Run with
``evaluation.losses = "full"`` (or aq-128) to cover every rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..selection import Outcome, Probe, Selector
from .files import RunError
from .losses import Recorded, read_losses
from .rundir import RunDirectory

__all__ = ["ReplayResult", "recorded_decisions", "replay_one", "replay_run"]


@dataclass(frozen=True)
class ReplayResult:
    """What one rule would have done on a run's evidence."""

    label: str
    decisions: int  # all client-rounds with a neighbour
    covered: float  # share of them whose evidence was recorded
    certified: float  # shares of the covered decisions
    committed: float
    cost: float
    exhausted: float
    no_anchors: float
    evaluations: float  # mean per covered decision
    budget: float  # share of the nominal budget (eq:probesaving)


def recorded_decisions(directory: RunDirectory) -> Iterator[tuple[int, Recorded]]:
    """Every (round, client's recorded losses) of a run."""
    paths = sorted((directory.path / "losses").glob("round-*.safetensors"))
    if not paths:
        raise RunError(
            f"{directory.path} has no recorded losses: its method asked for none; "
            "run with --set evaluation.losses=full to record them for replay"
        )
    for path in paths:
        for record in read_losses(path):
            yield _round_of(path), record


def replay_one(selector: Selector, record: Recorded, seed: tuple[int, ...], round: int) -> Outcome | None:
    """The outcome on one recorded decision, or None where it asks for what was not recorded."""
    peers = tuple(int(p) for p in record.peers)
    decision = selector.begin(peers, record.pool, seed, round=round, me=record.client)
    row = {p: i for i, p in enumerate(peers)}
    while (probe := decision.request) is not None:
        if not isinstance(probe, Probe) or probe.stop > record.losses.shape[1]:
            return None
        rows = [row[p] for p in probe.peers]  # type: ignore[index]
        losses = record.losses[rows, probe.start : probe.stop]
        wanted = losses if probe.mask is None else losses[probe.mask]
        if np.isnan(wanted).any():
            return None
        decision.answer(losses * selector.bound)
    return decision.outcome


def replay_run(
    directory: RunDirectory, rules: Sequence[tuple[str, Selector]], *, largest_stage: int = 128
) -> list[ReplayResult]:
    """Every rule on every recorded decision of a run, with the run's own random draws."""
    seed = directory.config.seed
    records = list(recorded_decisions(directory))
    return [_tally(label, selector, records, seed, largest_stage) for label, selector in rules]


def _tally(
    label: str, selector: Selector, records: Sequence[tuple[int, Recorded]], seed: int, largest: int
) -> ReplayResult:
    outcomes: list[tuple[int, Outcome]] = []
    for round, record in records:
        outcome = replay_one(selector, record, (seed, round, record.client), round)
        if outcome is not None:
            outcomes.append((len(record.peers), outcome))
    n = max(len(outcomes), 1)
    degrees = sum(degree for degree, _ in outcomes)

    def share(reason: str) -> float:
        return sum(o.reason == reason for _, o in outcomes) / n

    return ReplayResult(
        label=label,
        decisions=len(records),
        covered=len(outcomes) / max(len(records), 1),
        certified=share("certified"),
        committed=share("committed"),
        cost=share("cost"),
        exhausted=share("exhausted"),
        no_anchors=share("no-anchors"),
        evaluations=sum(o.evaluations for _, o in outcomes) / n,
        budget=sum(degree * o.anchors for degree, o in outcomes) / (largest * degrees) if degrees else 0.0,
    )


def _round_of(path: Path) -> int:
    return int(path.stem.split("-")[1])
