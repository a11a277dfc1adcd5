"""Numbers that claims are about, each computed from one replication: means, gaps, medians, win counts, trends.

A measure reads only configurations in which everything it needs is there, and says which those were. On the paper's
tables there is one replication; on our runs a measure gives one number per seed, and only those are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from .results import Configuration, ResultSet

EQUAL = 1e-9  # differences below this are ties: the tables have four decimals
Where = Callable[[Configuration], bool]


def everywhere(configuration: Configuration) -> bool:
    """No restriction."""
    return True


@dataclass(frozen=True)
class Slice:
    """One replication on the configurations that are complete."""

    results: ResultSet
    seed: int
    configurations: tuple[Configuration, ...]

    def get(self, configuration: Configuration, method: str, metric: str) -> float:
        """A number; it is known to be there."""
        value = self.results.value(configuration, method, metric, self.seed)
        assert value is not None
        return value

    def column(self, method: str, metric: str) -> list[float]:
        """One number per configuration."""
        return [self.get(c, method, metric) for c in self.configurations]

    def gaps(self, metric: str, a: str, b: str) -> list[float]:
        """a - b in each configuration."""
        return [x - y for x, y in zip(self.column(a, metric), self.column(b, metric), strict=True)]


@dataclass(frozen=True)
class MeasuredValue:
    """A measure's value and where it comes from."""

    value: float
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True)
class Measure:
    """One number of one replication."""

    name: str
    needs: tuple[tuple[str, str], ...]  # (method, metric)
    compute: Callable[[Slice], float | None]
    unit: str = ""  # "points", "%" or nothing
    where: Where = everywhere

    def complete(self, results: ResultSet, seed: int) -> tuple[Configuration, ...]:
        """The configurations of a seed that have all this measure needs."""
        return tuple(
            c
            for c in results.configurations
            if self.where(c) and all(results.value(c, m, k, seed) is not None for m, k in self.needs)
        )

    def at(self, results: ResultSet, seed: int, only: Sequence[Configuration] | None = None) -> MeasuredValue | None:
        """The value in one replication, or None where cells are missing."""
        found = self.complete(results, seed)
        kept = found if only is None else tuple(c for c in found if c in only)
        value = self.compute(Slice(results, seed, kept)) if kept else None
        return None if value is None else MeasuredValue(value, kept)

    def on(self, where: Where, said: str) -> Measure:
        """The same measure on some configurations only; `said` names them."""
        return replace(self, where=lambda c: self.where(c) and where(c), name=f"{self.name} {said}")

    def show(self, value: float) -> str:
        """The value with its unit."""
        if self.unit == "points":
            return f"{value:+.2f} points"
        return f"{value:.2f} %" if self.unit == "%" else f"{value:.4f}".rstrip("0").rstrip(".")


def column(method: str, metric: str, *, percent: bool = False) -> Measure:
    """Mean over configurations."""
    scale, unit = (100, "%") if percent else (1, "")
    name = f"mean {metric} of {method}"
    return Measure(name, ((method, metric),), lambda s: scale * fmean(s.column(method, metric)), unit)


def gap(metric: str, a: str | Iterable[str], b: str | Iterable[str]) -> Measure:
    """Mean over configurations of a - b in points; several methods are averaged."""
    left, right = _several(a), _several(b)
    needs = tuple((m, metric) for m in (*left, *right))
    name = f"mean {metric} of {' and '.join(left)} minus {' and '.join(right)}"
    return Measure(name, needs, lambda s: 100 * (_mean(s, left, metric) - _mean(s, right, metric)), "points")


def median_gap(metric: str, a: str, b: str = "rg") -> Measure:
    """Median over configurations of a - b in points."""
    name = f"median {metric} of {a} minus {b}"
    return Measure(name, _needs(metric, a, b), lambda s: 100 * median(s.gaps(metric, a, b)), "points")


def extreme(metric: str, method: str, pick: Callable[[Iterable[float]], float], against: str | None = None) -> Measure:
    """The largest or smallest value (or gap to `against`) over configurations, in per cent or points."""

    def compute(s: Slice) -> float:
        return 100 * pick(s.column(method, metric) if against is None else s.gaps(metric, method, against))

    name = f"{pick.__name__} {metric} of {method}" + (f" minus {against}" if against else "")
    return Measure(name, _needs(metric, method, against), compute, "%" if against is None else "points")


