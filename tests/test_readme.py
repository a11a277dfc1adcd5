"""What the README shows is what happens: every block in it is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sagefl import selectors
from sagefl.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.M | re.S)
PYTHON = [(code, shown) for (kind, code), (after, shown) in pairwise(BLOCKS) if (kind, after) == ("python", "text")]
CONSOLE = [text for kind, text in BLOCKS if kind == "console"]


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_every_block_is_covered() -> None:
    assert len(PYTHON) >= 3
    assert len(CONSOLE) >= 2
    assert len(BLOCKS) == 2 * len(PYTHON) + len(CONSOLE)


@pytest.mark.parametrize(("code", "shown"), PYTHON)
def test_python_blocks_print_what_is_shown(code: str, shown: str) -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert trimmed(run.stdout) == trimmed(shown)


@pytest.mark.parametrize("block", CONSOLE)
def test_commands_print_what_is_shown(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, shown = block.split("\n", 1)
    assert command.startswith("$ sagefl ")
    result = CliRunner().invoke(app, shlex.split(command)[2:])
    assert result.exit_code == 0, result.output
    assert trimmed(result.output) == trimmed(shown)


def test_the_first_commands_are_the_two_that_matter() -> None:
    indented = re.findall(r"^    (\S.*)$", README, flags=re.M)
    assert [line.split("#")[0].strip() for line in indented[:2]] == ["make demo", "make test"]
    assert README.index("make demo") < README.index("```")


def test_the_embedding_loop_is_the_one_that_was_promised() -> None:
    code = PYTHON[0][0]
    assert "while (probe := decision.request) is not None:" in code
    assert "decision.answer(my_losses(probe.peers, probe.start, probe.stop))" in code


def test_the_rules_it_lists_exist() -> None:
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", README, flags=re.M)
    assert {"sage-os", "sage-os-table", "sage-vanilla", "sage-nf", "aq-128", "rg", "local"} <= set(listed)
    assert set(listed) <= set(selectors())


def test_what_it_links_to_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"^    (\S+/)\s", README, flags=re.M):
        assert (ROOT / path).is_dir(), path


def test_the_example_is_what_its_script_makes() -> None:
    """The recorded losses are made up, and the script says how."""
    script = ROOT / "examples" / "make_losses.py"
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == (ROOT / "examples" / "losses.csv").read_text()


def test_the_pointwise_claim_is_never_made() -> None:
    """The guarantee holds in expectation; "never worse than gossip" is false."""
    assert "in expectation" in README
    assert not re.search(r"never (?:be )?worse|no worse than|always (?:better|beats)|guaranteed to beat", README, re.I)
