"""What commands share: errors for people, and the console."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table

from ..errors import SageflError

__all__ = ["WIDE", "console", "fail", "friendly_errors", "table"]


WIDE = 1000  # columns where there is no terminal: a file or a pipe cuts nothing


def console() -> Console:
    """A console that stays plain, and cuts nothing, when it is not a terminal; what is printed is never markup."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> Table:
    """A plain table: columns named in `left` are words, the others numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        made.add_column(name, justify="left" if name in left else "right")
    for row in rows:
        made.add_row(*row)
    return made


def fail(message: str, code: int = 2) -> NoReturn:
    """End with an error a person can act on."""
    typer.echo(f"sagefl: {message}", err=True)
    raise typer.Exit(code)


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Turn mistakes in arguments and files into one line instead of a traceback."""
    try:
        yield
    except (SageflError, ValueError, TypeError, OSError) as error:
        fail(str(error))
