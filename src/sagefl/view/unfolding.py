"""One decision, stage by stage: replayed from recorded losses with the run's own rule and random draws.

The audit record of a run holds the last stage of every decision; the stages before it are recomputed here. The replay
must end as the record says, or only the record is shown. Rules that remember earlier rounds are replayed from the
client's first round on.

Intervals: rules with a radius show risk +- r. The betting rules have no radius; they show the betting interval of each
peer's risk relative to the neighbourhood's mean (each end at level delta/d), drawn around that mean, so their
certificate fires when an interval is clear of the mean line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..data import load
from ..errors import SageflError
from ..runs.columns import BYTES, LAST_LOOK
from ..runs.config import RunConfig
from ..runs.files import RunError
from ..runs.losses import Recorded, first_losses, losses_path, read_losses
from ..runs.names import read_names
from ..runs.replaying import how_told, replay_one
from ..selection import Outcome, Selector, State, make, replay
from ..selection.betting import paired_differences, upper_bounds
from ..selection.explain import conclusion, stage_sentence
from ..selection.outcome import CONTINUE, Fired, Reason, Stage
from ..selection.private import RandomisedResponse, priced_for
from ..selection.recorded import RecordedLosses
from ..selection.requests import Array, Peer
from .plain import plain
from .shelf import Run
from .world import is_code

AUDITED = tuple(column.name for column in LAST_LOOK)
BETTING = ("wealth", "trim")
RISKS = {
    "error": "share of anchors answered wrongly",
    "ce": "mean cross-entropy, 0.5 for a uniform guess",
    "absolute": "mean error, 1 where it is cut off",
    "squared": "mean squared error, 1 where it is cut off",
}
OWN_RISK, SOME_RISK = "mean of the run's own loss, 1 at its maximum", "mean loss of the answers"


def unfold(run: Run, round: int, client: int) -> dict[str, Any]:
    """One client's decision in one round: its audit record and, if the losses allow it, every stage before it."""
    rows = _rows(run, client)
    row = rows.get(round)
    others = not rows or run.config.clock.schedule == "async"  # whose decisions need not be here
    if row is None and others and 0 <= client < run.config.clients:
        nothing = {"round": round, "client": client, "reason": "none", "peers": [], "chosen": []}
        why = "No exchange of this client ended in this round." if rows else "This record has none of its decisions."
        return _header(run, nothing) | {"note": why, "stages": [], "sentences": []}
    if row is None:
        raise RunError(f"client {client} has no decision in round {round + 1}")
    found, call = _header(run, row) | {"risk": _risk(run)}, _names(run)
    if not row["peers"]:
        return found | {"note": "No active neighbour this round: nothing to decide."}
    if row.get("test") == "memory":
        return found | _remembered(rows, round, call)
    if row.get("test") == "guard":
        return found | _last_stage(row, [call(peer) for peer in row["peers"]])
    ended = _replayed(run, rows, round)
    peers = [call(peer) for peer in row["peers"]]
    if isinstance(ended, str):
        return found | {"note": ended} | _last_stage(row, peers)
    told = replace(ended.outcome, peers=tuple(map(call, ended.outcome.peers)))
    return found | _unfolded(told, ended.losses * ended.rule.bound, peers, ended.rule)


def _names(run: Run) -> Callable[[Any], Peer]:
    """What a client is called: its name, or its number."""
    known = read_names(run.path, run.config.clients)
    return lambda client: client if known is None or not 0 <= int(client) < len(known) else known[int(client)]


def _risk(run: Run) -> str:
    """What this run's risks are, in words, as far as its recorded losses say it."""
    form = None
    if (first := first_losses(run.path)) is not None:
        with suppress(SageflError, OSError):  # damaged, or gone by now: the decision says so
            records = _round_losses(first, first.stat().st_mtime_ns).values()
            form = next((record.scoring for record in records if record.scoring is not None), None)
    return SOME_RISK if form is None else OWN_RISK if form.own is not None else RISKS.get(form.loss, SOME_RISK)


def unfold_losses(rule: Selector, recorded: RecordedLosses, seed: int, label: str) -> dict[str, Any]:
    """The same view of a recorded losses file."""
    outcome = replay(rule, recorded.losses, seed, peers=recorded.peers)
    header = {
        "label": label,
        "peers": [str(p) for p in recorded.peers],
        "chosen": [str(p) for p in outcome.peers],
        "reason": outcome.reason.value,
        "anchors": outcome.anchors,
        "evaluations": outcome.evaluations,
        "pool": recorded.losses.shape[1],
        "degree": len(recorded.peers),
        "risk": RISKS["error"] if np.isin(recorded.losses, (0, 1)).all() else SOME_RISK,
    }
    return header | _unfolded(outcome, recorded.losses, recorded.peers, rule)


# The record ---------------------------------------------------------------------------------------------------------


def _rows(run: Run, client: int) -> dict[int, dict[str, Any]]:
    """A client's audit records by round."""
    table = run.table("decisions")
    places = run.kept.get("places of clients", run.signature("decisions.parquet"), lambda: _places(table))
    rows = table[places[client]].sort("round") if client in places else table.clear()
    return {row["round"]: row for row in rows.iter_rows(named=True)}


