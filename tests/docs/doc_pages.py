"""The pages as a reader types them: every code block of a page is run, in order, in one empty folder.

What a block is for is its language, and where that does not say enough a comment on the line above it::

    <!-- test: slow, approx -->

========== =========================================================================================================
python     run by itself; if a `text` block follows, that is what it prints
console    commands after ``$ ``, each with what it prints; ``...`` stands for any lines, or the rest of a line
toml, sh   a file of the page, written under the name in ``file NAME``; or a snippet of a file in the repository
========== =========================================================================================================

Marks: ``approx`` lets numbers differ by a point of accuracy, or by one in a hundred of what is counted (training
differs in the last bits from one CPU to another, and a decision may tip over), ``slow`` leaves the block to the slow
tests, ``clone`` to the slow test that walks through a fresh clone, and ``never: REASON`` says why a block cannot be run
by a test at all.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from typer.testing import CliRunner

from sagefl.cli import app

__all__ = ["PAGES", "ROOT", "Block", "Sandbox", "agrees", "blocks", "commands", "one_core", "replay", "text"]

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
KINDS = ("python", "text", "console", "toml", "sh")
FENCE = re.compile(r"(?:^<!-- test: (?P<marks>[^\n]*) -->\n)?^```(?P<kind>\S*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
SNIPPET = re.compile(r'^--8<-- "(?P<path>[^"]+)"$')
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?%?")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    kind: str
    text: str
    marks: tuple[str, ...] = ()

    def marked(self, name: str) -> bool:
        """Whether the mark stands there."""
        return any(re.split(r"[ :]", mark)[0] == name for mark in self.marks)

    @property
    def file(self) -> str | None:
        """The name under which the block is a file of the page."""
        return next((mark.removeprefix("file ") for mark in self.marks if mark.startswith("file ")), None)

    @property
    def snippet(self) -> Path | None:
        """The file of the repository that the block shows."""
        found = SNIPPET.match(self.text.strip())
        return ROOT / found["path"] if found else None


def text(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """A page's blocks in order."""
    content = text(page)
    return [
        Block(
            content.count("\n", 0, found.start("kind")) + 1,
            found["kind"].strip("{.}"),  # snippets are written {.python}: no formatter takes them for Python
            found["text"],
            tuple(part.strip() for part in (found["marks"] or "").split(",") if part.strip()),
        )
        for found in FENCE.finditer(content)
    ]


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Each command of a console block with the lines that it is shown to print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (found[-1][0][:-1] + line.lstrip("> "), [])
        elif found:
            found[-1][1].append(line)
        else:
            raise AssertionError(f"line {block.line}: a console block begins with a command after `$ `")
    return [(command.split("  #")[0].strip(), _stripped(shown)) for command, shown in found]


# Comparing what is shown with what was printed -----------------------------------------------------------------------


def agrees(shown: Sequence[str], printed: Sequence[str], *, approx: bool = False) -> bool:
    """Whether the output is what the page shows; ``...`` stands for any number of lines."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(agrees(shown[1:], printed[i:], approx=approx) for i in range(len(printed) + 1))
    return bool(printed) and _same(shown[0], printed[0], approx) and agrees(shown[1:], printed[1:], approx=approx)


def _same(shown: str, printed: str, approx: bool) -> bool:
    if shown.endswith(" ..."):  # the rest of the line is not shown
        return _same(shown[:-4], printed[: len(shown) - 4].rstrip(), approx)
    if not approx:
        return shown == printed
    if NUMBER.sub("0", shown).split() != NUMBER.sub("0", printed).split():
        return False
    pairs = zip_longest(NUMBER.findall(shown), NUMBER.findall(printed), fillvalue="nan")
    return all(_near(a, b) for a, b in pairs)


def _near(shown: str, printed: str) -> bool:
    """A point of accuracy, written as a share or in per cent; one in a hundred of what else is counted."""
    if shown.endswith("%") != printed.endswith("%"):
        return False
    a, b = (float(text.rstrip("%")) for text in (shown, printed))
    if shown.endswith("%"):
        slack = 1.0
    else:
        slack = 0.01 if "." in shown and abs(a) <= 1 else max(0.01 * abs(a), 0.1 if "." in shown else 1.0)
    return abs(a - b) <= slack + 1e-9


def _stripped(lines: Sequence[str]) -> list[str]:
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return kept


# Running it -----------------------------------------------------------------------------------------------------------


class Sandbox:
    """An empty folder with the examples in it, where a page is typed in; it becomes the current folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "site"  # where `pip install` puts things, instead of this environment
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = os.environ | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(self.packages),
            "PIP_TARGET": str(self.packages),
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the wrong way round: 0 is "no isolation"
            "PIP_QUIET": "1",
            "PORT": str(_free_port()),
        }
        (folder / "home").mkdir()
        os.chdir(folder)  # whoever makes a sandbox restores the current folder

    def command(self, line: str) -> list[str]:
        """What a command prints; it must end well. Plain `sagefl` commands run in this process, which has torch."""
        words = shlex.split(line)
        if words[0] == "cd":
            os.chdir(words[1])
            return []
        if words[0] == "sagefl" and not re.search(r"[|<>&;$*]", line) and not self.packages.exists():
            result = CliRunner().invoke(app, words[1:])
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            code, output = result.exit_code, result.output
        else:
            code, output = self._process(["bash", "-c", line])
        assert code == 0, f"{line}\nended with {code}:\n{output}"
        return _stripped(output.splitlines())

    def python(self, code: str) -> list[str]:
        """What a program prints; warnings count as errors."""
        status, output = self._process([sys.executable, "-W", "error", "-c", code])
        assert status == 0, output
        return _stripped(output.splitlines())

    def write(self, name: str, content: str) -> None:
        """Put a file of the page into the folder."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")

    def _process(self, arguments: Sequence[str]) -> tuple[int, str]:
        run = subprocess.run(
            arguments, env=self.environment, text=True, timeout=600,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return run.returncode, run.stdout


def _free_port() -> int:
    """A port whose successor is free as well, most likely."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return min(int(one.getsockname()[1]), 65_000)


@contextmanager
def one_core() -> Iterator[None]:
    """On one core a run works in one process, and everything it calls stays on that core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def replay(page: Path, sandbox: Sandbox, *, slow: bool = False) -> int:
    """Type the page in and compare; returns how many blocks were run."""
    found, ran = blocks(page), 0
    for block, after in zip_longest(found, found[1:]):
        if block.marked("never") or block.marked("clone") or (block.marked("slow") and not slow):
            continue
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.snippet is not None:
            continue  # a file that some command of the page runs: `test_snippets_are_run` sees to that
        if block.file is not None:
            sandbox.write(block.file, block.text)
        elif block.kind == "python":
            printed = sandbox.python(block.text)
            shown = _stripped(after.text.splitlines()) if after is not None and after.kind == "text" else []
            assert agrees(shown, printed, approx=block.marked("approx")), _difference(where, shown, printed)
        elif block.kind == "console":
            for command, shown in commands(block):
                printed = sandbox.command(command)
                same = agrees(shown, printed, approx=block.marked("approx"))
                assert same, _difference(f"{where}: {command}", shown, printed)
        else:
            continue  # the output of the block before
        ran += 1
    return ran


def _difference(where: str, shown: Sequence[str], printed: Sequence[str]) -> str:
    return "\n".join([where, "--- the page shows", *shown, "--- what is printed", *printed])
