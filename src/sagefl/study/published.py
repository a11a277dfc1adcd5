"""The paper's three tables, shipped as CSV, and the few numbers that are printed in its text only.

Source: K. Xiao, Q. Wang, C. Anagnostopoulos, "SAGE: Optimal-Stopping Peer Selection for Decentralised Federated
Learning": tab:perf (performance.csv), tab:client (clients.csv) and tab:evidence (evidence.csv), cell by cell. Each is
a single run; the paper gives no dispersion. CommOH stands in the text (RQ1) as one number per method.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import resources

from ..runs.config import RunConfig
from .results import Configuration, Result, ResultSet

SEED = 0  # under which the paper's single runs are filed
COMM_OH = {"pens": 1.784, "pfeddst": 1.980} | dict.fromkeys(("rg", "aq-128", "sage-nf", "sage-vanilla", "sage-os"), 1.0)
STAND_INS = {"fmnist-mini": "fmnist"}  # what a data set is set beside in tables, at another scale
READINGS = {"sage-os-table": "sage-os"}  # both readings of the cost rule stand beside the same published column

_FILES = {
    "performance": {"global_accuracy": "accuracy", "macro_f1": "macro_f1"},
    "clients": {"client_accuracy": "client", "weak_accuracy": "weak"},
}
_EVIDENCE = {  # column of evidence.csv, in per cent -> (method, metric)
    "aq128_budget": ("aq-128", "budget"),
    "vanilla_budget": ("sage-vanilla", "budget"),
    "sageos_budget": ("sage-os", "budget"),
    "vanilla_stop128": ("sage-vanilla", "stop_128"),
    "vanilla_rg_fallback": ("sage-vanilla", "rg_fallback"),
    "sageos_stop32": ("sage-os", "stop_32"),
    "sageos_stop128": ("sage-os", "stop_128"),
    "sageos_cost_rg": ("sage-os", "cost_rg"),
}


@cache
def published() -> ResultSet:
    """The paper's tables."""
    values: dict[tuple[Configuration, str], dict[str, float]] = defaultdict(dict)
    for name, metrics in _FILES.items():
        for row in _read(name):
            cell = values[_configuration(row), row["method"]]
            cell |= {metric: float(row[column]) for column, metric in metrics.items()}
    for row in _read("evidence"):
        for column, (method, metric) in _EVIDENCE.items():
            values[_configuration(row), method][metric] = float(row[column]) / 100
    for (_, method), cell in values.items():
        cell |= _implied(method, cell)
    return ResultSet(Result(configuration, method, SEED, cell) for (configuration, method), cell in values.items())


def counterpart(configuration: Configuration) -> Configuration:
    """The published configuration that ours stands beside."""
    return configuration._replace(dataset=STAND_INS.get(configuration.dataset, configuration.dataset))


def as_large_as_printed(config: RunConfig) -> bool:
    """Whether a run is trained as the printed ones, which is what a config says by default, and on the printed data."""
    scales = [(c.clients, c.rounds, c.training, c.model) for c in (config, RunConfig())]
    return scales[0] == scales[1] and config.data.dataset not in STAND_INS


def counterpart_method(method: str) -> str:
    """The published column that a method of ours stands beside."""
    return READINGS.get(method, method)


def _implied(method: str, cell: dict[str, float]) -> dict[str, float]:
    """What the paper defines as complements (eq:probesaving; "the complement of the RG-fallback rate")."""
    implied = {"comm_oh": COMM_OH[method]} if method in COMM_OH else {}
    if "budget" in cell:
        implied["saving"] = 1 - cell["budget"]
    if "rg_fallback" in cell:
        implied["certified"] = 1 - cell["rg_fallback"]
    return implied


def _read(name: str) -> Iterator[dict[str, str]]:
    source = resources.files("sagefl.study") / "published" / f"{name}.csv"
    with source.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _configuration(row: dict[str, str]) -> Configuration:
    return Configuration(row["dataset"], row["topology"], float(row["alpha"]))