def _places(table: pl.DataFrame) -> dict[int, Array]:
    """The rows of each client, looked up once: searching the table for every client would be quadratic."""
    clients = table["client"].to_numpy()
    order = np.argsort(clients, kind="stable")
    found, starts = np.unique(clients[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True))


def _header(run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("round", "client", "degree", "pool", "peers", "chosen", "weights", "reason", "anchors", "evaluations")
    audit = {name: row.get(name) for name in (*names, "stages", *AUDITED)}
    sent = sum(row.get(kind) or 0 for kind in BYTES)
    call, named = _names(run), {}
    if (name := call(row["client"])) != row["client"]:
        named = {"name": name} | {key: [call(p) for p in row.get(key) or ()] for key in ("peers", "chosen")}
    found: dict[str, Any] = plain({"method": run.config.method.id, "bytes": sent} | audit | {"audit": audit} | named)
    return found


def _last_stage(row: Mapping[str, Any], peers: Sequence[Peer]) -> dict[str, Any]:
    """The last stage, from the record alone."""
    if not row.get("stages"):
        return {"stages": [], "sentences": []}
    ended = row["reason"] in ("certified", "cost", "exhausted", "committed") or row.get("test") == "guard"
    stage = _recorded(row, Reason(row["reason"]) if ended else CONTINUE)
    return {"stages": [_stage(stage)], "sentences": [stage_sentence(stage, peers)]}


def _recorded(row: Mapping[str, Any], fired: Fired) -> Stage:
    values: dict[str, Any] = {name: tuple(v) if isinstance(v := row.get(name), list) else v for name in AUDITED}
    return Stage(anchors=row["anchors"], fired=fired, **values)


def _remembered(rows: Mapping[int, Mapping[str, Any]], round: int, call: Callable[[Any], Peer]) -> dict[str, Any]:
    """What a rule that carries capital over rounds knew of today's peers, round by round; the record holds it all."""
    row, stages, sentences, anchors = rows[round], [], [], 0
    for look in (rows[n] for n in sorted(rows) if n <= round and rows[n].get("test") == "memory"):
        stage = _recorded(look, Reason(look["reason"]))
        anchors += stage.anchors
        if stage.anchors:
            at = {peer: i for i, peer in enumerate(look["peers"])}
            today = {
                name: [values[at[p]] if p in at else 0.0 for p in row["peers"]]
                for name in ("risks", "wealth", "against", "since")
                if (values := getattr(stage, name)) is not None
            }
            stages.append(_stage(stage) | today | {"anchors": anchors, "round": look["round"]})
        if stage.anchors or look is row:
            sentences.append(f"Round {look['round'] + 1}. {stage_sentence(stage, [call(p) for p in look['peers']])}")
    spent = {"anchors": row["anchors"], "evaluations": row["evaluations"]}
    ended = Outcome(tuple(map(call, row["chosen"])), True, Reason(row["reason"]), trace=(stage,), **spent)
    return {
        "stages": plain(stages),
        "sentences": sentences,
        "conclusion": conclusion(ended),
        "replayed": True,
        "bound": 1.0,
    }


# The replay ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ended:
    """A replay that ended as the record says."""

    outcome: Outcome
    rule: Selector
    losses: Array


def _replayed(run: Run, rows: Mapping[int, Mapping[str, Any]], round: int) -> _Ended | str:
    """The replay that ends as the record says, or the reason why there is none."""
    config, row = run.config, rows[round]
    why = "This rule asks for more than recorded probe losses, so only the last stage is known."
    try:
        record = _record(run, row, round)
        for rule in _rules(run):
            outcome = _one(config, rule, record, row.get("turn", round), None)
            if outcome is None or outcome.state is not None or not _agrees(outcome, row):
                outcome = _with_memory(run, rule, rows, round)
            if outcome is not None and _agrees(outcome, row):
                return _Ended(outcome, rule, record.losses)
            if outcome is not None:
                why = "Replaying the losses with this version does not end as recorded; shown is the record."
    except SageflError as error:
        why = str(error)
    return (
        why
        if first_losses(run.path) is not None or not row["stages"]
        else "No losses were recorded, so only the last stage is known."
    )


def _with_memory(run: Run, rule: Selector, rows: Mapping[int, Mapping[str, Any]], round: int) -> Outcome | None:
    """Replayed from the client's first round on; each round gets what the one before remembered."""
    client, signature = rows[round]["client"], run.signature("decisions.parquet")
    known: dict[int, State | None] = run.kept.get(f"memory of {client}", (signature, rule), dict)
    begun = max((n for n in known if n < round), default=-1)
    state, outcome = known.get(begun), None
    for number in sorted(n for n in rows if begun < n <= round):
        if rows[number]["peers"]:
            turn = rows[number].get("turn", number)
            outcome = _one(run.config, rule, _record(run, rows[number], number), turn, state)
            state = state if outcome is None or outcome.state is None else outcome.state
        known[number] = state
    return outcome


def _one(config: RunConfig, rule: Selector, record: Recorded, round: int, state: State | None) -> Outcome | None:
    return replay_one(rule, record, (config.seed, round, record.client), round, config.rounds, state)


def _record(run: Run, row: Mapping[str, Any], round: int) -> Recorded:
    """The recorded losses of one client in one round; empty if nothing was asked."""
    path = losses_path(run.path, round)
    found = _round_losses(path, path.stat().st_mtime_ns).get(row["client"]) if path.is_file() else None
    peers = np.array(row["peers"], dtype=np.int32)
    return found or Recorded(row["client"], peers, row["pool"], np.zeros((len(peers), 0)))


@lru_cache(maxsize=512)
def _round_losses(path: Path, changed: int) -> dict[int, Recorded]:
    return {record.client: record for record in read_losses(path)}


def _rules(run: Run) -> Iterator[Selector]:
    """The candidates for the run's rule, priced as in the run if answers were private."""
    how = _how_told(run)
    for rule in _unpriced(run.config):
        yield rule if how is None else priced_for(rule, how)


def _unpriced(config: RunConfig) -> Iterator[Selector]:
    """The rule with the config's options; then the rule of a published method, which needs torch."""
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in config.method.options.items()}
    with suppress(ValueError):
        yield make(config.method.id, **options)
    try:
        from ..methods import method

        bound = method(config.method.id, **options)
    except (ImportError, ValueError) as error:
        raise RunError(f"The rule {config.method.id!r} cannot be made here ({error}); shown is the record.") from None
    if bound.needs_truth:
        raise RunError(f"{bound.id} decides by what is true, not by evidence; shown is the record.")
    yield bound.selector


