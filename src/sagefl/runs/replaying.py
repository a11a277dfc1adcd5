"""Other rules on the same evidence: replay a run's recorded losses without training anything.

Every client-round of a run is a recorded (peers x anchors) matrix, so any rule that asks for no more than was recorded
can be run on it for free: sweeps of lambda, delta or the schedule cost seconds. A decision that asks for an anchor
that was not recorded is *uncovered* and left out; the share covered is always reported. Run with
`evaluation.losses = "full"` (or aq-128) to cover every rule that asks for the same kind of answers, scored alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from ..data import load
from ..selection import Inspect, Outcome, Probe, Read, Selector, State
from ..selection.decision import Decision
from ..selection.private import RandomisedResponse, priced_for
from ..selection.registry import typed
from ..selection.theory import SCHEDULE
from .config import method_config
from .files import RunError
from .losses import Recorded, first_losses, losses_path, perturbed_classes, read_losses
from .rundir import RunDirectory

TOLD = ("ever", "price", "mine", "trial", "lost", "restarts")  # columns of the audit that a replay goes by


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
    unasked: float  # nothing was asked for another reason: a single neighbour, a rule that never asks, a shut gate
    evaluations: float  # mean per covered decision
    budget: float  # share of the nominal budget (eq:probesaving)


def recorded_decisions(directory: RunDirectory, *, own: bool = False) -> Iterator[tuple[int, Recorded]]:
    """Every client-round with a neighbour, in order; where nothing was asked, or nobody is left, with no losses.

    The number is that of the round, or of the client's own where clients keep their own pace. They are for any rule,
    and so some losses must be there, or for the run's own, which may have asked for none.
    """
    audit = directory.table("decisions")
    own_pace = "turn" in audit.columns
    whole = not own_pace or directory.config.evaluation.losses == "full"
    number = pl.col("turn" if own_pace else "round").alias("number")
    known = [name for name in TOLD if name in audit.columns]
    audit = audit.select("round", number, "client", "peers", "pool", "evaluations", *known)
    if first_losses(directory.path) is None and not (own and not audit["evaluations"].sum()):
        raise RunError(
            f"{directory.path} has no recorded losses: its method asked for none; "
            "run with --set evaluation.losses=full to record them for replay"
        )
    for (round,), rows in audit.group_by("round", maintain_order=True):
        path = losses_path(directory.path, int(round))
        asked: dict[int, list[Recorded]] = defaultdict(list)  # in the order of the rows
        for record in read_losses(path) if path.exists() else ():
            asked[record.client].append(record)
        for _, turn, client, peers, pool, evaluations, *told in rows.iter_rows():
            details = dict(zip(known, told, strict=True))
            if peers or details.get("lost"):
                record = Recorded(client, np.array(peers, dtype=np.int32), pool, np.zeros((len(peers), 0)))
                if (whole or evaluations) and asked[client]:
                    record = asked[client].pop(0)
                yield turn, replace(record, told=details)


def replay_one(
    selector: Selector,
    record: Recorded,
    seed: tuple[int, ...],
    round: int,
    rounds: int | None = None,
    state: State | None = None,
) -> Outcome | None:
    """The outcome on one recorded decision, or None where it asks for what was not recorded.

    A rule that wants other answers than the recorded ones, or wants them scored in another way, is refused.
    """
    decision = replay_decision(selector, record, seed, round, rounds, state)
    return None if decision is None else decision.outcome


def replay_decision(
    selector: Selector,
    record: Recorded,
    seed: tuple[int, ...],
    round: int,
    rounds: int | None = None,
    state: State | None = None,
    *,
    see: Callable[[Decision], None] = lambda decision: None,
    tell: Callable[[Read], Any] = lambda request: None,
) -> Decision | None:
    """The decision behind `replay_one`, at its end; `see` is shown it before each of its requests is answered.

    `tell` knows what peers published, or None.
    """
    if record.scoring is not None:
        selector = selector.suited(latents=record.scoring.kind == "latents")
    decision = _begin(selector, record, seed, state=state, round=round, rounds=rounds)
    while (probe := decision.request) is not None:
        see(decision)
        if isinstance(probe, Inspect) and (trial := record.told.get("trial")):
            decision.answer(trial)
            continue
        if isinstance(probe, Read) and (told := tell(probe)) is not None:
            decision.answer(told)
            continue
        if not isinstance(probe, Probe) or probe.stop > record.losses.shape[1]:
            return None
        _check_scoring(selector, probe, record)
        rows = [decision.ledger.rows[p] for p in probe.peers]
        losses = record.losses[rows, probe.start : probe.stop]
        wanted = losses if probe.mask is None else losses[probe.mask]
        if np.isnan(wanted).any():
            return None
        decision.answer(losses * selector.bound)
    return decision


def _begin(selector: Selector, record: Recorded, seed: tuple[int, ...], **when: Any) -> Decision:
    """The decision as it began, or as it began anew without the neighbours that failed."""
    told, peers = record.told, tuple(int(p) for p in record.peers)
    lost = tuple(told.get("lost") or ())
    known: dict[str, Any] = {name: told.get(name) for name in ("ever", "price", "mine")}
    decision = selector.begin((*peers, *lost), record.pool, seed, me=record.client, **when, **known)
    for _ in range(told.get("restarts") or 0):
        decision = decision.restart(peers)
    return decision


def _check_scoring(selector: Selector, probe: Probe, record: Recorded) -> None:
    if record.scoring is not None and not record.scoring.is_for(probe.scoring):
        raise RunError(
            f"{selector.id} asks for {probe.scoring}, but what was recorded are {record.scoring}: replay a rule with "
            "the same kind and loss, or record a run of this one"
        )


def swept(method: str, axes: Mapping[str, Sequence[Any]]) -> list[tuple[str, Selector]]:
    """A rule at every combination of some options' values, each with a label that says which."""
    section, rules = method_config(method), []
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        at = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in point.items()]
        rules.append((" ".join([method, *at]), typed(section["id"], section["options"] | point)))
    return rules


