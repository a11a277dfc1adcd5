"""Tables and lists of commands on a terminal: nothing of them is ever cut, however narrow it is."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.cli.common import print_whole, table

HEAD = ("method", "accuracy", "vs rg", "client")
ROWS = [("rg", "0.4736 ±0.0387", "", "0.5178"), ("local", "0.4736 ±0.0394", "-0.0000 [-0.0104, +0.0104]", "0.5271")]


@pytest.mark.parametrize("width", [120, 52, 20])
def test_every_word_is_there_at_any_width(width: int) -> None:
    out = Console(file=StringIO(), width=width, force_terminal=True, color_system=None, highlight=False, soft_wrap=True)
    print_whole(out, table(HEAD, ROWS, left=("method",)))
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in said
    assert all(" ".join(cell.split()) in " ".join(said.split()) for row in ROWS for cell in row)
    assert said.split()[0] == "method"
    assert out.width == width


def test_a_table_that_does_not_fit_is_turned_if_that_does() -> None:
    out = Console(file=StringIO(), width=52, force_terminal=True, color_system=None, highlight=False, soft_wrap=True)
    print_whole(out, table(HEAD, ROWS, left=("method",)))
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].split() == ["method", "rg", "local"]
    assert [line.split()[0] for line in lines] == ["method", "accuracy", "vs", "client"]
    assert max(map(len, lines)) <= 52


@pytest.mark.parametrize("group", [[], ["node"], ["study"], ["data"]], ids=lambda g: " ".join(["sagefl", *g]))
def test_the_list_of_commands_has_whole_sentences(group: list[str]) -> None:
    told = CliRunner().invoke(app, [*group, "--help"], terminal_width=80).stdout.partition("\nCommands:\n")[2]
    assert told
    assert "..." not in told
    assert all(len(line) <= 80 for line in told.splitlines())