def _how_told(run: Run) -> RandomisedResponse | None:
    if run.config.privacy.epsilon is None:
        return None
    signature = (run.signature("run.toml"), first_losses(run.path))
    return run.kept.get("how told", signature, lambda: how_told(run.directory, _classes))


def _classes(dataset: str) -> int:
    """The number of classes of a data set that can be read without running code named by the run."""
    if is_code(dataset):
        raise RunError(
            f"Prices of a private run go by its number of classes, which these losses do not say: {dataset} is loaded "
            "by code, which looking at a run does not execute; shown is the record."
        )
    return load(dataset).classes


def _agrees(outcome: Outcome, row: Mapping[str, Any]) -> bool:
    """Whether a replay ended as the record says, to the last number of its last stage."""
    ended = (outcome.reason.value, list(outcome.peers), outcome.anchors, outcome.evaluations, len(outcome.trace))
    if ended != (row["reason"], row["chosen"], row["anchors"], row["evaluations"], row["stages"]):
        return False
    last = outcome.trace[-1] if outcome.trace else None
    return last is None or all(_alike(getattr(last, name), row[name]) for name in AUDITED if name in row)


def _alike(a: Any, b: Any) -> bool:
    """Equal, but for losses that were packed as float32."""
    if a is None or b is None or isinstance(a, str):
        return bool(a == b)
    return bool(np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-6, atol=1e-9))


# What the page draws ------------------------------------------------------------------------------------------------


def _unfolded(outcome: Outcome, losses: Array, peers: Any, rule: Selector) -> dict[str, Any]:
    names: list[Peer] = list(peers)
    stages = [
        _stage(stage)
        | {
            "intervals": _intervals(stage, losses, rule),
            "advantages": [float(np.mean(stage.risks)) - risk for risk in stage.risks] if stage.risks else None,
        }
        for stage in outcome.trace
    ]
    return {
        "stages": plain(stages),
        "sentences": [stage_sentence(stage, names) for stage in outcome.trace],
        "conclusion": conclusion(outcome),
        "replayed": True,
        "bound": rule.bound,
        "delta": getattr(rule, "delta", None),
        "probe_cost": getattr(rule, "probe_cost", None),
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {f.name: value for f in fields(stage) if (value := getattr(stage, f.name)) is not None}


def _intervals(stage: Stage, losses: Array, rule: Selector) -> list[list[float]] | None:
    """Every peer's risk interval in risk units, clipped to possible values."""
    if not stage.risks:
        return None
    risks, bound = np.array(stage.risks), rule.bound
    if stage.radius is not None:
        ends = np.stack([risks - stage.radius, risks + stage.radius])
    elif stage.test in BETTING and not np.isnan(losses[:, : stage.anchors]).any():
        ends = _betting_ends(losses[:, : stage.anchors] / bound, float(getattr(rule, "delta", 0.1))) * bound
    else:
        return None
    clipped: list[list[float]] = np.clip(ends, 0, bound).T.tolist()
    return clipped


def _betting_ends(losses: Array, delta: float) -> Array:
    """Mean risk minus the betting bounds of each peer's advantage over it."""
    differences = paired_differences(losses)
    share, mean = (len(losses) - 1) / len(losses), losses.mean()
    most, least = upper_bounds(differences, delta), -upper_bounds(-differences, delta)
    return np.stack([mean - share * most, mean - share * least])
