"""The one way into sagefl here: its command line, in this process or in one of its own."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from sagefl.cli import app

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from sagefl.cli import app; app()"]


@cache
def _command() -> Any:
    return get_command(app)  # once: it takes longer than many a command


def sagefl(*arguments: object) -> str:
    """What a command prints, in this process; anything but success is an error."""
    printed, code = io.StringIO(), None
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            _command()([str(a) for a in arguments], prog_name="sagefl")
        except SystemExit as end:
            code = end.code
    assert code == 0, printed.getvalue()
    return printed.getvalue()


def apart(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A command in a process of its own, which whoever starts it must end."""
    command = [*COMMAND, *(str(a) for a in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def methods() -> list[str]:
    """Every registered method."""
    return [line.split()[0] for line in sagefl("methods").splitlines()[1:] if line[:1].strip()]


class Lab:
    """A folder in which runs are made when first asked for, and then shared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder of that name, made by `make` if it is not there."""
        target = self.folder / name.replace(":", "_").replace("/", "_")
        if not target.exists():
            make(target)
        return target
