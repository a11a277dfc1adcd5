"""What runs came to, as one object: a table by itself, frames for whoever wants to go on, a plot, a report.

A run that is not finished is shown as of its last evaluated round, apart from the finished runs of its method: its row
is named by that round, and it is in no mean and no difference with them.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import TYPE_CHECKING, Any

import polars as pl

from ..errors import UsageError
from ..methods.fidelity import caveats
from ..runs.columns import LEADING, Column, columns, known_metrics, leading
from ..runs.config import method_label
from ..runs.environment import differing, world_address
from ..runs.headroom import headrooms
from ..runs.intervals import estimate
from ..runs.rundir import RunDirectory, runs_below
from ..runs.summary import gossip_share, summarise
from ..runs.truth import read_truth

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from .plotting import Over

VERSUS = tuple(name for pair in LEADING.values() for name in pair)  # what differences to the first are shown for
LEVEL = 0.95


@dataclass(frozen=True)
class Held:
    """One run: which method it shows, and whether it was read or has just been run."""

    name: str
    directory: RunDirectory
    read: bool = True

    @cached_property
    def label(self) -> str:
        """What it is called: its method, of an unfinished run that and the round."""
        return self.name if self.finished else f"{self.name} (unfinished, {self.standing})"

    @cached_property
    def seed(self) -> int:
        """Its seed."""
        return self.directory.config.seed

    @cached_property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.directory.summary is not None

    @cached_property
    def values(self) -> dict[str, Any]:
        """Its summary, and the share of decisions that ended in gossip; of an unfinished run as of `rounds`."""
        summary, decisions = self.directory.summary, self.directory.table("decisions")
        config = self.directory.config
        if summary is None:
            metrics = self.directory.table("metrics")
            evaluated = metrics.filter(pl.col(leading(metrics.columns)[0]).is_not_null())
            shown = pl.col("round") <= (evaluated if evaluated.height else metrics)["round"].max()
            metrics, decisions = metrics.filter(shown), decisions.filter(shown)
            summary = {"method": config.method.id, **summarise(metrics, decisions)}
        found = {name: value for name, value in summary.items() if name not in ("kin", "culprits")}
        if (truth := read_truth(self.directory.path, config.clients)) is not None:
            pulls = truth.pulls(decisions.select("client", "chosen").iter_rows(named=True))
            told = {"kin": config.world.grouped, "culprits": bool(truth.culprits)}
            found |= {name: share for name, share in pulls.items() if told[name]}
        return {**found, "gossip": gossip_share(decisions)}

    @property
    def standing(self) -> str:
        """How far it is."""
        return f"round {self.values['rounds']} of {self.directory.config.rounds}"


class Results:
    """Runs side by side, by method and seed. It shows itself as a table."""

    def __init__(self, runs: Sequence[Held], notes: Sequence[str] = (), *, loaded: bool = False) -> None:
        self.runs, self.loaded = list(runs), loaded  # loaded: nothing was to be run
        self.methods = list(dict.fromkeys(run.label for run in runs))
        self.seeds = sorted({run.seed for run in runs})
        self._given = list(notes)

    # Numbers ------------------------------------------------------------------------------------------------------

    def of(self, method: str) -> dict[int, Held]:
        """The runs of a method by seed."""
        return {run.seed: run for run in self.runs if run.label == method}

    def frame(self) -> pl.DataFrame:
        """A row per method and seed: whether it is finished, and every number of the summaries."""
        first = ("method", "seed", "finished")
        rows = [{**run.values, "method": run.label, "seed": run.seed, "finished": run.finished} for run in self.runs]
        return pl.DataFrame(rows, infer_schema_length=None).select(*first, pl.exclude(first))

    def rounds(self) -> pl.DataFrame:
        """A row per method, seed and round, rounds from 1: accuracy where evaluated, evidence, traffic, reasons."""
        return self._tables("metrics")

    def decisions(self) -> pl.DataFrame:
        """The audit of every decision, with its method and seed; rounds from 1."""
        return self._tables("decisions")

    def _tables(self, name: str) -> pl.DataFrame:
        found = [
            run.directory.table(name).select(
                pl.lit(run.label).alias("method"),
                pl.lit(run.seed, pl.Int64).alias("seed"),
                pl.col("round") + 1,
                pl.exclude("round"),
            )
            for run in self.runs
        ]
        return pl.concat(found, how="diagonal")

    def values(self, method: str, metric: str) -> dict[int, float]:
        """A number of every run of a method, by seed; missing where it was not measured."""
        found = {seed: run.values.get(metric) for seed, run in self.of(method).items()}
        return {seed: float(value) for seed, value in found.items() if value is not None}

    def versus(self, method: str, metric: str | None = None, against: str | None = None) -> dict[str, Any] | None:
        """The mean difference to another method (the first by default) in the same worlds, with a 95 % interval.

        Seeds are paired; None without one that both have. With a single seed there is no interval. Runs that are not
        finished have no difference to others.
        """
        first, metric = against or self.methods[0], metric or self.lead
        if not all(run.finished for each in (method, first) for run in self.of(each).values()):
            return None
        ours, theirs = self.values(method, metric), self.values(first, metric)
        paired = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        if not paired:
            return None
        found = estimate(paired)
        low, high = found.interval(LEVEL)
        ends = {"low": low, "high": high} if isfinite(low) else {"low": None, "high": None}
        return {"against": first, "mean": found.mean, **ends, "seeds": len(paired)}

    def document(self) -> dict[str, Any]:
        """Everything by name, in plain values."""
        shown = [metric.name for metric in self._known()]
        return {
            "methods": [self._described(method, shown) for method in self.methods],
            "seeds": self.seeds,
            "notes": self.notes(),
        }

    def _described(self, method: str, metrics: Sequence[str]) -> dict[str, Any]:
        runs = [
            {"seed": run.seed, "folder": str(run.directory.path), "read": run.read, "finished": run.finished}
            | run.values
            for run in self.of(method).values()
        ]
        return {
            "method": method,
            "metrics": {name: _spread(self.values(method, name).values()) for name in metrics},
            "versus": {name: self.versus(method, name) for name in metrics} if method != self.methods[0] else {},
            "runs": runs,
        }

    def headroom(self) -> list[str]:
        """A sentence on what there was to win in these worlds, where the references were run."""
        return headrooms((run.directory.config, run.values) for run in self.runs if run.finished)

    def notes(self) -> list[str]:
        """What a reader of the table must know: deviations from papers, runs that were read, how else they differ."""
        read = [] if self.loaded else _read(self.runs)
        told = caveats(self.methods)
        ends = [*_unfinished(self.runs), *_diverged(self.runs), *_weakest(self.runs)]
        return [*told, *read, *ends, *_apart(self.runs), *self._given]

    @property
    def diverged(self) -> bool:
        """Whether training diverged in any of these runs."""
        return any("diverged" in run.values for run in self.runs)

    # The table ----------------------------------------------------------------------------------------------------

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The headings of the table, and its rows as text."""
        measured = self._measured()
        several = len(self.seeds) > 1
        head = ["method", *(["seeds"] if several else [])]
        for metric in measured:
            head.append(metric.title)
            if several and metric.name in VERSUS and len(self.methods) > 1:
                head.append(f"vs {self.methods[0]}")
        head += ["certify", "gossip", "evidence", "probes MB", "models MB"]
        return head, [self._row(method, measured, several) for method in self.methods]

    def _measured(self) -> list[Column[Any]]:
        """What is shown of an evaluation, as it is called in these runs; whom clients pulled and the time, if known."""
        grouped = any(run.directory.config.world.grouped for run in self.runs)
        special = [c for c in columns("metrics", "world", "clock") if c.only in ("world", "clock")]
        known = [c for c in special if any(run.values.get(c.name) is not None for run in self.runs)]
        shares = [replace(c, format=".1%") if c.only == "world" else c for c in known]
        return [m for m in self._known(grouped=grouped) if m.title] + shares

    def _known(self, *, grouped: bool = False) -> list[Column[Any]]:
        """What was measured: accuracies, errors of values, or both where such runs stand side by side."""
        kinds = sorted({"mae" in run.values for run in self.runs} or {False})
        return [metric for values in kinds for metric in known_metrics(grouped=grouped and not values, values=values)]

    @property
    def lead(self) -> str:
        """The metric that these runs are told by."""
        return leading(self.runs[0].values if self.runs else ())[0]

    def _row(self, method: str, measured: Sequence[Any], several: bool) -> list[str]:
        runs = list(self.of(method).values())
        failed = any("diverged" in run.values for run in runs)
        row = [f"{method} (diverged)" if failed else method, *([str(len(runs))] if several else [])]
        for metric in measured:
            found = _spread(self.values(method, metric.name).values())
            row.append(_shown(found, metric.format, several))
            if several and metric.name in VERSUS and len(self.methods) > 1:
                row.append("" if method == self.methods[0] else _difference(self.versus(method, metric.name), metric))
        probes = [run.values["probe_input_bytes"] + run.values["probe_answer_bytes"] for run in runs]
        shares = [fmean(run.values[name] for run in runs) for name in ("certified", "gossip", "budget")]
        row += [f"{share:.1%}" for share in shares]
        return [*row, f"{fmean(probes) / 1e6:.1f}", f"{fmean(run.values['model_bytes'] for run in runs) / 1e6:.1f}"]

    def legend(self) -> str:
        """What the columns mean."""
        meanings = "; ".join(f"{metric.title}: {metric.meaning}" for metric in self._measured())
        rest = (
            "certify, gossip: shares of decisions, the rest committed uncertified or exchanged nothing; evidence: "
            "share of a fixed budget of 128 anchors per neighbour."
        )
        if len(self.seeds) > 1:
            rest += (
                f" Mean ± standard deviation over seeds; vs {self.methods[0]}: mean difference in the same worlds, "
                "with its 95 % interval."
            )
        return fill(f"{meanings}; {rest}", 110)

    def __rich__(self) -> Table:
        from rich.table import Table

        head, rows = self.rows()
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        for name in head:
            made.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
        for row in rows:
            made.add_row(*row)
        return made

    def __repr__(self) -> str:
        head, rows = self.rows()
        widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
        lines = [
            " ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
            for line in (head, *rows)
        ]
        return "\n".join([*lines, *(f"({note})" for note in self.notes())])

    def _repr_html_(self) -> str:
        head, rows = self.rows()
        cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        notes = "".join(f"<div><small>{html.escape(note)}</small></div>" for note in self.notes())
        meaning = (
            f"<details><summary><small>columns</small></summary><small>{html.escape(self.legend())}</small></details>"
        )
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{notes}{meaning}"

    # Pictures -----------------------------------------------------------------------------------------------------

    def plot(self, metric: str | None = None, path: Path | str | None = None, *, over: Over = "round") -> Figure:
        """Curves, one line per method: the mean over seeds, the band from the lowest to the highest.

        They are drawn over rounds, over the bytes moved so far, or over the minutes of runs with a clock. Needs
        matplotlib (the extra `study`). The figure is returned, and written to `path` if one is given.
        """
        from .plotting import curves

        return curves(self, metric or self.lead, path, over)

    def report(self, path: Path | str = "report.html") -> Path:
        """Everything as one HTML file: curves, networks, decisions stage by stage. Needs the extra `view`."""
        from ..view.report import report_page, write_page
        from ..view.shelf import Shelf, refuse_damaged

        target, shelf = Path(path), Shelf([run.directory.path for run in self.runs])
        refuse_damaged(shelf)
        write_page(target, report_page(shelf))
        return target


