"""The table of checks against papers: one row for every published method, from the tool's own list."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sagefl.data import DataError
from sagefl.methods import methods
from sagefl.methods.fidelity import ranked
from sagefl.runs.versions import METHODS

ROOT = Path(__file__).parents[2]
VERDICTS = {"reproduced", "direction only", "not reproduced", "not testable"}
CHEAP = ("d-psgd", "choco", "hoeffding-race", "median")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import fidelity
    finally:
        sys.path.pop(0)
    return fidelity


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, str]]:
    with (ROOT / "results/fidelity/checks.csv").open(encoding="utf-8") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def test_every_published_method_has_been_checked_against_its_paper(recorded: dict[str, dict[str, str]]) -> None:
    rivals = {id: found for id, found in methods().items() if found.citation and "SAGE" not in found.citation}
    assert rivals.keys() - {"pens-original", "average-all"} == recorded.keys()  # a preset, and a reference
    assert {row["verdict"] for row in recorded.values()} <= VERDICTS
    assert all(row["published"] and row["ours"] for row in recorded.values())
    for id, row in recorded.items():
        assert (row["verdict"] == "not testable") == (not ranked(id))
        assert bool(row["why"]) == (row["verdict"] in ("direction only", "not reproduced"))


def test_the_table_is_the_tools_and_of_the_versions_of_now(
    tool: ModuleType, recorded: dict[str, dict[str, str]]
) -> None:
    """Whoever changes a method's results runs its check again."""
    said = [tool.said(id) for id in tool.CHECKS]
    assert [{word: row[word] for word in said[0]} for row in recorded.values()] == said
    assert all(row["version"] == str(METHODS.get(id, 1)) for id, row in recorded.items())


@pytest.mark.slow
@pytest.mark.parametrize("id", CHEAP)
def test_a_check_that_is_run_again_says_the_same(
    id: str, tool: ModuleType, recorded: dict[str, dict[str, str]]
) -> None:
    """Shares and accuracies to a point or two: another kind of CPU moves a run of two seeds by that much."""
    try:
        again, held = tool.row(id), recorded[id]
    except DataError as absent:
        pytest.skip(f"the check of {id} needs published data: {absent}")
    assert again["verdict"] == held["verdict"]
    numbers = r"\d*\.?\d+"
    assert re.sub(numbers, "#", again["ours"]) == re.sub(numbers, "#", held["ours"])
    for now, then in zip(re.findall(numbers, again["ours"]), re.findall(numbers, held["ours"]), strict=True):
        assert float(now) == pytest.approx(float(then), abs=0.02 if "." in then else 5)


def test_the_page_of_all_methods_is_that_of_its_csv(tmp_path: Path) -> None:
    """With how true each is to its paper; `python tools/methods_table.py --no-run` makes it again."""
    shutil.copy(ROOT / "results/methods.csv", tmp_path)
    command = [sys.executable, ROOT / "tools/methods_table.py", "--no-run", "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    made, held = ((folder / "methods.md").read_text(encoding="utf-8") for folder in (tmp_path, ROOT / "results"))
    assert made == held  # its sentence on busy seconds, too
    rows = [line for line in made.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0].removeprefix("| ") for line in rows[2:]] == list(methods())
    assert (tmp_path / "methods.csv").read_bytes() == (ROOT / "results/methods.csv").read_bytes()


def test_the_table_of_all_methods_is_of_the_versions_of_now() -> None:
    """Whoever changes a method's results makes its rows again: `python tools/methods_table.py ID`."""
    with (ROOT / "results/methods.csv").open(encoding="utf-8") as file:
        made = {(row["method"], int(row["version"])) for row in csv.DictReader(file)}
    assert made == {(id, METHODS.get(id, 1)) for id in methods()}


def test_figures_on_the_page_are_recorded_ones() -> None:
    """DFedPGP's: why it is below local training there."""
    page = (ROOT / "docs/reference/methods.md").read_text(encoding="utf-8")
    text = re.split(r"^### ", page, flags=re.MULTILINE)[1]
    table = (ROOT / "results/methods.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\S+) \|(.*)$", table, re.MULTILINE))
    ours = {id: re.findall(r"0\.\d+", rows[id])[4] for id in ("dfedpgp", "rg", "local")}
    client = {id: f"{float(figure):.3f}" for id, figure in ours.items()}
    assert {f"0{figure}" for figure in re.findall(r"(?<!\d)\.\d{3}", text)} == set(client.values())
