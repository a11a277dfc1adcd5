"""What commands share: readable errors, missing extras, and the console."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from ..errors import SageflError, said
from ..extras import how_to_install, lacking
from ..learning.memory import keep_freed_memory
from ..references import place

WHOLE = {"node": "node", "swarm": "node", "view": "view", "report": "view", "study": "study"}
"""Commands that need more than the extra `sim`, with the extra (which includes it) that they need."""

SELDOM = 50_000
"""New objects between two searches for cycles. Loading torch makes hundreds of thousands that stay; at Python's usual
pace a small run spent .2 s of CPU on searching them."""

LARGEST = 32 << 20
"""Bytes of the largest block that is kept when freed: activations are smaller, and the tables of many clients, which
one run after another allocates, are not."""

WIDE = 1000  # width where there is no terminal, so that nothing is cut in a file or pipe


def console() -> Console:
    """A console that prints plain, uncut text when it is not a terminal; it never interprets markup."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> Table:
    """A plain table; columns named in `left` are left-aligned, the others right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        made.add_column(name, justify="left" if name in left else "right")
    for row in rows:
        made.add_row(*row)
    return made


def print_whole(out: Console, made: Table) -> None:
    """Print a table so that nothing of it is cut: one that is too wide is turned if that fits, else the terminal wraps.

    A turned table has a row for each column.
    """

    def needed(shown: Table) -> int:
        return out.measure(shown, options=out.options.update(max_width=WIDE)).maximum

    head, *rows = [(str(c.header).replace("\n", " "), *map(str, c.cells)) for c in made.columns]
    turned = table(head, rows, left=head[:1])
    shown = turned if needed(made) > out.width >= needed(turned) else made
    out.width, before = max(out.width, needed(shown)), out.width
    out.print(shown)
    out.width = before


def number(value: float | None, format: str = ".4f") -> str:
    """A result in a table; a dash where there is none."""
    return "-" if value is None else f"{value:{format}}"


def fail(message: str, code: int = 2) -> NoReturn:
    """Print an error and exit."""
    typer.echo(f"sagefl: {message}", err=True)
    raise typer.Exit(code)


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Say a user's mistake, one in their code, or a file that cannot be read or written in one line.

    Any other error is a bug of ours and keeps its traceback: without it nobody can fix it.
    """
    try:
        yield
    except (SageflError, OSError) as error:
        fail(_noted(error, _unusable(error) if isinstance(error, OSError) else str(error)))
    except Exception as error:
        if (where := place(error)) is None:
            raise
        fail(_noted(error, f"{where}: {said(error)}"))


def _unusable(error: OSError) -> str:
    """What is wrong with which file."""
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def _noted(error: BaseException, message: str) -> str:
    """The message with the notes of its error: which task failed, of which client and in which round."""
    return "\n".join([message, *getattr(error, "__notes__", ())])


def _settle_process() -> None:
    """Settings of the whole process, so only commands make them."""
    gc.set_threshold(SELDOM, *gc.get_threshold()[1:])
    atexit.unregister(gc.freeze)  # once, however many commands a process runs
    atexit.register(gc.freeze)  # before Python's last search for cycles, which took .4 s where torch is loaded
    keep_freed_memory(LARGEST)


class Group(TyperGroup):
    """Some commands; the list of them has whole sentences, where typer cuts them off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A row for each command."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(limit=200)) for name, c in commands.items() if c])


class Commands(Group):
    """All commands. One that needs a package that is not installed says which extra brings it.

    This is done here, for all of them, so that no command can forget it.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        _settle_process()
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (extra := lacking(error)) is None:
                raise
            command = ctx.invoked_subcommand
            needed = WHOLE.get(command, extra) if extra == "sim" else extra
            fail(f"`sagefl {command}` needs {error.name}, which is not installed: {how_to_install(needed)}")
