"""`sagefl study beyond`: can a receiver that asks first beat gossip, and at what price?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..settings import nested, parse_options
from .cells import Where, carry_out, command_line, failed, jobs_of, present, show_status
from .common import console, fail, friendly_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from ..study.beyond import Design
    from ..study.collect import Record

__all__ = ["add_to"]


def add_to(group: typer.Typer) -> None:
    """Register this module's command among the studies."""
    group.command()(beyond)


def beyond(
    preset: Annotated[str, typer.Option(help="smoke (minutes, embedded data) or laptop (hours).")] = "smoke",
    out: Annotated[Path | None, typer.Option(help="Folder for the account, its tables and its figure.")] = None,
    cells: Annotated[Path, typer.Option(help="Folder of runs by config hash, shared between studies.")] = Path(
        "runs/cells"
    ),
    arms: Annotated[
        int | None, typer.Option(min=2, help="Only the first so many arms; the order is by weight.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any config key, section.key=value.")] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The two arms that came out ahead, on seeds nobody has looked at.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="Cells at a time, a core each.")] = None,
    known: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose cells.csv is trusted: its cells are not run again. Repeatable."),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Which cells are done; runs nothing.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Report on the cells that are done; runs nothing.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> None:
    """Certificates beyond the paper on trained models, against gossip: one primary comparison, the rest by Holm."""
    with friendly_errors():
        from ..study.beyond import CONFIRMATION, EXPERIMENT, plan_beyond
        from ..study.collect import collect, recall

        screen = console()
        design = CONFIRMATION if confirm else EXPERIMENT
        target = out or Path("results") / (f"beyond-{preset}" + ("-confirmation" if confirm else ""))
        planned = plan_beyond(preset, design, arms=arms, overrides=nested(parse_options(set_ or [])))
        kept = recall(planned, known or [])
        if status:
            show_status(planned, cells, screen, kept)
            return
        ran = {r.config.digest: r for r in collect(planned, cells)}
        _check_nothing_is_lost(target, kept | ran)
        open_ = [cell for cell in planned if cell.config.digest not in kept]
        here, notes = present(open_, cells, screen) if open_ and not no_run else ([], [])
        where = Where(jobs_of(preset, jobs), None, 10, False, None)
        failures = carry_out(here, cells, screen, where, quiet) if here else []
        _say_where_they_differ(kept, ran, screen)
        kept |= {r.config.digest: r for r in collect(planned, cells)}  # runs that are here come first
        records = [kept[cell.config.digest] for cell in planned if cell.config.digest in kept]
        if not records:
            fail("no cell is finished, so that there is nothing to report")
        notes += failed(failures, target)
        if unfinished := len(planned) - len(records) - len(failures):
            notes.append(f"{unfinished} of {len(planned)} planned cells are not finished")
        _write(target, records, notes, design)
        screen.print((target / "README.md").read_text(encoding="utf-8"), markup=False)
        screen.print(f"The account, its numbers and its figure are in {target}")
    if failures:
        raise typer.Exit(1)


def _check_nothing_is_lost(target: Path, kept: Mapping[str, Record]) -> None:
    """The runs of an account may be gone, so that its ``cells.csv`` is all there is: never write it with fewer."""
    from ..study.collect import read_records

    path = target / "cells.csv"
    held = [r.config.digest for r in read_records(path)] if path.is_file() else []
    if lost := [digest for digest in held if digest not in kept]:
        fail(
            f"{path} holds {len(lost)} of {len(held)} cells that this account would drop: `--known {target}` goes on "
            "from those that are in the plan, another --out keeps them all"
        )


def _say_where_they_differ(known: Mapping[str, Record], ran: Mapping[str, Record], screen: Console) -> None:
    from ..study.collect import differ

    if count := sum(differ(known[digest], r) for digest, r in ran.items() if digest in known):
        screen.print(f"{count} known cells were run here, too, and came out otherwise: the runs here count")


def _write(out: Path, records: Sequence[Record], notes: Sequence[str], design: Design) -> None:
    from ..study.beyond import compare_arms
    from ..study.beyond_report import comparisons_csv, draw_price, to_markdown
    from ..study.collect import write_records
    from ..study.matrix import scale_of
    from ..study.paper import environment

    out.mkdir(parents=True, exist_ok=True)
    written = f"this account was written with {environment()}; its runs may be older"
    scale = [*scale_of([r.config for r in records])[:-1], written, *(f"left out: {note}" for note in notes)]
    (out / "README.md").write_text(to_markdown(records, scale, command_line(), design), encoding="utf-8")
    (out / "comparisons.csv").write_text(comparisons_csv(compare_arms(records, design)), encoding="utf-8")
    write_records(out / "cells.csv", records)
    if (drawn := draw_price(records, design)) is not None:
        (out / "price.svg").write_text(drawn.svg, encoding="utf-8")
        (out / "price.png").write_bytes(drawn.png)
