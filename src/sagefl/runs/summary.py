"""A run in a few numbers, computed from its tables: the paper's metrics and the mechanisms it only names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..selection.theory import SCHEDULE
from .columns import BYTES, columns, known_metrics, leading

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-9  # risks this close are equal
GOSSIP = ("cost", "exhausted", "no-anchors", "uniform", "gated", "open")


def summarise(metrics: pl.DataFrame, decisions: pl.DataFrame) -> dict[str, Any]:
    """Accuracy at the last evaluation (None before there is one), evidence, communication and mechanisms of a run."""
    lead = leading(metrics.columns)[0]
    evaluated = metrics.filter(pl.col(lead).is_not_null())
    last: dict[str, Any] = evaluated.row(-1, named=True) if evaluated.height else {}
    measured = [metric.name for metric in known_metrics(values=lead == "mae")]
    return {
        "rounds": metrics.height,
        **{name: last.get(name) for name in (*measured, *(f"before_{name}" for name in measured))},
        f"{lead}_last3": float(np.mean(evaluated[lead][-3:].to_numpy())) if last else None,
        **_evidence(decisions),
        **_communication(decisions),
        **_mechanisms(decisions),
        "pull_gini": last.get("pull_gini"),
        "diversity": last.get("diversity"),
        **_privacy(metrics),
        **({"minutes": metrics["minutes"][-1]} if "minutes" in metrics.columns and metrics.height else {}),
        **_diverged(metrics),
    }


def _privacy(metrics: pl.DataFrame) -> dict[str, Any]:
    """What the worst-off client gave away: per answer, in its worst round, in all. Empty without private answers."""
    names = [column.name for column in columns("metrics", "private") if column.only]
    return {name: metrics[name].max() for name in names if name in metrics.columns}


def _diverged(metrics: pl.DataFrame) -> dict[str, Any]:
    """The first round, from 1, in which somebody's training loss was not a number; nothing where all went well."""
    bad = metrics.filter(pl.col("train_loss").is_not_null() & ~pl.col("train_loss").is_finite())
    return {"diverged": int(bad["round"].min()) + 1} if bad.height else {}  # type: ignore[arg-type]


def stop_shares(decisions: pl.DataFrame) -> dict[str, float]:
    """Share of decisions that ended at each stage (Stop@m)."""
    total = max(decisions.height, 1)
    return {f"stop_{m}": decisions.filter(pl.col("anchors") == m).height / total for m in SCHEDULE}


def gossip_share(decisions: pl.DataFrame) -> float:
    """Share of decisions that ended with a uniform draw, including the draw from a single neighbour.

    Some rules take a single neighbour without asking and give `only` as the reason; others reach it by gossip. Unlike
    `rg_fallback`, which studies have recorded and which leaves `only` out, this share can be compared between rules.
    """
    return decisions.filter(pl.col("reason").is_in([*GOSSIP, "only"])).height / max(decisions.height, 1)


def _evidence(decisions: pl.DataFrame) -> dict[str, Any]:
    """Saving (eq:probesaving) over all decisions, including those without anchors; stops; fallbacks.

    The paper counts degree times anchors, which is the number of evaluations if every peer answers every anchor. For
    rules that ask only some peers (screening, a race), only what they paid for counts.
    """
    total = max(decisions.height, 1)
    degrees = float(decisions["degree"].sum())
    spent = int(decisions["evaluations"].sum())
    budget = spent / (SCHEDULE[-1] * degrees) if degrees else 0.0
    share = {r: decisions.filter(pl.col("reason") == r).height / total for r in decisions["reason"].unique()}
    return {
        "decisions": decisions.height,
        "evaluations": spent,
        "budget": budget,
        "saving": 1.0 - budget,
        "certified": share.get("certified", 0.0),
        "rg_fallback": sum(share.get(r, 0.0) for r in GOSSIP),
        "cost_rg": share.get("cost", 0.0),
        **stop_shares(decisions),
    }


def _communication(decisions: pl.DataFrame) -> dict[str, Any]:
    """Bytes by kind, and CommOH: models moved per decision that had a neighbour, where random gossip moves one."""
    gossip = max(decisions.filter(pl.col("degree") > 0).height, 1)
    sums = {kind: int(decisions[kind].sum()) for kind in BYTES}
    return {
        "merged": decisions["merged"].sum() / gossip,
        "transferred": decisions["transferred"].sum() / gossip,
        **sums,
        "bytes": sum(sums.values()),
    }


def _mechanisms(decisions: pl.DataFrame) -> dict[str, Any]:
    """How well certificates and advantages on anchors hold up on evaluation data."""
    certified = decisions.filter((pl.col("reason") == "certified") & pl.col("eval_risks").is_not_null())
    worse = sum(map(_refuted, certified.iter_rows(named=True)))
    gained = decisions.select("advantage", "eval_gain").drop_nulls()
    return {
        "certified_checked": certified.height,
        "certified_worse": worse / certified.height if certified.height else None,
        "advantage_gain_correlation": _correlation(gained["advantage"].to_numpy(), gained["eval_gain"].to_numpy()),
    }


def first_seen(metrics: pl.DataFrame, minutes: Sequence[float], levels: Iterable[int]) -> dict[int, float]:
    """When accuracy was first seen at each level (per cent); a level never seen has no entry.

    `minutes` is the time at the end of every round.
    """
    if "accuracy" not in metrics.columns:
        return {}
    seen = [(minutes[n], a) for n, a in metrics.drop_nulls("accuracy").select("round", "accuracy").rows()]
    reached = {level: [at for at, accuracy in seen if 100 * accuracy >= level] for level in levels}
    return {level: times[0] for level, times in reached.items() if times}


def _refuted(decision: Mapping[str, Any]) -> bool:
    """Whether evaluation data contradict a certificate, scored as its probes were.

    A certificate says that the chosen peer is better than a random draw. That of trimmed gossip (`test` = trim) says
    that none of the dropped peers is.
    """
    risks = dict(zip(decision["peers"], decision["eval_risks"], strict=True))
    gossip = sum(risks.values()) / len(risks)
    if decision["test"] == "trim":
        bets = zip(risks.values(), decision["wealth"], strict=True)
        return any(risk < gossip - ROUNDING for risk, wealth in bets if wealth >= decision["threshold"])
    return bool(np.mean([risks[peer] for peer in decision["chosen"]]) > gossip + ROUNDING)


def _correlation(a: Floats, b: Floats) -> float | None:
    """Pearson's, or None where it is undefined. By NumPy: how polars splits a sum depends on threads and history."""
    if len(a) < 3 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])
