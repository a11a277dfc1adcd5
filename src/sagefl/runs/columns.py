"""Every column of the tables that a run writes, declared once: its type, meaning, source, and how it adds up.

All else follows from here: the schemas of the files, the row of a round, a swarm's rows from those of its nodes, the
headings of comparisons and of the page, `sagefl columns` and the reference. Columns of the audit that describe the last
look are the documented fields of `Stage`.

A metric of your own is one `Column` that `register` adds, or that a package names in the entry-point group
`sagefl.metrics`:

    register(Column("spread", "std of the clients' own accuracies", lambda e: e.client.std(), combine="mean"))
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from ..references import METRICS as GROUP
from ..references import installed
from ..selection import Outcome, Reason
from ..selection.outcome import Stage, Traffic

if TYPE_CHECKING:
    from ..selection.selector import Hood

Floats = npt.NDArray[np.float64]
Writer = Literal["private", "node", "world", "clock", "async", "values", "named", "memory"]
WRITERS: Mapping[Writer, str] = {
    "private": "simulated runs with private answers",
    "node": "nodes",
    "world": "simulated runs with a [world] section or somebody who misbehaves",
    "clock": "simulated runs with a [clock] section",
    "async": "simulated runs with clock.schedule = async",
    "values": "regression",
    "named": "simulated runs whose clients are owners with names",
    "memory": "rules that remember",
}
"""Who writes columns that others do not have."""
Source = TypeVar("Source", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[Source]):
    """One column of a table."""

    name: str
    meaning: str
    value: Callable[[Source], Any] | None = None  # from what the row is about; None: whoever writes the row gives it
    dtype: Any = pl.Float64  # polars' type
    combine: Literal["", "mean", "min", "max", "sum"] = ""  # decisions into a round's row, nodes' rounds into a swarm's
    unit: str = ""
    title: str = ""  # heading where results are shown; without one it stays in the files
    format: str = ".4f"  # of shown numbers; Python and the page's charts read it alike
    only: Writer | None = None  # None: every run has it

    @property
    def explained(self) -> str:
        """Its meaning, and which runs have it where not all do."""
        return f"{self.meaning} ({WRITERS[self.only]} only)" if self.only else self.meaning


# What a row is about --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """The full predictors of some clients on the shared test set and on each client's own evaluation samples."""

    accuracy: Floats  # per client, on the test images
    f1: Floats  # per client, macro over classes
    client: Floats  # per client, on its own evaluation samples
    ce: Floats  # per client, clipped cross-entropy there

    def summary(self, prefix: str = "") -> dict[str, float]:
        """Every metric of these predictors."""
        return _summary(self, known_metrics(), prefix)

    @property
    def good(self) -> Floats:
        """What mixing should raise: the accuracy on one's own samples."""
        return self.client


@dataclass(frozen=True)
class Errors:
    """The same of predictors of values: per client, how far off they are."""

    mae: Floats  # mean absolute error on the test samples
    rmse: Floats  # root of the mean squared error there
    r2: Floats  # share of the test targets' variance that is explained
    client: Floats  # mean absolute error on one's own evaluation samples
    clipped: Floats  # mean clipped error there, in units of the clip

    def summary(self, prefix: str = "") -> dict[str, float]:
        """Every metric of these predictors."""
        return _summary(self, known_metrics(values=True), prefix)

    @property
    def good(self) -> Floats:
        """What mixing should raise: the error on one's own samples, turned round."""
        return -self.client


def evaluation(measured: Mapping[str, Floats]) -> Evaluation | Errors:
    """What was measured, by its names."""
    return Errors(**measured) if "mae" in measured else Evaluation(**measured)


def _summary(found: Any, metrics: Collection[Column[Any]], prefix: str) -> dict[str, float]:
    return {f"{prefix}{metric.name}": float(metric.value(found)) for metric in metrics if metric.value}


