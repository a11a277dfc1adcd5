"""Finds runs and says how far each one is. Every call looks again, because runs appear, grow, stop and continue.

A place is a run directory, or a folder with run directories somewhere below it (a comparison, a study). Nothing here
locks or writes: the log and the times of the last changes show whether a run is alive.
"""

from __future__ import annotations

import hashlib
import json
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import polars as pl

from ..errors import SageflError
from ..runs.columns import every_column, known_metrics, leading
from ..runs.config import RunConfig, method_label
from ..runs.files import RunError
from ..runs.findings import read_sheet, sheets_below
from ..runs.headroom import headroom, runs_scores, said, shown
from ..runs.rundir import RunDirectory, runs_below
from ..selection.fidelity import ADAPTED, INSPIRED
from ..selection.registry import selectors
from ..selection.theory import SCHEDULE
from .plain import plain

READING_ERRORS = (SageflError, pl.exceptions.PolarsError, ValueError, OSError)
"""What reading a damaged directory, or one from another version, may raise."""

NEEDED = {
    "metrics": ("degree", "evaluations"),
    "decisions": ("client", "peers", "chosen", "reason", "anchors", "evaluations", "direction"),
    "clients": ("client",),
    "timings": ("train",),
}  # columns without which the page cannot show a run; other columns came later or are of some runs only
MEASURED: dict[str, dict[str, tuple[str, ...]]] = {
    "accuracy": {"metrics": ("accuracy",), "clients": ("accuracy", "own_accuracy")},
    "mae": {"metrics": ("mae",), "clients": ("mae", "own_mae")},
}  # the same by what was measured
CLIENTS = 50_000  # of a run that a page shows
SILENT = 180.0  # seconds without any change after which a run no longer counts as running
FILES = ("run.toml", "metrics.parquet", "decisions.parquet", "clients.parquet", "summary.json", "events.log")
Value = TypeVar("Value")


class FileCache:
    """Values computed from files, cached until the files change."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Any, Any]] = {}
        self._lock = Lock()

    def get(self, name: str, signature: Any, make: Callable[[], Value]) -> Value:
        """The value of `name`, computed again when its signature has changed."""
        with self._lock:
            held = self._held.get(name)
        if held is None or held[0] != signature:
            held = (signature, make())
            with self._lock:
                self._held[name] = held
        value: Value = held[1]
        return value


class Run:
    """One run directory as the page sees it; every read is cached until the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
        self.directory = RunDirectory(path)
        self.kept = FileCache()

    def signature(self, name: str) -> tuple[int, int, int] | None:
        """Changes whenever the file does."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    @property
    def config(self) -> RunConfig:
        """The run's config."""
        return self.kept.get("config", self.signature("run.toml"), self._config)

    def _config(self) -> RunConfig:
        found = self.directory.config
        if found.clients > CLIENTS:
            raise RunError(f"{self.path} is a run of {found.clients:,} clients; a page shows up to {CLIENTS:,}")
        return found

    def table(self, name: str) -> pl.DataFrame:
        """One of the run's tables; an error says in one line what is wrong with it."""
        return self.kept.get(name, self.signature(f"{name}.parquet"), lambda: _checked(self.directory, name))

    @property
    def version(self) -> str:
        """Differs whenever the page has something new to fetch."""
        signatures = [self.signature(name) for name in FILES]
        return hashlib.sha256(repr(signatures).encode()).hexdigest()[:12]

    def standing(self) -> dict[str, Any]:
        """The run's state: what it is, how far it is, how good, and what is wrong with it."""
        return self.kept.get("standing", (self.version, self._recent()), self._standing)

    def _standing(self) -> dict[str, Any]:
        problems: list[str] = []
        found = _described(self, problems)
        found |= _progress(self, problems)
        status = self._status(found, problems)
        head = {"id": self.id, "version": self.version, "status": status, "problems": problems}
        return head | plain(found, 7) | {"written": found["written"]}  # type: ignore[no-any-return]

    def _status(self, found: dict[str, Any], problems: list[str]) -> str:
        if found["finished"]:
            return "finished"
        if found["rounds"] is None and not found["done"]:
            return "unreadable" if problems else "waiting"
        event = _last_event(self.path / "events.log")
        if event == "interrupted" or not self._recent():
            return "stopped"
        return "running"

    def _recent(self) -> bool:
        """Whether anything in the directory has changed lately."""
        times = [s[0] for name in (*FILES, "losses", "checkpoint") if (s := self.signature(name))]
        return bool(times) and time.time() - max(times) / 1e9 < SILENT


