"""A run in a few numbers, computed from its tables: the paper's metrics and the mechanisms it only names."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import polars as pl

__all__ = ["stop_shares", "summarise"]

GOSSIP = ("cost", "exhausted", "no-anchors", "uniform", "gated")


def summarise(metrics: pl.DataFrame, decisions: pl.DataFrame, *, largest_stage: int = 128) -> dict[str, Any]:
    """Accuracy at the last evaluation, evidence, communication and mechanisms of a whole run."""
    evaluated = metrics.filter(pl.col("accuracy").is_not_null()) if "accuracy" in metrics.columns else metrics.head(0)
    last = evaluated.tail(1).to_dicts()
    result: dict[str, Any] = {"rounds": metrics.height}
    if last:
        names = ("accuracy", "macro_f1", "client", "weak", "client_ce")
        result |= {name: last[0][name] for name in names}
        result |= {f"before_{name}": last[0][f"before_{name}"] for name in names}
        result["accuracy_last3"] = evaluated.tail(3)["accuracy"].mean()
    return result | _evidence(decisions, largest_stage) | _communication(decisions) | _mechanisms(evaluated, decisions)


def stop_shares(decisions: pl.DataFrame, stages: Sequence[int] = (16, 32, 64, 128)) -> dict[str, float]:
    """Share of decisions that ended at each stage (Stop@m)."""
    total = max(decisions.height, 1)
    return {f"stop_{m}": decisions.filter(pl.col("anchors") == m).height / total for m in stages}


def _evidence(decisions: pl.DataFrame, largest: int) -> dict[str, Any]:
    """Saving (eq:probesaving) over all decisions, those without anchors included; stops; fallbacks."""
    total = max(decisions.height, 1)
    degrees = float(decisions["degree"].sum())
    spent = float((decisions["degree"] * decisions["anchors"]).sum())
    budget = spent / (largest * degrees) if degrees else 0.0
    share = {r: decisions.filter(pl.col("reason") == r).height / total for r in decisions["reason"].unique()}
    return {
        "decisions": decisions.height,
        "evaluations": int(decisions["evaluations"].sum()),
        "budget": budget,
        "saving": 1.0 - budget,
        "certified": share.get("certified", 0.0),
        "rg_fallback": sum(share.get(r, 0.0) for r in GOSSIP),
        "cost_rg": share.get("cost", 0.0),
        **stop_shares(decisions),
    }


def _communication(decisions: pl.DataFrame) -> dict[str, Any]:
    """CommOH relative to random gossip, which moves one model wherever there is a neighbour; bytes by kind."""
    gossip = max(decisions.filter(pl.col("degree") > 0).height, 1)
    kinds = ("probe_input_bytes", "probe_answer_bytes", "model_bytes", "control_bytes")
    sums = {kind: int(decisions[kind].sum()) for kind in kinds}
    return {
        "merged": decisions["merged"].sum() / gossip,
        "transferred": decisions["transferred"].sum() / gossip,
        **sums,
        "bytes": sum(sums.values()),
    }


def _mechanisms(evaluated: pl.DataFrame, decisions: pl.DataFrame) -> dict[str, Any]:
    checked = decisions.filter(pl.col("eval_pulled_risk").is_not_null())
    certified = checked.filter(pl.col("reason") == "certified")
    worse = certified.filter(pl.col("eval_pulled_risk") > pl.col("eval_gossip_risk")).height
    gained = decisions.filter(pl.col("eval_gain").is_not_null() & pl.col("advantage").is_not_null())
    correlation = gained.select(pl.corr("advantage", "eval_gain")).item() if gained.height > 2 else None
    last = evaluated.tail(1).to_dicts()
    return {
        "certified_checked": certified.height,
        "certified_worse": worse / certified.height if certified.height else None,
        "advantage_gain_correlation": None if correlation is None or isnan(correlation) else correlation,
        "pull_gini": last[0].get("pull_gini") if last else None,
        "diversity": last[0].get("diversity") if last else None,
    }
