"""`results/README.md` from `results/README.template.md` and the CSVs beside it: no figure in it is typed by hand.

python tools/results_page.py             # after cells were added or the template was edited

In the template `{{ ... }}` is a figure, `{{ so(...) }}` a statement in words that must be true of the CSVs, or the page
is not made. `tests/study/test_results_page.py` makes it again and looks for figures outside of both.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from math import log, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from sagefl.runs.intervals import share_interval, t_quantile
from sagefl.study.design import Findings
from sagefl.study.paper import PAPER
from sagefl.study.published import SEED, published
from sagefl.study.results import Configuration

RESULTS = Path(__file__).parents[1] / "results"
TEMPLATE = RESULTS / "README.template.md"
MINUS = "\N{MINUS SIGN}"


class Cells:
    """The cells of one folder, looked up by method; where several seeds or worlds have one, their mean."""

    def __init__(self, folder: str) -> None:
        with (RESULTS / folder / "cells.csv").open(encoding="utf-8") as file:
            self.rows = list(csv.DictReader(file))

    def all(self, method: str, metric: str, **where: Any) -> list[float]:
        """A number of every cell of a method; `topology` and `seed` choose some of them."""
        rows = [r for r in self.rows if r["method"] == method and all(r[k] == str(v) for k, v in where.items())]
        return [float(r[metric]) for r in rows if r[metric]]

    def __call__(self, method: str, metric: str, **where: Any) -> float:
        return fmean(self.all(method, metric, **where))

    def gaps(self, method: str, metric: str = "accuracy", **where: Any) -> list[float]:
        """Points above gossip, cell by cell."""
        pairs = zip(self.all(method, metric, **where), self.all("rg", metric, **where), strict=True)
        return [100 * (a - b) for a, b in pairs]

    def gap(self, method: str, metric: str = "accuracy", **where: Any) -> float:
        """Their mean."""
        return fmean(self.gaps(method, metric, **where))

    def probes(self, method: str) -> float:
        """Probe bytes over model bytes."""
        probes = sum(self.all(method, "probe_input_bytes")) + sum(self.all(method, "probe_answer_bytes"))
        return probes / sum(self.all(method, "model_bytes"))

    def checked(self, method: str) -> tuple[int, int]:
        """How many certificates were looked at on evaluation data, and how many of them were refuted."""
        rows = [r for r in self.rows if r["method"] == method and r["certified_worse"]]
        counts = [float(r["certified_checked"]) for r in rows]
        return round(sum(counts)), round(
            sum(n * float(r["certified_worse"]) for n, r in zip(counts, rows, strict=True))
        )


class Comparisons:
    """The comparisons of one folder, by arm and outcome."""

    def __init__(self, folder: str) -> None:
        with (RESULTS / folder / "comparisons.csv").open(encoding="utf-8") as file:
            self.rows = {(r["spec"], r["outcome"]): r for r in csv.DictReader(file)}

    def __call__(self, spec: str, outcome: str, column: str = "points") -> float:
        return float(self.rows[spec, outcome][column])

    def interval(self, spec: str, outcome: str = "both", by: str = "") -> str:
        """Its two ends."""
        return f"{points(self(spec, outcome, by + 'low'))} to {points(self(spec, outcome, by + 'high'))}"

    def deviation(self, spec: str, outcome: str = "both") -> float:
        """Of single replications."""
        n = int(self(spec, outcome, "replications"))
        half = (self(spec, outcome, "high") - self(spec, outcome, "low")) / 2
        return half / t_quantile(0.975, n - 1) * sqrt(n)

    @property
    def holm(self) -> list[tuple[float, str, str]]:
        """Adjusted p-values of all but the primary, smallest first."""
        return sorted((float(r["holm"]), *key) for key, r in self.rows.items() if r["primary"] == "0")


def points(value: float, digits: int = 2) -> str:
    """Signed, with a true minus."""
    return f"{value:+.{digits}f}".replace("-", MINUS)


def percent(value: float, digits: int = 1) -> str:
    """A share of one."""
    return f"{100 * value:.{digits}f} %"


def so(*statements: object) -> str:
    """Nothing, if what the text says in words is true."""
    if not all(statements):
        raise AssertionError("the CSVs do not bear out a sentence of the template: see the line of this call")
    return ""


def power(effect: float, deviation: float, replications: int, level: float, draws: int = 100_000) -> float:
    """How often a paired t-test at this two-sided level finds an effect of this size."""
    x = np.random.default_rng(0).normal(effect, deviation, (draws, replications))
    t = x.mean(1) / (x.std(1, ddof=1) / sqrt(replications))
    return float((np.abs(t) > t_quantile(1 - level / 2, replications - 1)).mean())


def needed(effect: float, deviation: float, level: float, wanted: float) -> int:
    """The fewest replications with that power."""
    return next(n for n in range(3, 100) if power(effect, deviation, n, level) >= wanted)


def theirs(configuration: Configuration) -> Callable[..., float]:
    """What the paper prints for one configuration."""

    def value(method: str, metric: str, over: str | None = None) -> float:
        found = published().value(configuration, method, metric, SEED)
        assert found is not None, (configuration, method, metric)
        return found if over is None else 100 * (found - value(over, metric))

    return value


def answer(folders: Sequence[str]) -> Iterable[str]:
    """The five lines, from the cells of some folders."""
    return Findings.read(PAPER, [RESULTS / folder for folder in folders]).answer


def lines(file: str) -> int:
    """How many rows a CSV has."""
    with (RESULTS / file).open(encoding="utf-8") as opened:
        return sum(1 for _ in csv.DictReader(opened))


def all_below(values: Iterable[float]) -> bool:
    """Whether all are negative."""
    return all(value < 0 for value in values)


def level_in(values: Iterable[float]) -> int:
    """How many are within half a point."""
    return sum(abs(value) < 0.5 for value in values)


def within_third(cells: Cells, methods: Iterable[str]) -> bool:
    """Whether Client accuracy of all but LOCAL is within a third of a point of gossip's."""
    return all(abs(cells.gap(m, "client")) <= 0.34 for m in methods if m != "local")


def same_gini(cells: Cells, methods: Iterable[str]) -> int:
    """How many runs of some methods concentrate exactly as gossip in the same world and seed."""
    return sum(gap == 0 for m in methods for gap in cells.gaps(m, "pull_gini"))


def render(template: str) -> str:
    """The page."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    printed = [path.parent.name for path in RESULTS.glob("paper*/cells.csv")]
    folders = sorted(
        name for name in printed if name == "paper" or name.startswith(("paper-fmnist-", "paper-cifar10-"))
    )
    given = (points, percent, so, power, needed, theirs, answer, share_interval, Cells, Comparisons, Configuration)
    words = (lines, all_below, level_in, within_third, same_gini)
    return environment.from_string(template).render(
        **{function.__name__: function for function in (*given, *words)},
        **{
            "abs": abs,
            "all": all,
            "max": max,
            "min": min,
            "len": len,
            "log": log,
            "sum": sum,
            "zip": zip,
            "fmean": fmean,
        },
        paper=folders,
    )


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(render(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