@dataclass(frozen=True)
class Shelf:
    """The runs at the places given on the command line."""

    places: Sequence[Path]
    _made: dict[Path, Run] = field(default_factory=dict, init=False)

    def runs(self) -> dict[str, Run]:
        """Every run there is now, by id, in the order of the places and then by name."""
        found = [path for place in self.places for path in list(runs_below(place)) or _awaited(place)]
        runs = [self._made.setdefault(path, Run(path)) for path in dict.fromkeys(found)]
        return {run.id: run for run in runs}

    def run(self, id: str) -> Run:
        """A run by id; ids are looked up, never used as paths."""
        runs = self.runs()
        if id not in runs:
            raise RunError(f"no run {id!r} here")
        return runs[id]

    def standings(self) -> list[dict[str, Any]]:
        """The state of every run, with a label that distinguishes it from the others."""
        standings = [dict(run.standing()) for run in self.runs().values()]
        _label(standings)
        _add_headroom(list(zip(self.runs().values(), standings, strict=True)))
        return standings


def _awaited(place: Path) -> list[Path]:
    """A folder without a run is shown as waiting for one, unless a scout's result is there to be looked at."""
    return [] if any(sheets_below(place)) else [place]


def _checked(directory: RunDirectory, name: str) -> pl.DataFrame:
    frame = directory.table(name)
    if "round" not in frame.columns:
        raise RunError(f"{name}.parquet has no column round: it is not from this program, or from another version")
    declared = {column.name: column.dtype for column in every_column(name)}
    known = [column for column in frame.columns if column in declared and frame.schema[column] != pl.Null]
    wrong = [c for c in known if frame.schema[c].is_numeric() != declared[c].is_numeric()]
    if wrong:
        raise RunError(f"{name}.parquet: column {wrong[0]} is {frame.schema[wrong[0]]}, expected {declared[wrong[0]]}")
    measured = MEASURED[leading(frame.columns)[0]] if name in ("metrics", "clients") else {}
    needed = (*NEEDED.get(name, ()), *measured.get(name, ()))
    if lacking := [column for column in needed if column not in frame.columns]:
        raise RunError(
            f"{name}.parquet has no column {lacking[0]}: it is not from this program, or from another version"
        )
    return frame


def refuse_damaged(shelf: Shelf) -> None:
    """Refuse runs of which something cannot be read, or lacks rounds: half a run would be taken for a whole one."""
    for run in shelf.runs().values():
        found = run.standing()
        problems = list(found["problems"])
        if not problems and (found["done"] or found["finished"]):
            problems += _short(run, found)
        if problems:
            raise RunError(f"{run.path} cannot be shown: {problems[0]}")
    for path in (path for place in shelf.places for path in sheets_below(place)):
        read_sheet(path)


def _short(run: Run, found: dict[str, Any]) -> list[str]:
    """Tables that end before the others, or before the run did."""
    try:
        tables = {name: run.table(name) for name in ("metrics", "decisions", "clients")}
        if (run.path / "timings.parquet").is_file():
            run.table("timings")
        summary = run.directory.summary or {}
        simulated = "engine" in (run.directory.environment or {})
    except READING_ERRORS as error:
        return [str(error)]
    metrics, decisions, clients = tables.values()
    done = {name: int(tables[name]["round"].max() or 0) + 1 for name in ("metrics", "decisions")}  # type: ignore[arg-type]
    wanted = max(*done.values(), found["rounds"] or 0) if found["finished"] else max(done.values())
    cut = [f"{name}.parquet ends at round {n} of {wanted}: it is cut off" for name, n in done.items() if n < wanted]
    rows = {"decisions": (decisions.height, summary.get("decisions", 0))}
    if found["finished"] and simulated:  # of nodes some may have been away
        evaluations = metrics[leading(metrics.columns)[0]].count()
        rows["clients"] = clients.height, evaluations * run.config.clients
    return cut + [f"{name}.parquet has {n} rows of {m}: it is cut off" for name, (n, m) in rows.items() if n < m]


def _described(run: Run, problems: list[str]) -> dict[str, Any]:
    """What the run is, from its config or, if that cannot be read, from what else there is."""
    found: dict[str, Any] = dict.fromkeys(
        ("rounds", "clients", "seed", "dataset", "topology", "alpha", "every", "family")
    )
    found |= {"folder": run.path.name, "method": run.path.name, "epoch": ""}
    if not (run.path / "run.toml").is_file():
        return found
    try:
        c = run.config
    except READING_ERRORS as error:
        problems.append(f"run.toml: {error}")
        return found | {"method": _raw_method(run.path / "run.toml") or run.path.name}
    if c.world.grouped:
        found |= {"groups": c.world.groups, "shift": c.world.shift}
    if c.network.misbehaving or c.world.noisy:
        found["culprits"] = True
    if c.clock.network is not None:
        found["clock"] = c.clock.schedule
    method = method_label(c.method.model_dump())
    found |= marked(method)
    return found | {
        "epoch": c.digest,
        "family": c.model_copy(update={"seed": 0}).digest,  # runs that differ by their seed alone
        "method": method,
        "rounds": c.rounds,
        "clients": c.clients,
        "seed": c.seed,
        "dataset": Path(c.data.dataset).name,
        "topology": c.topology.kind,
        "alpha": c.data.alpha if c.data.partition == "dirichlet" else c.data.partition,
        "every": c.evaluation.every,
    }