class Evaluated(NamedTuple):
    """The evaluations of one round: of the trained models, and of the mixed ones."""

    before: Evaluation | Errors
    after: Evaluation | Errors

    def rows(self, round: int, clients: Sequence[int]) -> list[dict[str, Any]]:
        """Its rows of the table of clients."""
        known = columns("clients", *(("values",) if isinstance(self.after, Errors) else ()))
        values = {c.name: np.asarray(c.value(self)).tolist() for c in known if c.value is not None}
        return [
            {"round": round, "client": client} | {name: of_all[i] for name, of_all in values.items()}
            for i, client in enumerate(clients)
        ]


@dataclass(frozen=True)
class Decided:
    """One decision and what it cost."""

    round: int
    client: int
    hood: Hood
    outcome: Outcome
    traffic: Traffic

    def row(self) -> dict[str, Any]:
        """Its row of the audit; columns that others fill are null."""
        return {column.name: column.value and column.value(self) for column in columns("decisions", "memory")}

    @property
    def weights(self) -> list[float] | None:
        """Weights of the chosen peers, where the rule sets them."""
        given = self.outcome.weights
        return None if given is None else [given[peer] for peer in self.outcome.peers]

    def last(self, name: str) -> Any:
        """What the last look at the evidence says; None where there was none."""
        return getattr(self.outcome.trace[-1], name) if self.outcome.trace else None


# The tables -----------------------------------------------------------------------------------------------------------

_KINDS = {"str": pl.String, "int": pl.Int32, "float": pl.Float64, "tuple[float, ...]": pl.List(pl.Float64)}
LAST_LOOK: tuple[Column[Decided], ...] = tuple(
    Column(
        f.name,
        f.metadata["meaning"],
        methodcaller("last", f.name),
        _KINDS[str(f.type).removesuffix(" | None")],
        only=f.metadata["only"],
    )
    for f in sorted(fields(Stage), key=lambda f: f.name not in ("test", "risks", "advantage", "gap"))
    if "meaning" in f.metadata
)
"""What the audit keeps of a decision's last stage; sorted, because files had these four first before `Stage` did."""

_MOMENTS = {
    "began_at": "virtual time at which the client began to train",
    "trained_at": "virtual time at which it had trained",
    "decided_at": "virtual time at which it knew with whom to exchange",
    "ended_at": "virtual time at which it had exchanged",
    "waited": "time in which it waited for peers that were still training",
}

