"""`sagefl study paper`: run the paper's matrix, test its claims, and say what holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..settings import nested, parse_options
from .cells import Where, carry_out, command_line, failed, jobs_of, present, show_status
from .common import console, fail, friendly_errors, table

if TYPE_CHECKING:
    from rich.console import Console

    from ..study.claims import Judged
    from ..study.matrix import Cell
    from ..study.paper import Findings

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
    checkpoint_every: Annotated[int, typer.Option(help="Rounds between checkpoints (with --jobs 1 or --ray).")] = 10,
    ray: Annotated[bool, typer.Option("--ray", help="Cells as tasks of a Ray cluster, a CPU each.")] = False,
    ray_address: Annotated[
        str | None, typer.Option(help="That cluster: HOST:PORT, auto or local; default: found, else local.")
    ] = None,
    from_: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Report from the cells.csv of a folder; runs nothing. Repeatable."),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="The paper by its own tables only; runs nothing.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Which cells are done; runs nothing.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Report on the cells that are done; runs nothing.")] = False,
    no_sweeps: Annotated[bool, typer.Option("--no-sweeps", help="Leave the replay sweeps out.")] = False,
    no_pages: Annotated[
        bool, typer.Option("--no-pages", help="Leave the pages of the runs themselves out (some MB each).")
    ] = False,
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
            show_status(planned, cells, screen)
            return
        here, notes = present(planned, cells, screen)
        where = Where(jobs_of(preset, jobs), workers, checkpoint_every, ray or ray_address is not None, ray_address)
        failures = [] if no_run else carry_out(here, cells, screen, where, quiet)
        target = out or Path("results") / f"study-{preset}"
        _report(here, cells, target, [*notes, *failed(failures, target)], screen,
                sweeps=not no_sweeps, brief=brief, pages=not no_pages)  # fmt: skip
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
        raise UsageError(f"{flag} takes numbers separated by commas, got {text!r}") from None


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


# Steps --------------------------------------------------------------------------------------------------------------


def _report(
    cells: Sequence[Cell], folder: Path, out: Path, notes: Sequence[str], screen: Console, *,
    sweeps: bool, brief: bool, pages: bool,
) -> None:  # fmt: skip
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
    views = _pages(cells, folder, out) if pages else {}
    _conclude(study.find(records, rows), out, [*notes, *rest], screen, brief=brief, pages=views)


def _pages(cells: Sequence[Cell], folder: Path, out: Path) -> dict[str, str]:
    """The finished runs of every configuration's first seed as a page of their own; needs the extra `view`."""
    from ..study.runner import done

    try:
        from ..view.report import report_page, write_page
        from ..view.shelf import Shelf
    except ModuleNotFoundError:
        return {}
    seed = min(cell.seed for cell in cells)
    runs: dict[str, list[Path]] = {}
    for cell in cells:
        if cell.seed == seed and done(cell, folder):
            runs.setdefault(" ".join(map(str, cell.configuration)), []).append(cell.folder(folder))
    files = {title: f"runs/{title.replace(' ', '-')}.html" for title in runs}
    for title, places in runs.items():
        write_page(out / files[title], report_page(Shelf(places), detailed=2))
    return files


def _conclude(
    findings: Findings, out: Path | None, notes: Sequence[str], screen: Console, *,
    brief: bool, pages: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    from ..study import paper as study

    if not brief:
        _show_tables(findings, screen)
    _show_verdicts(findings.judged, screen, brief=brief)
    screen.print("\nScale: " + "\n       ".join(findings.scale))
    for note in notes:
        screen.print(f"Left out: {note}")
    if out is not None:
        report = study.write(out, findings, command_line(), notes, pages)
        screen.print(f"\nReport, tables, figures and claims are in {report}")


# What is shown ------------------------------------------------------------------------------------------------------


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
        screen.print(f"Report, tables, figures and claims are in {study.write(out, findings, command_line())}")