def runs_at(places: Sequence[Path]) -> Results:
    """The runs at or below some folders, by names that tell them apart; finished ones first."""
    from ..view.shelf import Shelf, refuse_damaged

    found = [path for place in places for path in runs_below(place)]
    for place in places:
        if not place.is_dir():
            raise UsageError(f"no such directory: {place}")
        if not list(runs_below(place)):
            raise UsageError(f"{place} holds no run")
    refuse_damaged(Shelf(list(dict.fromkeys(found))))
    every = [RunDirectory(path) for path in dict.fromkeys(found)]
    directories = [directory for directory in every if (directory.path / "metrics.parquet").is_file()]
    begun = ", ".join(str(directory.path) for directory in every if directory not in directories)
    if not directories:
        raise UsageError(f"no round of {begun} is recorded yet: there is nothing to compare")
    if len(places) == 1:  # nobody said in which order: gossip first, as what the others are compared with
        directories.sort(key=lambda directory: directory.config.method.id != "rg")
    directories.sort(key=lambda directory: directory.summary is None)
    labels = [method_label(directory.config.method.model_dump()) for directory in directories]
    keys = [(label, d.config.seed) for label, d in zip(labels, directories, strict=True)]
    worlds = {world_address(d.config.model_copy(update={"seed": 0})) for d in directories}
    alone = len(worlds) == 1 and len(set(keys)) == len(keys)  # then seeds of a method belong together
    held = [
        Held(label if alone or labels.count(label) == 1 else f"{label} ({directory.path})", directory)
        for label, directory in zip(labels, directories, strict=True)
    ]
    return Results(held, [f"Left out, as no round is recorded yet: {begun}."] if begun else [], loaded=True)


