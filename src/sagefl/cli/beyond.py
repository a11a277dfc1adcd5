"""`sagefl study beyond`: can a receiver that asks first beat gossip, and at what price?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..settings import nested, parse_options
from .cells import Where, carry_out, command_line, failed, jobs_of, present, show_status
from .common import console, fail, friendly_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        from ..study.beyond import plan_beyond
        from ..study.collect import collect, recall

        screen = console()
        planned = plan_beyond(preset, arms=arms, overrides=nested(parse_options(set_ or [])))
        kept = recall(planned, known or [])
        if status:
            show_status(planned, cells, screen, kept)
            return
        open_ = [cell for cell in planned if cell.config.digest not in kept]
        here, notes = present(open_, cells, screen) if open_ else ([], [])
        where = Where(jobs_of(preset, jobs), None, 10, False, None)
        failures = [] if no_run or not here else carry_out(here, cells, screen, where, quiet)
        target = out or Path("results") / f"beyond-{preset}"
        kept |= {r.config.digest: r for r in collect(planned, cells)}  # runs that are here come first
        records = [kept[cell.config.digest] for cell in planned if cell.config.digest in kept]
        if not records:
            fail("no cell is finished, so that there is nothing to report")
        notes += failed(failures, target)
        if unfinished := len(planned) - len(records) - len(failures):
            notes.append(f"{unfinished} of {len(planned)} planned cells are not finished")
        _write(target, records, notes)
        screen.print((target / "README.md").read_text(encoding="utf-8"), markup=False)
        screen.print(f"The account, its numbers and its figure are in {target}")
    if failures:
        raise typer.Exit(1)


def _write(out: Path, records: Sequence[Record], notes: Sequence[str]) -> None:
    from ..study.beyond import compare_arms
    from ..study.beyond_report import comparisons_csv, draw_price, to_markdown
    from ..study.collect import write_records
    from ..study.matrix import scale_of
    from ..study.paper import environment

    out.mkdir(parents=True, exist_ok=True)
    scale = [*scale_of([r.config for r in records])[:-1], environment(), *(f"left out: {note}" for note in notes)]
    (out / "README.md").write_text(to_markdown(records, scale, command_line()), encoding="utf-8")
    (out / "comparisons.csv").write_text(comparisons_csv(compare_arms(records)), encoding="utf-8")
    write_records(out / "cells.csv", records)
    if (drawn := draw_price(records)) is not None:
        (out / "price.svg").write_text(drawn.svg, encoding="utf-8")
        (out / "price.png").write_bytes(drawn.png)