ROUND: Column[Any] = Column("round", "number of the round, from 0", dtype=pl.Int32)
CLIENT: Column[Any] = Column("client", "number of the client", dtype=pl.Int32)
OWNER: Column[Any] = Column("owner", "name of the client", dtype=pl.String, only="named")
_TIMES: tuple[Column[Decided], ...] = tuple(
    Column(name, meaning, unit="s", only="clock") for name, meaning in _MOMENTS.items()
)
DECISIONS: tuple[Column[Decided], ...] = (
    replace(ROUND, value=lambda d: d.round),
    replace(CLIENT, value=lambda d: d.client),
    Column("degree", "active neighbours", lambda d: len(d.hood.peers), pl.Int32, "sum", title="neighbours"),
    Column("pool", "anchors that the client has", lambda d: d.hood.anchors, pl.Int32),
    Column("peers", "the active neighbours", lambda d: d.hood.peers, pl.List(pl.Int32)),
    Column("chosen", "the peers it exchanged with", lambda d: d.outcome.peers, pl.List(pl.Int32)),
    Column("weights", "of the chosen; null: the run's mixing coefficient", lambda d: d.weights, pl.List(pl.Float64)),
    Column("direction", "pull or push", lambda d: d.outcome.direction, pl.String),
    Column("selected", "true: chosen by evidence; false: drawn", lambda d: d.outcome.selected, pl.Boolean),
    Column("reason", "why the decision ended", lambda d: d.outcome.reason.value, pl.String),
    Column("anchors", "anchors of the last look", lambda d: d.outcome.anchors, pl.Int32),
    Column("evaluations", "answers paid for", lambda d: d.outcome.evaluations, pl.Int32, "sum", title="evaluations"),
    Column("stages", "looks at the evidence", lambda d: len(d.outcome.trace), pl.Int32),
    *LAST_LOOK,
    Column("ever", "peers that can ever be neighbours", lambda d: d.hood.ever, pl.Int32, only="memory"),
    Column("price", "bytes of one answer with its question, in models", lambda d: d.hood.price, only="memory"),
    Column("mine", "how often the own model errs on the pool", lambda d: d.hood.mine, only="memory"),
    Column("inspected", "peers whose full model was moved to look at it", lambda d: len(d.outcome.inspected), pl.Int32),
    Column("merged", "models merged", lambda d: d.traffic.merged, pl.Int32, "sum"),
    Column("transferred", "models moved", lambda d: d.traffic.transferred, pl.Int32, "sum"),
    Column(
        "probe_input_bytes", "anchors sent", lambda d: d.traffic.probe_inputs, pl.Int64, "sum", "bytes", "probe inputs"
    ),
    Column(
        "probe_answer_bytes", "answers", lambda d: d.traffic.probe_answers, pl.Int64, "sum", "bytes", "probe answers"
    ),
    Column("model_bytes", "models moved", lambda d: d.traffic.models, pl.Int64, "sum", "bytes", "models"),
    Column("control_bytes", "small things read", lambda d: d.traffic.control, pl.Int64, "sum", "bytes", "control"),
    Column("eval_pulled_risk", "how often the pulled peers err on the client's evaluation samples"),
    Column("eval_gossip_risk", "the same for a random draw: the mean over the active neighbours"),
    Column("eval_gain", "what mixing added to the client's accuracy on its evaluation samples"),
    Column("eval_risks", "each peer's risk there, scored as the rule scores its probes", dtype=pl.List(pl.Float64)),
    Column("restarts", "times the decision began anew because a peer failed", dtype=pl.Int32, only="node"),
    Column("lost", "peers that failed", dtype=pl.List(pl.Int32), only="node"),
    Column("digest", "SHA-256 of the merged models, comma-separated", dtype=pl.String, only="node"),
    Column("rejected", "models that were moved and refused", dtype=pl.Int32, only="node"),
    Column("rolled_back", "1 if the merge did harm on unseen samples and was taken back", dtype=pl.Int32, only="node"),
    *_TIMES,
    Column("awaited", "the peer it waited for longest; null: for nobody", dtype=pl.Int32, only="clock"),
    Column("turn", "number of the client's own round, from 0", dtype=pl.Int32, only="async"),
    Column("ages", "seconds since each peer had published", dtype=pl.List(pl.Float64), only="async"),
    OWNER,
    Column("chosen_owners", "names of the chosen", dtype=pl.List(pl.String), only="named"),
)
BYTES = tuple(column.name for column in DECISIONS if column.unit == "bytes")


def _metric(name: str, meaning: str, of: str, title: str = "", combine: Literal["mean", "min", "max"] = "mean") -> Any:
    """What the clients' values of one measure come down to."""
    return Column(name, meaning, lambda e: getattr(getattr(e, of), combine)(), combine=combine, title=title)


_BUILT_IN: tuple[Column[Evaluation], ...] = (
    _metric("accuracy", "accuracy on the shared test set", "accuracy", "accuracy"),
    _metric("macro_f1", "macro-F1 on the shared test set", "f1", "macro F1"),
    _metric("client", "accuracy on clients' own data", "client", "client"),
    _metric("weak", "the worst client's accuracy on its own data", "client", "weak", "min"),
    _metric("client_ce", "clipped cross-entropy on clients' own data", "ce"),
)
METRICS = {metric.name: metric for metric in _BUILT_IN}
"""What an evaluation comes down to, in the mean over clients unless it says otherwise; before mixing and after it."""