def marked(label: str) -> dict[str, Any]:
    """What a method's entry says of itself if it is adapted or only inspired by its paper; nothing otherwise.

    The rules of `sagefl.selection` are asked first, so that a page without methods of another kind starts as fast as
    ever: `sagefl.methods` knows it at the price of torch.
    """
    if (rule := selectors().get(label.partition(":")[0])) is not None:
        said = rule.fidelity
    else:
        from ..methods.fidelity import fidelity_of

        said = fidelity_of(label)
    return {"fidelity": said} if said.partition(":")[0] in (ADAPTED, INSPIRED) else {}


def _progress(run: Run, problems: list[str]) -> dict[str, Any]:
    """How far it is and how good; from per_round and written the page estimates when it will end."""
    found: dict[str, Any] = {"done": 0, "finished": False, "per_round": None, "written": None, "last": {}}
    if (run.path / "metrics.parquet").is_file():
        try:
            found |= _measured(run)
        except READING_ERRORS as error:
            problems.append(str(error))
    try:
        found["finished"] = run.directory.summary is not None
    except RunError as error:
        problems.append(str(error))
    return found


def _measured(run: Run) -> dict[str, Any]:
    metrics = run.table("metrics")
    last: dict[str, Any] = {}
    if (lead := leading(metrics.columns)[0]) in metrics.columns:
        evaluated = metrics.filter(pl.col(lead).is_not_null())
        if evaluated.height:
            row, known = evaluated.row(-1, named=True), known_metrics(values=lead == "mae")
            last = {name: row.get(name) for name in ("round", *(m.name for m in known if m.title))}
    if {"evaluations", "degree"} <= set(metrics.columns) and (degrees := float(metrics["degree"].sum())):
        last["budget"] = float(metrics["evaluations"].sum()) / (SCHEDULE[-1] * degrees)
    signature = run.signature("metrics.parquet")
    return {
        "done": metrics.height,
        "last": last,
        "written": signature and signature[0] / 1e9,
        "per_round": _seconds_per_round(run),
    }


def _seconds_per_round(run: Run) -> float | None:
    """The mean over the last twenty timed rounds."""
    if not (run.path / "timings.parquet").is_file():
        return None
    try:
        recent = run.table("timings").tail(20)
    except SageflError:
        return None
    phases = recent.drop("round")
    return float(phases.fill_null(0).sum_horizontal().mean() or 0.0) if recent.height else None  # type: ignore[arg-type]


def _raw_method(path: Path) -> str | None:
    """The method's id from a config that this version does not understand."""
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8"))["method"]["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _last_event(log: Path) -> str | None:
    """The event in the last complete line of the log."""
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            return str(json.loads(line)["event"])
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _add_headroom(runs: Sequence[tuple[Run, dict[str, Any]]]) -> None:
    """Say of every run whose references are here, too, what choosing could gain and how much of it the run gets."""
    readable = [(run.config, standing) for run, standing in runs if standing["epoch"]]
    for setting, scores in runs_scores((config, standing["last"]) for config, standing in readable).items():
        if (room := headroom(scores)) is not None:
            for config, standing in readable:
                if config.setting_digest == setting:
                    standing["headroom"] = said(room, grouped=config.world.grouped)
                    standing["capture"] = shown(room.capture(standing["method"]))


def _label(standings: list[dict[str, Any]]) -> None:
    """Label each run by its method, and by seed, alpha, graph, data or folder where that is not enough."""
    for run in standings:
        run["label"] = run["method"]
    for key, sign in (("seed", "seed "), ("alpha", "α "), ("topology", ""), ("dataset", ""), ("folder", "")):
        names = [run["label"] for run in standings]
        for run in standings:
            twins = [other for other in standings if names.count(run["label"]) > 1 and other["label"] == run["label"]]
            run["_twins"] = len({str(other[key]) for other in twins}) > 1
        for run in standings:
            if run.pop("_twins"):
                run["label"] += f", {sign}{run[key]}"
