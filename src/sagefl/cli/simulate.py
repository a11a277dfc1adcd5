"""`sagefl run`, `resume`, `compare`, `replay`, `config` and `columns`: the simulator on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..selection.registry import RECOMMENDED
from ..settings import nested, number_list, option_name, parse_options, parse_value, split_list
from .common import console, fail, friendly_errors, print_whole, table
from .flags import Config, HowToRun, MeasuredWorldFlags, Quiet, Set, grouped, resolve

if TYPE_CHECKING:
    from ..api.results import Results
    from ..runs.config import Execution, RunConfig


COMPARED = f"local,rg,aq-128,sage-os,{RECOMMENDED}"
DIVERGED = 3  # exit status: the run is complete, but training diverged
Out = Annotated[Path | None, typer.Option(help="Run directory; default: runs/METHOD-…-HASH.")]
Track = Annotated[list[str] | None, typer.Option(metavar="NAME", help="tensorboard, mlflow or wandb. Repeatable.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Make runs anew, also where there are finished ones.")]


@grouped
def run(
    *,
    method: Annotated[str | None, typer.Option(help="Method, with options as id:name=value:...")] = None,
    world: MeasuredWorldFlags,
    out: Out = None,
    how: HowToRun,
    track: Track = None,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Train K clients over T rounds under one method; an unfinished run of the same config is continued."""
    with friendly_errors():
        from ..simulation.comparing import folder_of

        resolved = world.resolve(method)
        directory, execution = out or folder_of(resolved), how.execution
    _simulate(resolved, directory, execution, track or [], quiet=quiet, fresh=fresh)


@grouped
def resume(
    *,
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    rounds: Annotated[
        int | None, typer.Option(help="More rounds for a finished run, as if it had been asked for them at first.")
    ] = None,
    how: HowToRun,
    track: Track = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Import the module:function that the folder's config names.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run; the result is the same as if it had never stopped."""
    with friendly_errors():
        from ..runs.rundir import RunDirectory
        from ..simulation.extending import longer

        place = RunDirectory(directory)
        if (code := place.config.code) and not allow_code:
            fail(f"{directory} names code that would be run: {', '.join(code)}; if you trust it, --allow-code")
        resolved = place.config if rounds is None else longer(place, rounds)
        execution = how.execution
    _simulate(resolved, directory, execution, track or [], quiet=quiet, extends=rounds is not None)


@grouped
def compare(
    *,
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs, or folders that hold some: compare these and run nothing.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Comma-separated methods, options as id:name=value; file.py:Class is one of yours.")
    ] = COMPARED,
    world: MeasuredWorldFlags,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds, as 1-5 or 1,4,9: means, spreads and paired differences.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the runs; default: runs/compare-…, with --seeds runs/cells, shared with studies."
        ),
    ] = None,
    how: HowToRun,
    fresh: Fresh = False,
    json_: Annotated[bool, typer.Option("--json", help="Print everything by name as JSON, and nothing else.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report page here, too.")] = None,
    quiet: Quiet = False,
) -> None:
    """Run several methods in the same world, or read runs that are there already, and print one table."""
    with _interruptible():
        from ..api import carry_out, load
        from ..simulation.comparing import folder_of_comparison, parts_of

        if runs:
            if world.config or world.keys or seeds is not None or out or fresh or methods != COMPARED:
                raise UsageError(
                    "folders of runs are compared as they are, nothing is run: leave out the folders, or what "
                    "describes runs (--methods, --config, --dataset, --seeds, --out, ...)"
                )
            results, notes = load(*runs), []
        else:
            resolved, chosen = world.resolve(), [] if seeds is None else number_list("--seeds", seeds)
            folder = out if out or seeds else folder_of_comparison(resolved)
            parts = parts_of(resolved, split_list(methods), chosen, folder)
            if not (quiet or json_):
                console().print(resolved.described(chosen))
            results = carry_out(parts, how.execution, console(), fresh=fresh, quiet=quiet or json_)
            notes = [f"Runs are in {folder or 'runs/cells'}"]
        if report is not None:
            notes.append(f"The report is in {results.report(report)}")
        _show(results, *notes, as_json=json_)


def replay(
    directory: Annotated[Path, typer.Argument(help="A run directory with recorded losses.")],
    method: Annotated[str, typer.Option(help="Rule, with options as id:name=value:...")] = "sage-os",
    lambda_: Annotated[str | None, typer.Option("--lambda", help="Prices to sweep, e.g. 0,5e-4,2e-3.")] = None,
    delta: Annotated[str | None, typer.Option(help="Failure probabilities to sweep, e.g. .05,.1.")] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="NAME=V1,V2", help="Any option to sweep, name=v1,v2. Repeatable.")
    ] = None,
) -> None:
    """Try other rules on recorded losses: sweep their options without training again."""
    with friendly_errors():
        from ..runs.replaying import replay_run, swept
        from ..runs.rundir import RunDirectory

        axes: dict[str, list[Any]] = {}
        for name, text in (("probe_cost", lambda_), ("delta", delta), *(_axis(s) for s in sweep or [])):
            if text is not None:
                axes[name] = [parse_value(v) for v in split_list(text)]
        results = replay_run(RunDirectory(directory), swept(method, axes))
    _print_replay(results)


