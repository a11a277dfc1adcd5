"""What commands share: errors for people, option parsing, and the console."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console

__all__ = ["console", "fail", "friendly_errors", "parse_options"]


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
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """``["delta=.05", "ties=lowest-index"]`` as keyword options."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"options are written name=value, got {pair!r}")
        options[name.strip().replace("-", "_")] = _value(text.strip())
    return options


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text.lower(), text)
