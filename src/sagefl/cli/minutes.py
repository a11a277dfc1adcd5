"""`sagefl minutes`: how long a finished run would have taken on other networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..settings import number_list, split_list
from .common import console, fail, friendly_errors, print_whole, table

if TYPE_CHECKING:
    from ..runs.rundir import RunDirectory


def minutes(
    runs: Annotated[list[Path], typer.Argument(help="Runs, or folders that hold some.")],
    network: Annotated[
        str, typer.Option(help="Comma-separated: equal, phones, wan, edge, or files with a line per client.")
    ] = "wan,phones,edge",
    to: Annotated[str, typer.Option(help="Accuracies in per cent: when was each first seen?")] = "30,50",
    csv: Annotated[Path | None, typer.Option(help="Write the table here, too, with all digits.")] = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Load the code that a run's config names: a model, a rule, data.")
    ] = False,
) -> None:
    """Count the minutes that finished runs would have taken, without training again."""
    with friendly_errors():
        from ..runs.files import RunError, csv_text, write_text
        from ..runs.rundir import RunDirectory, runs_below

        directories = [RunDirectory(place) for folder in runs for place in runs_below(folder)]
        if not directories:
            fail(f"no run in {', '.join(map(str, runs))}")
        if not allow_code and (named := sorted({name for d in directories for name in d.config.code})):
            fail(f"these runs name code that would be run: {', '.join(named)}; if you trust it, --allow-code")
        levels, rows, refused = number_list("--to", to), [], []
        for directory in directories:
            try:
                rows += _rows(directory, split_list(network), levels)
            except RunError as error:
                refused.append(str(error))
        if not rows:
            fail(refused[0])
        head = ["run", "method", "seed", "rounds", "network", "minutes", *(f"to {level} %" for level in levels)]
        if csv is not None:
            write_text(csv, csv_text([[name.replace(" %", "").replace(" ", "_") for name in head], *rows]))
        shown = [[*map(str, row[:5]), *("" if v is None else f"{v:.2f}" for v in row[5:])] for row in rows]
        print_whole(console(), table(head, shown, left=head[:5]))
        for why in refused:
            typer.echo(why, err=True)


def _rows(directory: RunDirectory, networks: list[str], levels: list[int]) -> list[list[Any]]:
    from ..runs.config import method_label
    from ..runs.summary import first_seen
    from ..simulation.retiming import minutes_on

    config, metrics = directory.config, directory.table("metrics")
    rows: list[list[Any]] = []
    for name, at in minutes_on(directory, networks).items():
        reached = first_seen(metrics, at, levels)
        method = method_label(config.method.model_dump())
        named = [directory.path.name, method, config.seed, len(at), name]
        rows.append([*named, at[-1], *(reached.get(level) for level in levels)])
    return rows