def _spread(values: Any) -> dict[str, Any]:
    held = list(values)
    if not held:
        return {"mean": None, "sd": None, "seeds": 0}
    return {"mean": fmean(held), "sd": stdev(held) if len(held) > 1 else None, "seeds": len(held)}


def _shown(found: Mapping[str, Any], format: str, several: bool) -> str:
    if found["mean"] is None:
        return "-"
    text = f"{found['mean']:{format}}"
    return f"{text} ±{found['sd']:{format}}" if several and found["sd"] is not None else text


def _difference(found: Mapping[str, Any] | None, metric: Any) -> str:
    if found is None:
        return "-"
    text = f"{found['mean']:+{metric.format}}"
    return (
        text if found["low"] is None else f"{text} [{found['low']:+{metric.format}}, {found['high']:+{metric.format}}]"
    )


def _read(runs: Sequence[Held]) -> Iterator[str]:
    """Which runs were there already."""
    if all(run.read for run in runs):
        yield "All of these runs were finished before: read, not run."
    elif read := [run for run in runs if run.read]:
        names = ", ".join(f"{run.label} (seed {run.seed})" for run in read)
        yield f"Finished before, so read and not run: {names}."


def _unfinished(runs: Sequence[Held]) -> Iterator[str]:
    """Runs that are shown before their end."""
    names = [f"{run.directory.path} ({run.standing})" for run in runs if not run.finished]
    if names:
        yield (
            f"Not finished, so shown as of the last evaluated round and not to be ranked beside others: "
            f"{', '.join(names)}. `sagefl resume` continues simulated ones."
        )


