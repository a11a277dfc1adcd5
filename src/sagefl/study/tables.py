"""The paper's three tables with our numbers beside them, and two that it does not have: traffic and time.

Every entry is a measured mean over seeds with its standard error, the published number, and the difference. Means over
configurations are taken within a seed first (the seed is the unit), and published means over the same configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from ..methods.fidelity import caveats, ranked
from ..runs.intervals import Estimate, estimate
from .published import SEED, counterpart, counterpart_method
from .results import UPPER, Configuration, ResultSet, show_method


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: one metric of one method, and how it is shown."""

    method: str
    metric: str
    group: str
    head: str
    percent: bool = False
    best: str = ""  # "max" or "min": the group's best entry of a row is marked
    digits: int = 4

    def show(self, value: float, *, signed: bool = False) -> str:
        """A value as the paper prints it; differences of shares are in points."""
        sign = "+" if signed else ""
        if self.percent:
            return f"{100 * value:{sign}.{self.digits}f}" + ("" if signed else "%")
        return f"{value:{sign}.{self.digits}f}"


@dataclass(frozen=True)
class Entry:
    """Our number and the published one."""

    measured: Estimate | None
    published: float | None

    @property
    def difference(self) -> float | None:
        """Ours minus theirs."""
        if self.measured is None or self.published is None:
            return None
        return self.measured.mean - self.published


@dataclass(frozen=True)
class Table:
    """One table as numbers; `render` turns it into text."""

    name: str  # of the files
    title: str
    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Configuration, tuple[Entry, ...]], ...]
    means: tuple[Entry, ...]

    @property
    def has_measured(self) -> bool:
        """Whether anything of ours is in it."""
        return any(e.measured for _, entries in self.rows for e in entries)

    @property
    def has_published(self) -> bool:
        """Whether anything of theirs is in it."""
        return any(e.published is not None for _, entries in self.rows for e in entries)


class TablePlan(NamedTuple):
    """What a table shows, before any numbers are in it."""

    name: str
    title: str
    caption: str
    columns: list[TableColumn]


Layout = Callable[[ResultSet, ResultSet], TablePlan]
"""Plans one table for results of ours and published ones."""


def performance(ours: ResultSet, published: ResultSet) -> TablePlan:
    """Table I of the paper."""
    groups = {"accuracy": "Global accuracy", "macro_f1": "Macro-F1"}
    caption = "Global accuracy and macro-F1 on the shared test set."
    columns = _columns(groups, _methods(ours, published), best="max")
    return TablePlan("table1", "Table I. Predictive performance", caption, columns)


def clients(ours: ResultSet, published: ResultSet) -> TablePlan:
    """Table II of the paper."""
    caption = "Accuracy on clients' own evaluation data: mean (Client) and worst client (Weak)."
    columns = _columns({"client": "Client", "weak": "Weak"}, _methods(ours, published), best="max")
    return TablePlan("table2", "Table II. Client-level accuracy", caption, columns)


def evidence(ours: ResultSet, published: ResultSet) -> TablePlan:
    """Table III of the paper."""
    methods = _methods(ours, published)
    readings = [m for m in ("sage-os", "sage-os-table") if m in methods]
    probing = [m for m in ("aq-128", "sage-nf", "sage-vanilla", *readings) if m in methods]
    columns = [TableColumn(m, "budget", "Budget consumed", show_method(m), True, "min", 2) for m in probing]
    for k, head in (("stop_128", "Stop@128"), ("rg_fallback", "RG fb")):
        columns.append(TableColumn("sage-vanilla", k, "Vanilla SAGE", head, True, digits=1))
    for m in readings:
        for k, head in (("stop_32", "Stop@32"), ("stop_128", "Stop@128"), ("cost_rg", "Cost-RG")):
            columns.append(TableColumn(m, k, show_method(m), head, True, digits=1))
    caption = "Budget consumed is 100% - Saving (eq:probesaving), of nominally 128 anchors per neighbour."
    if len(readings) > 1:
        caption += (
            " SAGE-OS pays the printed, incremental price of the next stage; SAGE-OS cum. the cumulative one. Both "
            "stand beside the same published column."
        )
    return TablePlan("table3", "Table III. Probe budget and stopping behaviour", caption, columns)