def replay_run(directory: RunDirectory, rules: Sequence[tuple[str, Selector]]) -> list[ReplayResult]:
    """Every rule on every recorded decision of a run, with the run's own random draws."""
    config = directory.config
    records = list(recorded_decisions(directory))
    if (how := how_told(directory)) is not None:  # what is recorded is what was told
        rules = [(label, priced_for(selector, how)) for label, selector in rules]
    return [
        _tally(label, records, list(_replayed(selector, records, config.seed, config.rounds)))
        for label, selector in rules
    ]


def how_told(
    directory: RunDirectory, classes_of: Callable[[str], int] = lambda dataset: load(dataset).classes
) -> RandomisedResponse | None:
    """How peers perturbed the labels behind a run's losses, by which rules are priced; None: they did not.

    `classes_of` a data set is asked where the losses do not say: those of earlier versions.
    """
    config, first = directory.config, first_losses(directory.path)
    if config.privacy.epsilon is None or first is None:
        return None
    return config.privacy.response(perturbed_classes(first) or classes_of(config.data.dataset))


def _replayed(
    selector: Selector, records: Sequence[tuple[int, Recorded]], seed: int, rounds: int
) -> Iterator[tuple[int, Outcome]]:
    """(degree, outcome) of the covered decisions; what a rule remembers of a client goes on to its next round.

    Where a rule that remembers asked for what was not recorded, its later decisions are not covered either.
    """
    states: dict[int, State] = {}
    at_a_loss: set[int] = set()  # clients
    for round, record in records:
        if record.client in at_a_loss:
            continue
        key = (seed, round, record.client)
        outcome = replay_one(selector, record, key, round, rounds, states.get(record.client))
        if outcome is not None:
            if len(record.peers):
                yield len(record.peers), outcome
            if outcome.state is not None:
                states[record.client] = outcome.state
        elif selector.remembers:
            at_a_loss.add(record.client)


def _tally(
    label: str, records: Sequence[tuple[int, Recorded]], outcomes: Sequence[tuple[int, Outcome]]
) -> ReplayResult:
    n, decisions = max(len(outcomes), 1), sum(len(record.peers) > 0 for _, record in records)
    degrees = sum(degree for degree, _ in outcomes)

    def share(reason: str) -> float:
        return sum(o.reason == reason for _, o in outcomes) / n

    return ReplayResult(
        label=label,
        decisions=decisions,
        covered=len(outcomes) / max(decisions, 1),
        certified=share("certified"),
        committed=share("committed"),
        cost=share("cost"),
        exhausted=share("exhausted") + share("open"),
        no_anchors=share("no-anchors"),
        unasked=sum(map(share, ("only", "uniform", "gated", "home", "none"))),
        evaluations=sum(o.evaluations for _, o in outcomes) / n,
        budget=sum(o.evaluations for _, o in outcomes) / (SCHEDULE[-1] * degrees) if degrees else 0.0,
    )