def _diverged(runs: Sequence[Held]) -> Iterator[str]:
    """Runs whose numbers mean nothing from some round on."""
    for run in runs:
        if (round := run.values.get("diverged")) is not None:
            yield (
                f"Training diverged in {run.label} (seed {run.seed}), first in round {round}: lower "
                "training.learning_rate, or scale the data."
            )


def _weakest(runs: Sequence[Held]) -> Iterator[str]:
    """Who was worst off on its own data, where clients have names."""
    named = [(run.label, run.values["weakest"]) for run in runs if run.values.get("weakest")]
    if named:
        each = " and ".join(dict.fromkeys(name for _, name in named))
        yield f"Worst off on its own data: {each if len(runs) > 1 else named[0][1]}."


def _apart(runs: Sequence[Held]) -> Iterator[str]:
    """Ways in which the runs differ beside method and seed."""
    worlds: dict[tuple[int, str], Held] = {}
    for run in runs:
        config = run.directory.config
        worlds.setdefault((run.seed, config.world_digest), run)
    if len(worlds) > len({seed for seed, _ in worlds}):
        yield "These runs differ in more than their method (data, graph, scale or seed): compare with care."
    elif len(worlds) > 1 and any(
        len({r.label for r in runs if r.seed == s}) < len({r.label for r in runs}) for s, _ in worlds
    ):
        yield "Not every method was run with every seed: compare with care."
    environments = [run.directory.environment or {} for run in runs]
    codes = {run.seed: set[str]() for run in runs}
    for run, held in zip(runs, environments, strict=True):
        shared = {part: made for part, made in held.get("made_of", {}).items() if not part.startswith("method ")}
        codes[run.seed].add(repr((sorted(shared.items()), sorted(held.get("files", {}).values()))))
    if any(len(found) > 1 for found in codes.values()):
        yield "These runs were made by different versions of the same code or data files: they are not comparable."
    others = {what for held in environments[1:] for what in differing(environments[0], held)}
    for what in sorted(others):
        named = what.replace(" there", "").replace(" here", "")
        yield f"These runs were not made alike: {named}; last digits may differ."
