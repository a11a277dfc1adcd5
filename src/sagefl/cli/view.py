"""`sagefl view` and `sagefl report`: look at runs, live or in one file."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .common import console, friendly_errors

if TYPE_CHECKING:
    from ..selection import Selector
    from ..selection.recorded import RecordedLosses

Runs = Annotated[list[Path], typer.Argument(help="Run directories, or folders that hold some.")]


def view(
    runs: Runs,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; default: 8427, or a free one.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
) -> None:
    """Follow running and finished runs on a local page: curves, network, every decision stage by stage."""
    _need_view()
    from ..view.server import kept_token, listen, serve
    from ..view.shelf import Shelf, refuse_damaged

    with friendly_errors():
        _exist(runs)
        refuse_damaged(Shelf(runs))
        token = kept_token()
        sock = listen(port)
    address = f"http://127.0.0.1:{sock.getsockname()[1]}/{token}/"
    typer.echo(f"Open {address}  (this machine only; Ctrl-C ends it)")
    if not no_browser and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(address)
    serve(Shelf(runs), token, sock)


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    detailed: Annotated[int, typer.Option(min=0, help="Rounds whose decisions are kept stage by stage.")] = 8,
) -> None:
    """Freeze the page's views into one self-contained HTML file."""
    _need_view()
    from ..view.report import report_page, write_page
    from ..view.shelf import Shelf, refuse_damaged

    with friendly_errors():
        _exist(runs)
        refuse_damaged(Shelf(runs))
        write_page(out, report_page(Shelf(runs), detailed=detailed))
    console().print(f"{out} ({out.stat().st_size / 1e6:.1f} MB): open it in any browser, no server or network needed")


def write_decision(path: Path, rule: Selector, recorded: RecordedLosses, seed: int, label: str) -> None:
    """`sagefl decide --html`: one decision as a page."""
    _need_view()
    from ..view.report import decision_page, write_page
    from ..view.unfolding import unfold_losses

    write_page(path, decision_page(unfold_losses(rule, recorded, seed, label)))
    typer.echo(f"{path}: open it in any browser", err=True)


def _exist(runs: list[Path]) -> None:
    for path in runs:
        if not path.is_dir():
            raise UsageError(f"no such directory: {path}")


def _need_view() -> None:
    """Import all that pages need before work begins; first what names the extra if it is missing."""
    for package in ("starlette", "uvicorn", "polars"):
        import_module(package)
