"""`sagefl study`: many runs, one answer. The paper's study and the extensions'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..settings import nested, parse_options, split_list
from .cells import carry_out, command_line, show_status
from .common import console, friendly_errors, table

if TYPE_CHECKING:
    from rich.console import Console

    from ..study.design import Findings
    from ..study.study import Study

__all__ = ["add_to"]

group = typer.Typer(help="Studies: many runs, one answer.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    app.add_typer(group, name="study")


@group.callback()
def _group() -> None:
    """Studies: many runs, one answer."""


Out = Annotated[Path | None, typer.Option(help="Folder for the report, its tables and its figures.")]
Cells = Annotated[Path, typer.Option(help="Folder of runs by config hash, shared between studies.")]
Axis = Annotated[str | None, typer.Option(help="Comma-separated; default: the preset's.")]
Methods = Annotated[
    str | None, typer.Option(help="Comma-separated, options as id:name=value; +ID adds to the preset's.")
]
Seeds = Annotated[str | None, typer.Option(help="Comma-separated seeds, or a range such as 1-5.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds instead of the preset's.")]
MaxBatches = Annotated[int | None, typer.Option(help="Cap on local mini-batches a round.")]
Clients = Annotated[int | None, typer.Option(help="Clients instead of the preset's.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any config key, section.key=value.")]
Jobs = Annotated[int | None, typer.Option(help="Cells at a time, a core each; 1: one cell at a time on all cores.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes of a cell (with --jobs 1).")]
Every = Annotated[int, typer.Option("--checkpoint-every", help="Rounds between checkpoints (with --jobs 1 or --ray).")]
Ray = Annotated[bool, typer.Option("--ray", help="Cells as tasks of a Ray cluster, a CPU each.")]
RayAddress = Annotated[
    str | None,
    typer.Option(help="That cluster: HOST:PORT, auto or local; default: one that is found, else a local one."),
]
From = Annotated[
    list[Path] | None,
    typer.Option("--from", help="Report from the cells.csv of a folder; runs nothing. Repeatable."),
]
Known = Annotated[
    list[Path] | None,
    typer.Option(help="A folder whose cells.csv is trusted: its cells are not run again. Repeatable."),
]
Audit = Annotated[bool, typer.Option("--audit", help="The paper by its own tables only; runs nothing.")]
Status = Annotated[bool, typer.Option("--status", help="Which cells are done; runs nothing.")]
NoRun = Annotated[bool, typer.Option("--no-run", help="Report on the cells that are done; runs nothing.")]
NoSweeps = Annotated[bool, typer.Option("--no-sweeps", help="Leave out the replay sweeps.")]
NoPages = Annotated[bool, typer.Option("--no-pages", help="Leave out the pages of the runs themselves (some MB each).")]
Brief = Annotated[bool, typer.Option("--brief", help="No tables and no list of claims on the screen.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="As --brief, and no progress.")]
CELLS = Path("runs/cells")


@group.command()
def paper(
    preset: Annotated[str, typer.Option(help="smoke (minutes), laptop (hours) or paper (as printed).")] = "smoke",
    out: Out = None,
    cells: Cells = CELLS,
    datasets: Axis = None,
    topologies: Axis = None,
    alphas: Axis = None,
    methods: Methods = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    max_batches: MaxBatches = None,
    clients: Clients = None,
    set_: Set = None,
    jobs: Jobs = None,
    workers: Workers = None,
    checkpoint_every: Every = 10,
    ray: Ray = False,
    ray_address: RayAddress = None,
    from_: From = None,
    audit: Audit = False,
    status: Status = False,
    no_run: NoRun = False,
    no_sweeps: NoSweeps = False,
    no_pages: NoPages = False,
    brief: Brief = False,
    quiet: Quiet = False,
) -> None:
    """Does the paper hold? Run its matrix at some scale and give tables, figures and a verdict per claim."""
    with friendly_errors():
        from ..study import paper as papers
        from ..study.design import Findings
        from ..study.study import Study

        screen, brief = console(), brief or quiet
        if audit:
            return _show_audit(papers.audit(command_line()), out, screen, brief=brief)
        if from_:
            return _conclude(Findings.read(papers.PAPER, from_, command_line()), out, screen, brief=brief)
        scale = {"rounds": rounds, "training.max_batches": max_batches, "clients": clients}
        axes = _axes(preset, datasets, topologies, alphas, methods, seeds)
        study = Study(papers.design(preset, **axes, overrides=_overrides(scale, set_)), cells, out=out)
        if status:
            return show_status(study, screen)
        if not no_run:
            how = {"jobs": jobs, "workers": workers, "checkpoint_every": checkpoint_every, "ray_address": ray_address}
            carry_out(study, screen, quiet=quiet, ray=ray, **how)
        found = study.find(sweeps=not no_sweeps, command=command_line(), pages={} if no_pages else _pages(study))
        _conclude(found, study.out, screen, brief=brief)
    _end(study)


@group.command()
def beyond(
    preset: Annotated[str, typer.Option(help="smoke (minutes, embedded data) or laptop (hours).")] = "smoke",
    out: Out = None,
    cells: Cells = CELLS,
    arms: Annotated[
        int | None, typer.Option(min=2, help="Only the first so many arms, the most important first.")
    ] = None,
    set_: Set = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The two arms that came out ahead, on seeds nobody has looked at.")
    ] = False,
    jobs: Jobs = None,
    known: Known = None,
    status: Status = False,
    no_run: NoRun = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Certificates beyond the paper on trained models, against gossip: one primary comparison, the rest by Holm."""
    with friendly_errors():
        from ..study import beyond as beyonds
        from ..study.study import Study

        screen, trial = console(), beyonds.CONFIRMATION if confirm else beyonds.EXPERIMENT
        design = beyonds.design(preset, trial, arms=arms, overrides=_overrides({}, set_))
        study = Study(design, cells, out=out, known=known or [])
        if status:
            return show_status(study, screen)
        if not no_run:
            carry_out(study, screen, quiet=quiet, jobs=jobs)
        if count := study.contradicted():
            screen.print(f"{count} known cells were run here, too, and came out otherwise: the runs here count")
        written = study.report(command=command_line())
        screen.print(written.read_text(encoding="utf-8"), markup=False)
        screen.print(f"The account, its numbers and its figure are in {study.out}")
    _end(study)


