"""Synthetic results for the statistics, and the plan of a study small enough to be run in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sagefl.study.matrix import Cell
from sagefl.study.paper import plan
from sagefl.study.results import Configuration, Result, ResultSet

AT = Configuration("fmnist", "er", 0.1)
TINY = {
    "clients": 6,
    "rounds": 3,
    "topology": {"degree": 4},
    "training": {"max_batches": 1},
    "evaluation": {"every": 3, "subset": 50},
}
METHODS = ("local", "rg", "aq-128", "sage-nf", "sage-vanilla", "sage-os", "sage-os-table")


def results(values: Mapping[str, Mapping[str, Sequence[float]]], at: Configuration = AT) -> ResultSet:
    """Results from {method: {metric: one value per seed}}."""
    rows = []
    for method, metrics in values.items():
        seeds = max(len(v) for v in metrics.values())
        rows += [Result(at, method, s + 1, {k: v[s] for k, v in metrics.items() if s < len(v)}) for s in range(seeds)]
    return ResultSet(rows)


def tiny_plan(**axes: Sequence[object]) -> list[Cell]:
    defaults: dict[str, Sequence[object]] = {"topologies": ("er",), "alphas": (0.3,), "methods": METHODS}
    return plan("smoke", **(defaults | axes), overrides=TINY)  # type: ignore[arg-type]
