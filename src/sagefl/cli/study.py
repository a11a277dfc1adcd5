"""`sagefl study`: many runs, one answer. The paper's study, the extensions', and anybody's own from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..settings import nested, number_list, parse_options, split_list
from .cells import carry_out, command_line, show_status
from .common import Group, console, friendly_errors, table
from .flags import grouped

if TYPE_CHECKING:
    from rich.console import Console

    from ..study.design import Design, Findings
    from ..study.study import Study


class _Studies(Group):
    """Takes what is no command for a study to run: `sagefl study FILE.toml` is `sagefl study run FILE.toml`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["run", *args])


group = typer.Typer(
    cls=_Studies,
    help="Studies: many runs, one answer. `sagefl study FILE.toml` runs yours, `sagefl study paper` the paper's.",
    no_args_is_help=True,
)


Axis = Annotated[str | None, typer.Option(help="Comma-separated, instead of those in the study's grid.")]
CELLS = Path("runs/cells")


@dataclass(frozen=True)
class Scope:
    """Which cells of a study, and at what scale."""

    preset: Annotated[
        str | None, typer.Option(help="A scale from the file; of the paper: smoke (minutes), laptop (hours), paper.")
    ] = None
    datasets: Axis = None
    topologies: Axis = None
    alphas: Axis = None
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated, options as id:name=value; +ID adds to the study's.")
    ] = None
    first: Annotated[int | None, typer.Option(min=2, help="Only the study's first so many methods.")] = None
    seeds: Annotated[str | None, typer.Option(help="Comma-separated seeds, or a range such as 1-5.")] = None
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of the study's.")] = None
    max_batches: Annotated[int | None, typer.Option(help="Cap on local mini-batches a round.")] = None
    clients: Annotated[int | None, typer.Option(help="Clients instead of the study's.")] = None
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any config key, section.key=value.")
    ] = None

    def design(self, what: str) -> Design:
        """The study of that name or file, so far."""
        from ..study.design import Design
        from ..study.paper import design

        scale = {"rounds": self.rounds, "training.max_batches": self.max_batches, "clients": self.clients}
        axes: dict[str, Any] = {
            "datasets": split_list(self.datasets or ""),
            "topologies": split_list(self.topologies or ""),
            "alphas": _numbers("--alphas", self.alphas),
            "methods": split_list(self.methods or ""),
            "seeds": number_list("--seeds", self.seeds) if self.seeds else [],
            "first": self.first,
            "overrides": nested({k: v for k, v in scale.items() if v is not None} | parse_options(self.set_ or [])),
        }
        return design(self.preset, **axes) if what == "paper" else Design.read(what, self.preset, **axes)


@dataclass(frozen=True)
class Work:
    """How cells are carried out."""

    jobs: Annotated[
        int | None, typer.Option(help="Cells at a time, a core each; 1: one cell at a time on all cores.")
    ] = None
    workers: Annotated[int | None, typer.Option(help="Worker processes of a cell (with --jobs 1).")] = None
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", help="Rounds between checkpoints (with --jobs 1 or --ray).")
    ] = 10
    ray: Annotated[bool, typer.Option("--ray", help="Cells as tasks of a Ray cluster, a CPU each.")] = False
    ray_address: Annotated[
        str | None,
        typer.Option(help="That cluster: HOST:PORT, auto or local; default: one that is found, else a local one."),
    ] = None


@group.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("study.toml"),
) -> None:
    """Write a study of your own to start from, every key explained; it runs as it stands, in about a minute."""
    from ..study.spec import shipped

    with friendly_errors():
        if file.exists():
            raise UsageError(f"{file} is there already: name another file")
        file.write_text(shipped("start"), encoding="utf-8")
    typer.echo(f"{file}: edit it, then `sagefl study {file}`; `--status` lists its cells and runs nothing")


