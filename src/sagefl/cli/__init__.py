"""The `sagefl` command. It is thin: every command parses, calls the library and prints.

One module per group of commands; each imports what it needs when it runs, so that `sagefl --help` stays fast.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import bench, core, data, methods, minutes, node, regret, scout, simulate, study, view
from .common import Commands

__all__ = ["app"]

app = typer.Typer(
    name="sagefl",
    cls=Commands,
    help="Certified peer selection for decentralised federated learning: ask before you download.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sagefl {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Certified peer selection for decentralised federated learning: ask before you download."""


_COMMANDS = (
    *(core.decide, core.plan, scout.scout),
    *(simulate.run, simulate.resume, simulate.compare, simulate.replay, minutes.minutes),
    *(simulate.config, simulate.columns),
    *(methods.methods, regret.regret, node.swarm, view.view, view.report, bench.bench),
)
for _command in _COMMANDS:
    app.command()(_command)
for _name, _group in {"data": data.group, "study": study.group, "node": node.group}.items():
    app.add_typer(_group, name=_name)