OF_VALUES: tuple[Column[Errors], ...] = (
    _metric("mae", "mean absolute error on the shared test set", "mae", "MAE"),
    _metric("rmse", "root mean squared error on the shared test set", "rmse", "RMSE"),
    _metric("r2", "share of variance explained on the shared test set", "r2", "R2"),
    _metric("client_mae", "mean absolute error on clients' own data", "client", "client MAE"),
    _metric("weak_mae", "the worst client's mean absolute error on its own data", "client", "weak MAE", "max"),
    _metric("client_clipped", "clipped error on clients' own data, in units of the clip", "clipped"),
)
"""The same where models predict values; accuracy and F1 mean nothing there."""
LEADING = {"accuracy": ("accuracy", "client"), "mae": ("mae", "client_mae")}
"""The two metrics that results are told by, on the test set and on clients' own data, by the first of them."""

OF_GROUP = {
    "accuracy": ("group accuracy", "accuracy on the test set of one's own group"),
    "macro_f1": ("group F1", "macro-F1 on the test set of one's own group"),
}
"""What two metrics are where clients come in groups: the shared test set would contradict itself."""

CLIENTS: tuple[Column[Evaluated], ...] = (
    ROUND,
    CLIENT,
    Column("accuracy", "accuracy on the shared test set", lambda e: e.after.accuracy),  # type: ignore[union-attr]
    Column("macro_f1", "macro-F1 on the shared test set", lambda e: e.after.f1),  # type: ignore[union-attr]
    Column("own_accuracy", "accuracy on the client's own evaluation samples", lambda e: e.after.client),
    Column("own_accuracy_before", "the same before mixing", lambda e: e.before.client),
    OWNER,
)

CLIENTS_OF_VALUES: tuple[Column[Evaluated], ...] = (
    ROUND,
    CLIENT,
    Column("mae", "mean absolute error on the shared test set", lambda e: e.after.mae),  # type: ignore[union-attr]
    Column("r2", "share of variance explained on the shared test set", lambda e: e.after.r2),  # type: ignore[union-attr]
    Column("own_mae", "mean absolute error on the client's own evaluation samples", lambda e: e.after.client),
    Column("own_mae_before", "the same before mixing", lambda e: e.before.client),
    OWNER,
)

_PHASES = {
    "train": "local training",
    "decide": "decisions and all that they ask for",
    "mix": "mixing",
    "evaluate": "evaluation",
    "record": "writing the tables",
    "checkpoint": "writing the checkpoint",
}
TIMINGS: tuple[Column[Any], ...] = (
    ROUND,
    *(Column(name, meaning, combine="mean", unit="s") for name, meaning in _PHASES.items()),
    Column("neighbours", "finding out who is there", combine="mean", unit="s", only="node"),
)

_EPSILONS = {
    "epsilon_answer": "epsilon of one answer",
    "epsilon_round": "epsilon given away this round by the worst-off client, to all receivers together",
    "epsilon_round_pair": "the same, to a single receiver",
    "epsilon_total": "epsilon given away so far by the worst-off client, to all receivers together",
    "epsilon_total_pair": "the same, to a single receiver",
}


def _rounds(measured: Collection[Column[Any]]) -> tuple[Column[Any], ...]:
    """The columns of `metrics`: training, the decisions added up and their reasons counted, what was measured."""
    summed = [c for c in DECISIONS if c.combine == "sum"]
    return (
        ROUND,
        Column("train_loss", "training loss, mean over clients", combine="mean", title="training loss"),
        Column("samples", "training samples seen", dtype=pl.Int64, combine="sum"),
        *(replace(c, meaning=f"{c.meaning}, summed over clients", dtype=pl.Int64) for c in summed),
        *(Column(f"reason_{r}", f"decisions with reason {r}", dtype=pl.Int64, combine="sum") for r in Reason),
        *measured,
        *(replace(m, name=f"before_{m.name}", meaning=f"{m.meaning}, before mixing", title="") for m in measured),
        Column("test_images", "test images evaluated on", dtype=pl.Int32, combine="mean"),
        Column("diversity", "1 - mean linear CKA of two clients' representations", combine="mean", title="diversity"),
        Column("pull_gini", "Gini of pulls per client since the last evaluation", combine="mean", title="pull Gini"),
        *(Column(name, meaning, combine="max", only="private") for name, meaning in _EPSILONS.items()),
        Column("kin", "share of merged models from one's own group", None, combine="mean", title="kin", only="world"),
        Column(
            "culprits",
            "share of merged models from peers that misbehave or have noisy labels",
            None,
            combine="mean",
            title="culprits",
            only="world",
        ),
        Column(
            "minutes",
            "virtual time at which the last exchange of the round had ended",
            None,
            combine="max",
            unit="min",
            title="minutes",
            format=".2f",
            only="clock",
        ),
        Column("wire_bytes", "all messages", None, pl.Int64, "sum", "bytes", "messages", only="node"),
        Column("restarts", "times a decision began anew because a peer failed", None, pl.Int32, "sum", only="node"),
    )