@group.command()
@grouped
def run(
    *,
    what: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="FILE.toml, or paper, gap, beyond, confirmation, worlds, further, culprits, ablations, misses, level, "
            "time.",
        ),
    ],
    scope: Scope,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; default: results/STUDY-PRESET.")] = None,
    cells: Annotated[Path, typer.Option(help="Folder of runs by config hash, shared between studies.")] = CELLS,
    work: Work,
    from_: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Report from the cells.csv of a folder; runs nothing. Repeatable."
        ),
    ] = None,
    known: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER", help="A folder whose cells are not run again; default: OUT and OUT-*. Repeatable."
        ),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="The paper by its own tables only; runs nothing.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Which cells are done; runs nothing.")] = False,
    no_run: Annotated[
        bool,
        typer.Option("--no-run", help="Report on cells that are done, here or in --known; runs nothing."),
    ] = False,
    no_sweeps: Annotated[bool, typer.Option("--no-sweeps", help="Leave out the paper's replay sweeps.")] = False,
    no_pages: Annotated[bool, typer.Option("--no-pages", help="Leave out the pages of the runs themselves.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="No tables and no list of claims on the screen.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="As --brief, and no progress.")] = False,
) -> None:
    """Run a study: methods x worlds x seeds. A file of your own, or one that comes with sagefl.

    FILE.toml: `sagefl study init` writes one to start from. paper: does the paper hold, claim by claim. gap: what makes
    its rules that always commit lose. beyond and confirmation: certificates beyond the paper against gossip. worlds and
    further: where does choosing pay? culprits: does asking keep bad peers out? ablations: what does sage-m owe to its
    parts? misses: would another design have met the targets that it misses? level: does it cost nothing where there is
    nothing to choose? time: does stopping early pay in minutes?
    """
    from ..runs.environment import asked_once

    with friendly_errors(), asked_once():
        from ..study import paper as papers
        from ..study.design import Findings
        from ..study.recalling import beside
        from ..study.study import Study

        screen, brief = console(), brief or quiet
        if audit and what != "paper":
            raise UsageError("--audit is about the paper's own tables: sagefl study paper --audit")
        if audit:
            return _show_audit(papers.audit(command_line()), out, screen, brief=brief)
        design = scope.design(what)
        if from_:
            return _conclude(Findings.read(design, from_, command_line()), out, screen, brief=brief)
        place = out or Path("results") / design.name
        study = Study(design, cells, out=place, known=known or beside(place))
        if status:
            return show_status(study, screen)
        if not no_run:
            carry_out(study, screen, quiet=quiet, **vars(work))
        if count := study.contradicted():
            screen.print(f"{count} known cells were run here, too, and came out otherwise: the runs here count")
        found = study.find(sweeps=not no_sweeps, command=command_line(), pages={} if no_pages else _pages(study))
        _conclude(found, study.out, screen, brief=brief)
    if study.failures:
        raise typer.Exit(1)


# What is asked ------------------------------------------------------------------------------------------------------


def _numbers(flag: str, text: str | None) -> list[float]:
    try:
        return [float(part) for part in split_list(text or "")]
    except ValueError:
        raise UsageError(f"{flag} takes numbers separated by commas, got {text!r}") from None


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
    if not brief:
        _show_tables(findings, screen)
    if findings.design.trial is not None:
        _show_comparisons(findings, screen, brief=brief)
    if findings.judged:
        _show_claims(findings, screen, brief=brief)
    screen.print("\nScale: " + "\n       ".join(findings.scale))
    for note in findings.notes:
        screen.print(f"Left out: {note}")
    if out is not None:
        what = "Report, tables, figures and claims" if findings.judged else "Report, tables and figures"
        screen.print(f"\n{what} are in {findings.write(out)}")


def _show_comparisons(findings: Findings, screen: Console, *, brief: bool) -> None:
    from ..study.account import WORDS, primary_lines, sheets

    for sheet in () if brief else sheets(findings):
        screen.print(f"\n{sheet.title}", style="bold")
        rows = [[text.replace("**", "") for text in row] for row in sheet.rows]
        screen.print(table(sheet.heads, rows, left=WORDS))
        for sentence in sheet.caveats:
            screen.print(sentence)
    for line in primary_lines(findings):
        screen.print("\n" + line.replace("**", "").replace("`", ""))


def _show_claims(findings: Findings, screen: Console, *, brief: bool) -> None:
    from ..study.report import counted

    if not brief:
        rows = [(j.claim.id, j.tables.verdict.value, j.printed.short, j.runs.short) for j in findings.judged]
        heads = ("claim", "by its own tables", "by one run a cell", "over seeds")
        screen.print()
        screen.print(table(heads, rows, left=heads))
    for line in findings.answer or counted(findings):
        screen.print(f"\n{line}")


def _show_tables(findings: Findings, screen: Console) -> None:
    from ..study.render import to_rich

    for made in findings.tables:
        for title, shown in to_rich(made):
            screen.print(f"\n{title}", style="bold")
            screen.print(shown)


def _show_audit(findings: Findings, out: Path | None, screen: Console, *, brief: bool) -> None:
    from ..study.answer import count
    from ..study.claims import Verdict

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