def traffic(ours: ResultSet, published: ResultSet) -> TablePlan:
    """What moves over the network."""
    groups = {
        "comm_oh": "CommOH (models moved, RG = 1)",
        "merged": "Models merged per round",
        "mb_models": "Models, MB per client-round",
        "mb_probes": "Probes, MB per client-round",
    }
    caption = (
        "Models merged leaves out models that were moved only to be looked at. Probes are anchor inputs (uint8) and "
        "answers; models are float32."
    )
    return TablePlan("traffic", "Model traffic", caption, _columns(groups, ours.methods, digits=3))


def time(ours: ResultSet, published: ResultSet) -> TablePlan:
    """How long a round takes."""
    groups = {"seconds_decide": "Seconds a round to decide", "seconds_train": "Seconds a round to train"}
    caption = "Wall-clock seconds a round of the whole population, on the machine and under the load of these runs."
    return TablePlan("time", "Time", caption, _columns(groups, ours.methods, digits=2))


TABLES: tuple[Layout, ...] = (performance, clients, evidence, traffic, time)


def build_tables(ours: ResultSet, published: ResultSet, layouts: Sequence[Layout] = TABLES) -> list[Table]:
    """The tables that have anything in them; with no results of ours, the published numbers alone."""
    made = [_filled(layout(ours, published), ours, published) for layout in layouts]
    return [table for table in made if table.has_measured or table.has_published]


def _columns(groups: Mapping[str, str], of: Sequence[str], **shown: Any) -> list[TableColumn]:
    """A group of columns for each metric, a column for each method; the best of those that are ranked is marked."""
    return [
        TableColumn(m, k, group, show_method(m), **(shown if _ranked(m) else shown | {"best": ""}))
        for k, group in groups.items()
        for m in of
    ]


def _ranked(method: str) -> bool:
    """Whether it competes: it is not only inspired by a paper, and no upper row."""
    return method not in UPPER and ranked(method)


def _methods(ours: ResultSet, published: ResultSet) -> tuple[str, ...]:
    return ResultSet((*published.rows, *ours.rows)).methods


def _filled(plan: TablePlan, ours: ResultSet, published: ResultSet) -> Table:
    configurations = ours.configurations or published.configurations
    used = [c for c in plan.columns if any(_has(c, ours, published, at) for at in configurations)]
    rows = [(at, tuple(_entry(c, ours, published, at) for c in used)) for at in configurations]
    means = tuple(_mean(c, ours, published, configurations) for c in used)
    caption = " ".join((plan.caption, *_caveats(used)))
    return Table(plan.name, plan.title, caption, tuple(used), tuple(rows), means)


def _caveats(columns: Sequence[TableColumn]) -> list[str]:
    """Which methods are not quite their papers', and which compete with nobody."""
    shown = list(dict.fromkeys(c.method for c in columns))
    upper = [show_method(m) for m in shown if m in UPPER]
    said = caveats(shown, show_method)
    return [*said, f"Upper rows, many models a round, not ranked: {', '.join(upper)}."] if upper else said


def _has(column: TableColumn, ours: ResultSet, published: ResultSet, at: Configuration) -> bool:
    """A column is shown if we measured it, or, where nothing is ours, if it was published under its own name."""
    if ours:
        return bool(ours.by_seed(at, column.method, column.metric))
    return _theirs(column, published, at) is not None and counterpart_method(column.method) == column.method


def _theirs(column: TableColumn, published: ResultSet, at: Configuration) -> float | None:
    return published.value(counterpart(at), counterpart_method(column.method), column.metric, SEED)


def _entry(column: TableColumn, ours: ResultSet, published: ResultSet, at: Configuration) -> Entry:
    values = list(ours.by_seed(at, column.method, column.metric).values())
    return Entry(estimate(values) if values else None, _theirs(column, published, at))


def _mean(column: TableColumn, ours: ResultSet, published: ResultSet, configurations: Sequence[Configuration]) -> Entry:
    """The column's mean; published means are over the configurations that we measured, where we measured any."""
    measured = [c for c in configurations if ours.by_seed(c, column.method, column.metric)]
    seeds = [ours.by_seed(c, column.method, column.metric) for c in measured]
    shared = set.intersection(*(set(s) for s in seeds)) if seeds else set()
    own = estimate([fmean(s[seed] for s in seeds) for seed in sorted(shared)]) if shared else None
    theirs = [_theirs(column, published, c) for c in (measured or configurations)]
    known = [v for v in theirs if v is not None]
    return Entry(own, fmean(known) if known and len(known) == len(theirs) else None)
