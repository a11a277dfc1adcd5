"""One form for results, the paper's and ours: a number for every (configuration, method, seed, metric).

The paper's tables are results with a single seed, so tables, figures and tests of claims read both the same way.
Rates and shares are fractions of one here; only what people read is in per cent or points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .errors import StudyError

DATASETS = {"fmnist": "FMNIST", "cifar10": "CIFAR-10", "fmnist-mini": "FMNIST-mini"}
TOPOLOGIES = {"ba": "SF", "er": "ER"}
ALPHAS = (0.05, 0.1, 0.3)
METHODS = {
    "local": "LOCAL",
    "rg": "RG",
    "pens": "PENS",
    "pfeddst": "PFedDST",
    "aq-128": "AQ-128",
    "sage-nf": "SAGE-NF",
    "sage-vanilla": "Vanilla",
    "sage-os": "SAGE-OS",
    "sage-os-table": "SAGE-OS cum.",
    "d-psgd": "D-PSGD",
    "average-all": "Average",
}
UPPER = ("d-psgd", "average-all")  # what more than one model a round gives; they compete with nobody
PAPER_METHODS = tuple(
    m for m in METHODS if m not in (*UPPER, "sage-os-table")
)  # the latter is our reading of its table


class Configuration(NamedTuple):
    """One row of a table: a world that all methods are run in."""

    dataset: str
    topology: str
    alpha: float
    world: str = ""  # its name, where a study gives it one

    def __str__(self) -> str:
        return self.world or f"{self.dataset}/{self.topology}/{self.alpha:g}"

    @property
    def keys(self) -> tuple[str, ...]:
        """What tells it from others: its name, or else data set, topology and alpha."""
        return (self.world,) if self.world else (self.dataset, self.topology, str(self.alpha))

    @property
    def labels(self) -> tuple[str, ...]:
        """The same as the paper prints it."""
        if self.world:
            return (self.world,)
        return (
            DATASETS.get(self.dataset, self.dataset),
            TOPOLOGIES.get(self.topology, self.topology.upper()),
            f"{self.alpha:.2f}",
        )


def show_method(method: str) -> str:
    """A method's name as the paper prints it."""
    return METHODS.get(method, method)


@dataclass(frozen=True)
class Result:
    """What one run came to."""

    configuration: Configuration
    method: str
    seed: int
    values: Mapping[str, float]


class ResultSet:
    """Many runs, looked up by configuration, method and seed."""

    def __init__(self, rows: Iterable[Result] = ()) -> None:
        self.rows = tuple(rows)
        self._found = {(r.configuration, r.method, r.seed): r.values for r in self.rows}
        if len(self._found) < len(self.rows):
            keys = [(r.configuration, r.method, r.seed) for r in self.rows]
            twice = next(k for k in keys if keys.count(k) > 1)
            raise StudyError(f"two results for {twice[0]} {twice[1]} seed {twice[2]}: they are of different scale")

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """In the paper's order, others after it; those with names as they come."""
        return tuple(sorted(dict.fromkeys(r.configuration for r in self.rows), key=_configuration_order))

    @property
    def methods(self) -> tuple[str, ...]:
        """In the paper's order, others after it."""
        order = {m: i for i, m in enumerate(METHODS)}
        return tuple(sorted({r.method for r in self.rows}, key=lambda m: (order.get(m, len(order)), m)))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in ascending order."""
        return tuple(sorted({r.seed for r in self.rows}))

    def value(self, configuration: Configuration, method: str, metric: str, seed: int) -> float | None:
        """One number, or None where there is none."""
        return self._found.get((configuration, method, seed), {}).get(metric)

    def by_seed(self, configuration: Configuration, method: str, metric: str) -> dict[int, float]:
        """The replications of one number."""
        found = {seed: self.value(configuration, method, metric, seed) for seed in self.seeds}
        return {seed: value for seed, value in found.items() if value is not None}

    def paired(self, configuration: Configuration, a: str, b: str, metric: str) -> list[float]:
        """a - b in every seed that has both."""
        ours, theirs = self.by_seed(configuration, a, metric), self.by_seed(configuration, b, metric)
        return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]

    def of_seed(self, seed: int) -> ResultSet:
        """One replication."""
        return ResultSet(r for r in self.rows if r.seed == seed)


def _configuration_order(c: Configuration) -> tuple[int, str, int, str, float]:
    datasets, topologies = list(DATASETS), list(TOPOLOGIES)
    if c.world:
        return len(datasets), "", 0, "", 0.0
    return (
        datasets.index(c.dataset) if c.dataset in datasets else len(datasets),
        c.dataset,
        topologies.index(c.topology) if c.topology in topologies else len(topologies),
        c.topology,
        c.alpha,
    )