TABLES = {
    "metrics": "a row per round; evaluations are means over clients unless they say otherwise, null in between",
    "decisions": "the audit: a row per client and round",
    "clients": "a row per client and evaluation",
    "timings": "seconds by phase, a row per round",
}


def columns(table: str, *writers: Writer) -> tuple[Column[Any], ...]:
    """The columns of a table: those of every run, and those that only these writers have."""
    values = "values" in writers
    known: dict[str, tuple[Column[Any], ...]] = {"decisions": DECISIONS, "timings": TIMINGS}
    known["clients"] = CLIENTS_OF_VALUES if values else CLIENTS
    of_table = _rounds(known_metrics(values=values)) if table == "metrics" else known[table]
    return tuple(column for column in of_table if column.only in (None, *writers))


def every_column(table: str) -> tuple[Column[Any], ...]:
    """The columns that any run may have in a table, those of regression last."""
    usual = columns(table, *(writer for writer in WRITERS if writer != "values"))
    known = {column.name for column in usual}
    of_values = (column for column in columns(table, "values") if column.name not in known)
    return (*usual, *(replace(column, only="values") for column in of_values))


def schema(table: str, *writers: Writer) -> pl.Schema:
    """The names and types of a table's columns."""
    return pl.Schema({column.name: column.dtype for column in columns(table, *writers)})


def shown(*writers: Writer) -> tuple[Column[Any], ...]:
    """The columns of a round that results are shown by."""
    return tuple(column for column in columns("metrics", *writers) if column.title)


# Metrics from outside -------------------------------------------------------------------------------------------------

_TAKEN = frozenset(column.name for column in (*_rounds(_BUILT_IN), *OF_VALUES))


def leading(known: Collection[str]) -> tuple[str, str]:
    """The metrics that a table with these columns is told by: on the test set, and on clients' own data."""
    return LEADING["accuracy" if "accuracy" in known or "mae" not in known else "mae"]


def known_metrics(*, grouped: bool = False, values: bool = False) -> tuple[Column[Any], ...]:
    """What an evaluation comes down to, other packages' metrics included.

    `grouped`: as it is called among groups; `values`: where models predict values, for which others add a metric by
    `only="values"`.
    """
    _discover()
    found = tuple(m for m in METRICS.values() if (m.only == "values") == values)
    if values:
        return (*OF_VALUES, *found)
    if not grouped:
        return found
    plain = {m.name: (m.title, m.meaning) for m in found} | OF_GROUP
    return tuple(replace(m, title=plain[m.name][0], meaning=plain[m.name][1]) for m in found)


def register(metric: Column[Any]) -> None:
    """Add a metric to every run from now on; one that was registered under the same name is replaced."""
    if not isinstance(metric, Column) or metric.value is None or not metric.combine:
        raise ValueError(f"a metric is a Column with a value and a way to combine several nodes', got {metric!r}")
    if metric.name in _TAKEN or metric.name.startswith("before_"):
        raise ValueError(f"every run has a column {metric.name!r} already: give the metric another name")
    METRICS[metric.name] = metric


@cache
def _discover() -> None:
    for point in installed(GROUP):
        try:
            register(point.load())
        except Exception as error:  # somebody else's broken package must not take the built-in ones away
            warnings.warn(f"metric {point.name!r} of {point.value} is left out: {error}", stacklevel=2)
