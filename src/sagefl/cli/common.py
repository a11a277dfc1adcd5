"""What commands share: errors for people, and the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console

from ..errors import SageflError

__all__ = ["console", "fail", "friendly_errors"]


def console() -> Console:
    """A console that stays plain when it is not a terminal."""
    return Console(highlight=False, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """End with an error a person can act on."""
    typer.echo(f"sagefl: {message}", err=True)
    raise typer.Exit(2)


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Turn mistakes in arguments and files into one line instead of a traceback."""
    try:
        yield
    except (SageflError, ValueError, TypeError, OSError) as error:
        fail(str(error))
