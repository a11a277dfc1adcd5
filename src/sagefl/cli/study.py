"""`sagefl study paper`: run the paper's matrix, test its claims, and say what holds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..settings import nested, parse_options
from .common import console, fail, friendly_errors, table

if TYPE_CHECKING:
    from rich.console import Console

    from ..study.claims import Judged
    from ..study.matrix import Cell
    from ..study.pace import Pace
    from ..study.paper import Findings
    from ..study.runner import Failure

__all__ = ["add_to"]

group = typer.Typer(help="Studies: many runs, one answer.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    app.add_typer(group, name="study")


@group.callback()
def _group() -> None:
    """Studies: many runs, one answer."""


Axis = Annotated[str | None, typer.Option(help="Comma-separated; default: the preset's.")]


@group.command()
def paper(
    preset: Annotated[str, typer.Option(help="smoke (minutes), laptop (hours) or paper (as printed).")] = "smoke",
    out: Annotated[Path | None, typer.Option(help="Folder for tables, figures and report.html.")] = None,
    cells: Annotated[Path, typer.Option(help="Folder of runs by config hash, shared between studies.")] = Path(
        "runs/cells"
    ),
    datasets: Axis = None,
    topologies: Axis = None,
    alphas: Axis = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated, options as id:name=value; +ID adds to the preset's.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated seeds, or a range as 1-5.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of the preset's.")] = None,
    max_batches: Annotated[int | None, typer.Option(help="Cap on local mini-batches a round.")] = None,
    clients: Annotated[int | None, typer.Option(help="Clients instead of the preset's.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any config key, section.key=value.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Cells at a time, a core each; 1: one cell at a time on all cores.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes of a cell (with --jobs 1).")] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Rounds between checkpoints (with --jobs 1).")] = 10,
    from_: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Report from the cells.csv of a folder; runs nothing. Repeatable."),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="The paper by its own tables only; runs nothing.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Which cells are done; runs nothing.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Report on the cells that are done; runs nothing.")] = False,
    no_sweeps: Annotated[bool, typer.Option("--no-sweeps", help="Leave the replay sweeps out.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="No tables and no list of claims on the screen.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="As --brief, and no progress.")] = False,
) -> None:
    """Does the paper hold? Run its matrix at some scale and give tables, figures and a verdict per claim."""
    with friendly_errors():
        from ..study import paper as study

        screen, brief = console(), brief or quiet
        if audit:
            _show_audit(study.audit(), out, screen, brief=brief)
            return
        if from_:
            _conclude(study.merge(from_), out, [], screen, brief=brief)
            return
        axes = _axes(preset, datasets, topologies, alphas, methods, seeds)
        planned = _plan(preset, axes, rounds, max_batches, clients, set_ or [])
        if status:
            _show_status(planned, cells, screen)
            return
        present, notes = _present(planned, cells, screen)
        failures = [] if no_run else _run(present, cells, screen, _jobs(preset, jobs), workers, checkpoint_every, quiet)
        target = out or Path("results") / f"study-{preset}"
        _report(present, cells, target, [*notes, *_failed(failures, target)], screen, sweeps=not no_sweeps, brief=brief)
    if failures:
        raise typer.Exit(1)


# What is asked ------------------------------------------------------------------------------------------------------


def _axes(preset: str, datasets: str | None, topologies: str | None, alphas: str | None, methods: str | None,
          seeds: str | None) -> dict[str, list[Any]]:  # fmt: skip
    from ..study.matrix import PRESETS

    asked = _split(methods)
    if added := [m[1:] for m in asked if m.startswith("+")]:
        kept = [m for m in asked if not m.startswith("+")] or list(PRESETS[preset].methods if preset in PRESETS else ())
        asked = list(dict.fromkeys([*kept, *added]))
    return {
        "datasets": _split(datasets),
        "topologies": _split(topologies),
        "alphas": _numbers("--alphas", alphas, float),
        "methods": asked,
        "seeds": _seeds(seeds),
    }


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(flag: str, text: str | None, kind: Callable[[str], Any]) -> list[Any]:
    try:
        return [kind(part) for part in _split(text)]
    except ValueError:
        raise ValueError(f"{flag} takes numbers separated by commas, got {text!r}") from None


def _seeds(text: str | None) -> list[int]:
    first, dash, last = (text or "").partition("-")
    if dash and first.strip().isdigit() and last.strip().isdigit():
        return list(range(int(first), int(last) + 1))
    found: list[int] = _numbers("--seeds", text, int)
    return found


def _plan(
    preset: str, axes: dict[str, list[Any]], rounds: int | None, batches: int | None, clients: int | None,
    set_: Sequence[str],
) -> list[Cell]:  # fmt: skip
    from ..study.matrix import plan

    given = {"rounds": rounds, "training.max_batches": batches, "clients": clients}
    overrides = nested({k: v for k, v in given.items() if v is not None} | parse_options(list(set_)))
    return plan(preset, **axes, overrides=overrides)


def _jobs(preset: str, jobs: int | None) -> int:
    import os

    from ..study.matrix import PRESETS

    if jobs is not None:
        return jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if PRESETS[preset].several else 1


# Steps --------------------------------------------------------------------------------------------------------------


def _present(planned: Sequence[Cell], folder: Path, screen: Console) -> tuple[list[Cell], list[str]]:
    """The cells that are done or whose data is here, and a note naming the others."""
    from ..study.matrix import absent
    from ..study.paper import left_out
    from ..study.runner import done

    missing = absent([cell for cell in planned if not done(cell, folder)])
    notes = left_out(missing, [], 0)
    for note, (ways, _) in zip(notes, missing.values(), strict=True):
        screen.print(f"{note}.\nWays to get it:\n{ways}")
    without = {cell.name for _, cells in missing.values() for cell in cells}
    present = [cell for cell in planned if cell.name not in without]
    if not present:
        raise ValueError("none of the study's data sets is on this machine: `sagefl data get NAME` fetches them")
    return present, notes


def _run(
    cells: Sequence[Cell], folder: Path, screen: Console, jobs: int, workers: int | None, every: int, quiet: bool
) -> list[Failure]:
    from ..simulation.config import Execution, checked
    from ..study.pace import Pace
    from ..study.runner import InterruptedStudyError, run_cells

    execution = checked(Execution, {"workers": workers, "checkpoint_every": every})
    pace = Pace(cells, folder)
    watcher = _Progress(pace, screen, quiet=quiet)
    if not quiet:
        screen.print(f"{pace.total} cells, {pace.before} done already, in {folder}")
    try:
        return run_cells(cells, folder, watcher, jobs=jobs, execution=execution)
    except InterruptedStudyError as error:
        watcher.close()
        fail(f"{error}; {pace.done} of {pace.total} cells are done")
    finally:
        watcher.close()


def _report(
    cells: Sequence[Cell], folder: Path, out: Path, notes: Sequence[str], screen: Console, *, sweeps: bool, brief: bool
) -> None:
    from ..study import paper as study
    from ..study.collect import collect
    from ..study.sweeps import read_sweeps, run_sweeps

    records = collect(cells, folder)
    if not records:
        fail("no cell is finished, so that there is nothing to report" + "".join(f"\n{n}" for n in notes))
    known = read_sweeps(out / "sweeps.csv")
    rows = list(run_sweeps(cells, folder, known)) if sweeps else []
    unfinished = len(cells) - len(records) - sum(" failed: " in n for n in notes)
    rest = study.left_out({}, [], unfinished) if unfinished > 0 else []
    _conclude(study.find(records, rows), out, [*notes, *rest], screen, brief=brief)


def _failed(failures: Sequence[Failure], out: Path) -> list[str]:
    """Notes on failed cells; traces of errors that nobody foresaw go into a file."""
    from ..study.paper import left_out

    traces = [f"{f.cell.name}\n{f.trace}" for f in failures if f.trace]
    if traces:
        out.mkdir(parents=True, exist_ok=True)
        (out / "failures.txt").write_text("\n".join(traces), encoding="utf-8")
    return left_out({}, failures, 0)


def _command() -> str:
    return shlex.join(["sagefl", *sys.argv[1:]])


def _conclude(findings: Findings, out: Path | None, notes: Sequence[str], screen: Console, *, brief: bool) -> None:
    from ..study import paper as study

    if not brief:
        _show_tables(findings, screen)
    _show_verdicts(findings.judged, screen, brief=brief)
    screen.print("\nScale: " + "\n       ".join(findings.scale))
    for note in notes:
        screen.print(f"Left out: {note}")
    if out is not None:
        report = study.write(out, findings, _command(), notes)
        screen.print(f"\nReport, tables, figures and claims are in {report}")


# What is shown ------------------------------------------------------------------------------------------------------


class _Progress:
    """Follows a study: one live line on a terminal, a line per cell elsewhere."""

    def __init__(self, pace: Pace, screen: Console, *, quiet: bool) -> None:
        from rich.live import Live

        self.pace, self.screen, self.quiet = pace, screen, quiet
        self._live = Live(console=screen, refresh_per_second=4, transient=True) if screen.is_terminal else None
        if self._live is not None and not quiet:
            self._live.start()

    def started(self, cell: Cell) -> None:
        """A cell is under way."""
        self.pace.started(cell)
        self._refresh()

    def round(self, cell: Cell, rounds: int) -> None:
        """It has done this many rounds."""
        self.pace.round(cell, rounds)
        self._refresh()

    def finished(self, cell: Cell, seconds: float) -> None:
        """It is done."""
        self.pace.finished(cell, seconds)
        if not self.quiet:
            self.screen.print(f"{cell.name}: {seconds:.0f} s; {self.pace.line()}")
        self._refresh()

    def failed(self, failure: Failure) -> None:
        """It is not going to be done."""
        self.pace.failed(failure)
        self.screen.print(f"{failure.cell.name} FAILED: {failure.why}; {self.pace.line()}")

    def close(self) -> None:
        """Let go of the terminal."""
        if self._live is not None:
            self._live.stop()

    def _refresh(self) -> None:
        if self._live is not None and not self.quiet:
            running = "".join(f"\n  {name} {share:.0%}" for name, share in self.pace.running.items())
            self._live.update(f"{self.pace.line()}{running}")


def _show_status(planned: Sequence[Cell], folder: Path, screen: Console) -> None:
    from ..study.matrix import absent
    from ..study.runner import done

    missing = {c.name for _, cells in absent(planned).values() for c in cells}
    rows, left = [], 0
    for cell in planned:
        state = "done" if done(cell, folder) else "begun" if cell.folder(folder).is_dir() else "not begun"
        state = "no data" if cell.name in missing and state != "done" else state
        left += state != "done"
        rows.append((*map(str, cell.configuration), cell.method, str(cell.seed), state, cell.config.digest))
    heads = ("dataset", "topology", "alpha", "method", "seed", "state", "cell")
    screen.print(table(heads, rows, left=("dataset", "topology", "method", "state", "cell")))
    screen.print(f"\n{len(planned) - left} of {len(planned)} cells done, {left} left, in {folder}")


def _show_tables(findings: Findings, screen: Console) -> None:
    from ..study.render import to_rich

    for made in findings.tables:
        for title, shown in to_rich(made):
            screen.print(f"\n{title}", style="bold")
            screen.print(shown)


def _show_verdicts(judged: Sequence[Judged], screen: Console, *, brief: bool) -> None:
    from ..study.report import count

    if not brief:
        rows = [(j.claim.id, j.tables.verdict.value, j.runs.short) for j in judged]
        heads = ("claim", "by its own tables", "by these runs")
        screen.print()
        screen.print(table(heads, rows, left=heads))
    screen.print(f"\nBy the paper's own tables: {count([j.tables for j in judged])}")
    screen.print(f"By these runs: {count([j.runs for j in judged])}")


def _show_audit(findings: Findings, out: Path | None, screen: Console, *, brief: bool) -> None:
    from ..study import paper as study
    from ..study.report import count

    if not brief:
        _show_tables(findings, screen)
        screen.print()
        for j in findings.judged:
            screen.print(f"{j.tables.verdict.value.upper()}  {j.claim.id}", style="bold")
            screen.print(f'  "{j.claim.quote}" ({j.claim.where})')
            screen.print(f"  {j.tables.detail}")
    screen.print(f"\nBy the paper's own tables: {count([j.tables for j in findings.judged])}")
    against = [j.claim.id for j in findings.judged if j.tables.verdict == "contradicted"]
    screen.print(f"Contradicted: {', '.join(against)}")
    if out is not None:
        screen.print(f"Report, tables, figures and claims are in {study.write(out, findings, _command())}")
