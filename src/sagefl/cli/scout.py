"""`sagefl scout`: will choosing pay here?"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from ..errors import UsageError
from .common import console, friendly_errors
from .flags import How, WorldFlags, grouped


@grouped
def scout(
    *,
    world: WorldFlags,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Train nothing: judge by the losses that this run recorded, or these nodes. Repeatable.",
        ),
    ] = None,
    pilot: Annotated[
        int | None, typer.Option(help="Rounds of the pilot; default: as many as make about a tenth of a run.")
    ] = None,
    map_: Annotated[Path | None, typer.Option("--map", help="Draw the map here: FILE.png or FILE.svg.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write verdict, figures and map as one HTML page.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep verdict and map in this folder, for `sagefl view` and `sagefl report`.")
    ] = None,
    how: How,
    json_: Annotated[bool, typer.Option("--json", help="Print everything by name as JSON, and nothing else.")] = False,
) -> None:
    """Say whether choosing will pay in a world: choose, gossip, stay at home, or cannot tell, and why."""
    with friendly_errors():
        from ..api.scouting import scout_runs, scout_world

        if map_ is not None:
            from ..study.canvas import check_picture

            check_picture(map_)
        if run:
            if world.config or world.keys or pilot is not None:
                raise UsageError("--run judges what was recorded and makes no pilot: leave out --pilot and the world")
            found = scout_runs(run)
        else:
            found = scout_world(world.resolve(), how.execution, pilot)
        written = []
        if map_ is not None:
            found.plot(map_)
            written.append(f"The map is in {map_}")
        if report is not None:
            written.append(f"The report is in {found.report(report)}")
        if out is not None:
            found.write(out)
            written.append(f"To look at it: sagefl view {out}")
    if json_:
        typer.echo(json.dumps(found.document(), indent=1))
        return
    screen = console()
    screen.print(found.sentence, style="bold")
    screen.print()
    for line in found.lines():
        screen.print(fill(line, 110))
    for line in written:
        screen.print(line)