def wins(metric: str, a: str, *others: str, ties: bool = False) -> Measure:
    """In how many configurations a is above each of the others (`ties`: or level with it)."""
    slack = -EQUAL if ties else EQUAL

    def compute(s: Slice) -> float:
        return sum(all(s.get(c, a, metric) - s.get(c, b, metric) > slack for b in others) for c in s.configurations)

    name = f"configurations with {metric} of {a} {'at least' if ties else 'above'} {' and '.join(others)}"
    return Measure(name, _needs(metric, a, *others), compute)


def win_share(metric: str, a: str, *others: str) -> Measure:
    """In which share of the configurations a is above each of the others, ties half, minus one half."""

    def score(s: Slice, c: Configuration) -> float:
        worst = min(s.get(c, a, metric) - s.get(c, b, metric) for b in others)
        return 0.5 if abs(worst) <= EQUAL else float(worst > 0)

    def compute(s: Slice) -> float:
        return 100 * (fmean(score(s, c) for c in s.configurations) - 0.5)

    name = f"share of configurations with {metric} of {a} above {' and '.join(others)}, minus one half"
    return Measure(name, _needs(metric, a, *others), compute, "points")


def best_in(metric: str, a: str, others: Sequence[str], *, strict: bool) -> Measure:
    """In how many configurations a is the best of all; `strict`: alone."""
    rest = tuple(m for m in others if m != a)
    made = wins(metric, a, *rest, ties=not strict)
    return replace(made, name=f"configurations in which {a} is {'alone ' if strict else ''}best on {metric}")


def matched(metric: str, method: str, pick: Callable[[Iterable[float]], float] = fmean) -> Measure:
    """ER minus BA at equal data set and alpha, in points: their mean (or `pick`)."""

    def compute(s: Slice) -> float | None:
        there = set(s.configurations)
        pairs = [(c, c._replace(topology="ba")) for c in there if c.topology == "er"]
        found = [s.get(e, method, metric) - s.get(b, method, metric) for e, b in pairs if b in there]
        return 100 * pick(found) if found else None

    name = f"{'mean' if pick is fmean else pick.__name__} over matched pairs of {metric} of {method}, ER minus SF"
    return Measure(name, ((method, metric),), compute, "points")


def trend(metric: str, method: str, against: str | None = None) -> Measure:
    """Value at the largest alpha minus value at the smallest, in points, mean over (data set, topology)."""

    def compute(s: Slice) -> float | None:
        ladders = [values for values in _ladders(s, metric, method, against) if len(values) > 1]
        return 100 * fmean(values[-1] - values[0] for values in ladders) if ladders else None

    name = (
        f"rise of {metric} of {method}{f' minus {against}' if against else ''} from the smallest alpha to the largest"
    )
    return Measure(name, _needs(metric, method, against), compute, "points")


def smallest_step(metric: str, method: str) -> Measure:
    """The smallest step from one alpha to the next over all (data set, topology): positive iff monotone everywhere."""

    def compute(s: Slice) -> float | None:
        steps = [
            b - a for values in _ladders(s, metric, method, None) for a, b in zip(values, values[1:], strict=False)
        ]
        return 100 * min(steps) if steps else None

    name = f"smallest step of {metric} of {method} from one alpha to the next"
    return Measure(name, ((method, metric),), compute, "points")


def _ladders(s: Slice, metric: str, method: str, against: str | None) -> list[list[float]]:
    """For every (data set, topology) the values by rising alpha."""
    ladders: dict[tuple[str, str], list[float]] = {}
    for c in sorted(s.configurations, key=lambda c: c.alpha):
        value = s.get(c, method, metric) - (s.get(c, against, metric) if against else 0.0)
        ladders.setdefault((c.dataset, c.topology), []).append(value)
    return list(ladders.values())


def _needs(metric: str, *methods: str | None) -> tuple[tuple[str, str], ...]:
    return tuple((m, metric) for m in methods if m is not None)


def _several(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _mean(s: Slice, methods: Sequence[str], metric: str) -> float:
    return fmean(v for m in methods for v in s.column(m, metric))
