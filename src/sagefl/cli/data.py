"""`sagefl data`: which data sets are here, and how to get the others."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import Group, console, friendly_errors

group = typer.Typer(cls=Group, help="Data sets: what is here, and how to get more.", no_args_is_help=True)


@group.command("list")
def list_() -> None:
    """Say which data sets are present and where."""
    from ..data import datasets

    out = console()
    for name, entry in datasets().items():
        where = entry.find()
        out.print(f"{name:<12} {f'present: {where}' if where else 'absent'}")
    out.print(
        "fmnist-mini and sotu-mini are always there. Your own: FILE.npz, .csv or .parquet, a folder of .npy files, "
        "module:function, or hf:NAME (extra hf)."
    )


@group.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A name that `sagefl data list` prints.")],
    dest: Annotated[str | None, typer.Option(help="Data folder; default: the user's cache, or $SAGEFL_DATA.")] = None,
) -> None:
    """Fetch a data set, verify it, and say where it is; or say every way to get it."""
    from ..data import get as fetch

    with friendly_errors():
        typer.echo(f"{name} is in {fetch(name, dest, typer.echo)}")
