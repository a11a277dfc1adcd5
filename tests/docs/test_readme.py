"""The first page: what it begins with, what it lists, and that the demo prints what it shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from doc_pages import ROOT, agrees, blocks, commands, text
from typer.main import get_command

from sagefl import selectors
from sagefl.cli import app
from sagefl.extras import how_to_install
from sagefl.selection.registry import RECOMMENDED

PAGE, FIRST_HOUR, INSTALL = ROOT / "README.md", ROOT / "docs" / "first-hour.md", ROOT / "docs" / "install.md"
README = text(PAGE)


def test_the_first_commands_are_the_two_that_matter() -> None:
    first = blocks(PAGE)[0]
    assert [command for command, _ in commands(first)] == ["make demo", "make test"]
    assert "asks before it downloads" in README[: README.index("make demo")]


def test_it_begins_with_a_picture_and_a_conclusion_that_was_computed() -> None:
    """The sentence is the recorded one, and that is what its numbers say."""
    found = json.loads((ROOT / "results" / "demo" / "conclusion.json").read_text(encoding="utf-8"))
    beginning = " ".join(README[: README.index("make demo")].split())
    assert "docs/images/demo.png" in beginning
    assert (ROOT / "docs" / "images" / "demo.png").is_file()
    assert found["sentence"] in beginning
    accuracy, gain = found["accuracy"], found["gain"]
    ours = accuracy[RECOMMENDED]
    assert f"{ours:.1%}" in found["sentence"]
    assert f"{found['bytes']:.1%}" in found["sentence"]
    for method, points in gain.items():
        assert points == pytest.approx(100 * (ours - accuracy[method]))
        assert f"{points:+.1f} " in found["sentence"]
    assert found["scout"] in text(FIRST_HOUR)


def test_it_says_what_it_is_for_before_it_gives_figures_and_explains_the_rules_it_names() -> None:
    beginning = README[: README.index("make demo")]
    first, *_ = beginning.removeprefix("# sagefl").strip().split("\n\n")
    assert not re.search(r"\d|!\[", first)
    assert "a Python library for decentralised federated learning" in first
    for rule in (f"`{RECOMMENDED}` ", "`sage-os` "):
        assert rule in beginning
    more = README[README.index("## More") :]
    for page in ("howto/scout.md", "howto/flower.md"):
        assert f"(docs/{page})" in more


def test_the_table_of_situations_is_what_was_measured() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import results_page
    finally:
        sys.path.pop(0)
    assert results_page.situations() in README


def test_it_stays_short() -> None:
    assert len(README.split()) < 870
    assert len(README.splitlines()) < 228 / 2


def test_the_targets_that_the_pages_name_exist() -> None:
    named = set()
    for page in (PAGE, ROOT / "CONTRIBUTING.md"):
        named |= {command for b in blocks(page) if b.kind == "console" for command, _ in commands(b)}
    targets = {command.split()[1] for command in named if command.startswith("make ")}
    assert {"demo", "test", "docs"} <= targets
    for target in targets:
        planned = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert planned.returncode == 0, planned.stderr


def test_the_extras_it_lists_are_those_there_are_and_their_commands_exist() -> None:
    rows = [line.strip("| ").split(" | ") for line in text(INSTALL).splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z]+)`", row[0])]
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(named) == sorted(there.keys() - {"docs"})  # that one builds the site
    typed = {words.split()[0] for row in rows for words in re.findall(r"`([a-z][^`:]*)`", row[1])}
    assert {"run", "view", "study", "node"} <= typed <= set(get_command(app).commands)


def test_the_way_to_install_that_it_shows_is_the_one_that_messages_and_make_give() -> None:
    (by_hand,) = [c for b in blocks(INSTALL) for c, _ in (commands(b) if b.kind == "console" else []) if "pip" in c]
    assert by_hand == f"pip {how_to_install('sim,view,study').split('pip ')[1]}"
    assert "pip install --quiet -c constraints.txt -e " in (ROOT / "Makefile").read_text()


def test_the_embedding_loop_is_the_one_that_was_promised() -> None:
    code = next(b.text for b in blocks(PAGE) if b.kind == "python" and ".begin(" in b.text)
    begin = code.splitlines().index(next(line for line in code.splitlines() if ".begin(" in line))
    loop = "\n".join(code.splitlines()[begin : begin + 4])
    assert "while (probe := decision.request) is not None:" in loop
    assert "decision.answer(my_losses(probe.peers, probe.start, probe.stop))" in loop
    assert "outcome = decision.outcome" in loop


def test_the_rules_it_lists_exist() -> None:
    page = text(ROOT / "docs" / "howto" / "choose-rule.md")
    rules = page[page.index("## All rules") :]
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", rules, flags=re.M)
    assert {"sage-os", "sage-os-table", "sage-vanilla", "sage-nf", "aq-128", "rg", "local"} <= set(listed)
    assert set(listed) <= set(selectors())


def test_it_says_what_is_not_promised() -> None:
    limits = README[README.index("## What it does not promise") :]
    for said in ("in expectation", "proxy", "Neighbours see your anchors", "taken at their word"):
        assert said in limits
    # with bad peers, or where all harm, rules do beat gossip although the task is the same: see the table above
    assert "**Where all clients learn the same task, behave, and do each other no harm, no rule" in limits


def test_every_alternative_is_named_with_what_it_does_more() -> None:
    table = text(ROOT / "docs" / "others.md")
    for name in ("gossipy", "fluke", "p2pfl", "Murmura", "Flower", "decentralizepy", "NEBULA", "SONAR"):
        row = next(line for line in table.splitlines() if line.startswith(f"| [{name}]"))
        assert all(cell.strip() for cell in row.strip("|").split("|"))


def test_the_example_is_what_its_script_makes() -> None:
    """The recorded losses are made up, and the script says how."""
    script = ROOT / "examples" / "make_losses.py"
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == (ROOT / "examples" / "losses.csv").read_text()


def test_the_demo_begins_with_the_decision_that_is_shown() -> None:
    """The quick part of the demo; the slow test below runs all of it."""
    shown = demo()
    run = subprocess.run(
        [str(Path(sys.executable).parent / "sagefl"), "decide", "examples/losses.csv"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    printed = [line.rstrip() for line in run.stdout.strip().splitlines()]
    assert [line.rstrip() for line in shown[: len(printed)]] == printed


@pytest.mark.slow
def test_the_demo_prints_what_is_shown() -> None:
    shown = demo()
    subprocess.run(["rm", "-rf", "runs/demo"], cwd=ROOT, check=True)
    command = ["make", "--no-print-directory", "demo"]  # called by `make test-slow`, make names the folder otherwise
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert run.returncode == 0, run.stderr
    printed = [line.rstrip() for line in run.stdout.strip().splitlines() if not line.startswith("Setting up")]
    assert agrees(shown, printed, approx=True), "\n".join(printed)


def demo() -> list[str]:
    """What the first hour shows of the demo, set-up aside."""
    typed = [pair for b in blocks(FIRST_HOUR) if b.kind == "console" for pair in commands(b)]
    return next(shown for command, shown in typed if command == "make demo")[1:]