def config(
    file: Config = None,
    set_: Set = None,
) -> None:
    """Print the resolved config as TOML; without arguments, a file to edit with every key, its meaning and choices."""
    with friendly_errors():
        from ..runs.config import RunConfig
        from ..runs.schema import template

        if file is None and not set_:
            typer.echo(template(RunConfig), nl=False)
        else:
            typer.echo(resolve(file, nested(parse_options(set_ or []))).to_toml())


def columns(
    only: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="metrics, decisions, clients, timings.")] = None,
) -> None:
    """Print what the tables of a run hold: every column with its type, unit and meaning."""
    from ..runs.columns import TABLES, every_column

    if only is not None and only not in TABLES:
        fail(f"there is no table {only!r}: {', '.join(TABLES)}")
    out, head = console(), ("column", "type", "unit", "meaning")
    for name in TABLES if only is None else (only,):
        rows = [(c.name, str(c.dtype), c.unit, c.explained) for c in every_column(name)]
        out.print(f"{name}.parquet: {TABLES[name]}", table(head, rows, left=head), "", sep="\n")


# Steps ------------------------------------------------------------------------------------------------------------


def _simulate(
    resolved: RunConfig,
    directory: Path,
    execution: Execution,
    track: Sequence[str],
    *,
    quiet: bool,
    fresh: bool = False,
    extends: bool = False,
) -> None:
    from ..api import checked_world
    from ..api.progress import RunProgress
    from ..api.results import Held, Results
    from ..runs.environment import asked_once
    from ..runs.rundir import RunDirectory
    from ..simulation.comparing import Part
    from ..simulation.simulator import Simulator
    from ..simulation.trackers import make_tracker

    out = console()
    part = Part(resolved.method.id, resolved, RunDirectory(directory))
    where = f"Runs are in {directory}"
    with asked_once():
        with friendly_errors():
            if not (fresh or extends) and part.read:
                out.print(f"{directory} is already finished: this was read, not run")
                for what in part.directory.differs():
                    out.print(f"It was made elsewhere ({what}): a run here would differ in the last digits.")
                _show(Results([Held(part.label, part.directory)], loaded=True), where)
                return
            if not quiet:
                out.print(resolved.described())
            trackers = [make_tracker(name, directory) for name in track]
            callbacks = [RunProgress(resolved.method.id, out, quiet=quiet), *trackers]
            simulator = Simulator(
                resolved, part.directory, execution, callbacks=callbacks, fresh=fresh, extends=extends
            )
            checked_world(simulator.world, [part], execution, out, quiet=quiet)
        with _interruptible():
            simulator.run()
    _show(Results([Held(part.label, part.directory, read=False)]), where)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Report a run that was stopped as a shell reports Ctrl-C, and a user's mistake in one line."""
    from ..simulation.simulator import InterruptedRunError

    with friendly_errors():
        try:
            yield
        except InterruptedRunError as error:
            fail(str(error), code=130)


def _axis(text: str) -> tuple[str, str]:
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"a sweep is written name=v1,v2, got {text!r}")
    return option_name(name), values


# Tables -----------------------------------------------------------------------------------------------------------


def _show(results: Results, *notes: str, as_json: bool = False) -> None:
    """The table, what its columns mean, and what must be known about it."""
    if as_json:
        typer.echo(json.dumps(results.document(), indent=1))
    else:
        _print(results, notes)
    if results.diverged:
        raise typer.Exit(DIVERGED)


def _print(results: Results, notes: Sequence[str]) -> None:
    out = console()
    made = results.__rich__()
    if out.is_terminal:
        for column in made.columns:
            column.header = str(column.header).replace(" ", "\n")
    out.print()
    print_whole(out, made)
    out.print("\n" + results.legend())
    for sentence in results.headroom():
        out.print("\n" + fill(sentence, 110))
    for note in (*results.notes(), *notes):
        out.print(note)


def _print_replay(results: Sequence[Any]) -> None:
    ends = ("certified", "committed", "cost", "exhausted", "no anchors", "unasked")
    head = ("rule", "covered", *ends, "evaluations", "evidence")
    rows = []
    for r in results:
        shares = (r.covered, r.certified, r.committed, r.cost, r.exhausted, r.no_anchors, r.unasked)
        rows.append((r.label, *(f"{v:.1%}" for v in shares), f"{r.evaluations:.1f}", f"{r.budget:.1%}"))
    out = console()
    out.print(f"{results[0].decisions} recorded decisions")
    out.print(table(head, rows, left=("rule",)))
    if any(r.covered < 1 for r in results):
        out.print(
            "\ncovered: decisions whose evidence was recorded; the others asked for more and are left out. The shares\n"
            "are of the covered decisions, which are those that end early, and not of all: compare rows at equal\n"
            "coverage only, and record everything with --set evaluation.losses=full."
        )