def _end(study: Study) -> None:
    if study.failures:
        raise typer.Exit(1)


# What is asked ------------------------------------------------------------------------------------------------------


def _axes(preset: str, datasets: str | None, topologies: str | None, alphas: str | None, methods: str | None,
          seeds: str | None) -> dict[str, list[Any]]:  # fmt: skip
    return {
        "datasets": split_list(datasets or ""),
        "topologies": split_list(topologies or ""),
        "alphas": _numbers("--alphas", alphas, float),
        "methods": _methods(preset, methods),
        "seeds": _seeds(seeds),
    }


def _methods(preset: str, text: str | None) -> list[str]:
    from ..study.matrix import preset_of

    asked = split_list(text or "")
    added = [m[1:] for m in asked if m.startswith("+")]
    kept = [m for m in asked if not m.startswith("+")]
    if added and not kept:
        kept = list(preset_of(preset).methods)
    return list(dict.fromkeys([*kept, *added]))


def _numbers(flag: str, text: str | None, kind: Callable[[str], Any]) -> list[Any]:
    try:
        return [kind(part) for part in split_list(text or "")]
    except ValueError:
        raise UsageError(f"{flag} takes numbers separated by commas, got {text!r}") from None


def _seeds(text: str | None) -> list[int]:
    first, dash, last = (text or "").partition("-")
    if dash and first.strip().isdigit() and last.strip().isdigit():
        return list(range(int(first), int(last) + 1))
    return _numbers("--seeds", text, int)


def _overrides(scale: dict[str, Any], set_: list[str] | None) -> dict[str, Any]:
    return nested({k: v for k, v in scale.items() if v is not None} | parse_options(set_ or []))


def _pages(study: Study) -> dict[str, str]:
    """The finished runs of the first seed as pages of their own, one per configuration; needs the extra `view`."""
    try:
        from ..view.report import report_page, write_page
        from ..view.shelf import Shelf
    except ModuleNotFoundError:
        return {}
    runs = study.first_runs()
    files = {title: f"runs/{title.replace(' ', '-')}.html" for title in runs}
    for title, places in runs.items():
        write_page(study.out / files[title], report_page(Shelf(places), detailed=2))
    return files


# What is shown ------------------------------------------------------------------------------------------------------


def _conclude(findings: Findings, out: Path | None, screen: Console, *, brief: bool) -> None:
    from ..study.report import count

    if not brief:
        _show_tables(findings, screen)
        rows = [(j.claim.id, j.tables.verdict.value, j.runs.short) for j in findings.judged]
        heads = ("claim", "by its own tables", "by these runs")
        screen.print()
        screen.print(table(heads, rows, left=heads))
    screen.print(f"\nBy the paper's own tables: {count([j.tables for j in findings.judged])}")
    screen.print(f"By these runs: {count([j.runs for j in findings.judged])}")
    screen.print("\nScale: " + "\n       ".join(findings.scale))
    for note in findings.notes:
        screen.print(f"Left out: {note}")
    if out is not None:
        screen.print(f"\nReport, tables, figures and claims are in {findings.write(out)}")


def _show_tables(findings: Findings, screen: Console) -> None:
    from ..study.render import to_rich

    for made in findings.tables:
        for title, shown in to_rich(made):
            screen.print(f"\n{title}", style="bold")
            screen.print(shown)


def _show_audit(findings: Findings, out: Path | None, screen: Console, *, brief: bool) -> None:
    from ..study.claims import Verdict
    from ..study.report import count

    if not brief:
        _show_tables(findings, screen)
        screen.print()
        for j in findings.judged:
            screen.print(f"{j.tables.verdict.value.upper()}  {j.claim.id}", style="bold")
            screen.print(f'  "{j.claim.quote}" ({j.claim.where})')
            screen.print(f"  {j.tables.detail}")
    screen.print(f"\nBy the paper's own tables: {count([j.tables for j in findings.judged])}")
    against = [j.claim.id for j in findings.judged if j.tables.verdict is Verdict.CONTRADICTED]
    screen.print(f"Contradicted: {', '.join(against)}")
    if out is not None:
        screen.print(f"Report, tables, figures and claims are in {findings.write(out)}")
