"""A method that is not quite its paper's says so on the page and in the report, as in every other table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from test_pages import data_of
from watched_pages import Watched

from sagefl.methods import methods
from sagefl.selection.fidelity import ADAPTED, INSPIRED
from sagefl.view.report import report_page, write_page
from sagefl.view.shelf import Shelf, marked


def test_every_adapted_or_inspired_method_is_marked_and_no_other() -> None:
    for id, found in methods().items():
        kind = found.fidelity.partition(":")[0]
        assert marked(f"{id}:k=3") == ({"fidelity": found.fidelity} if kind in (ADAPTED, INSPIRED) else {})
    assert marked("no/such/file.py:Rule") == {}


def test_rules_are_marked_without_torch() -> None:
    code = "import sys\nfrom sagefl.view.shelf import marked\nassert marked('pens')\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def marked_runs(tmp_path: Path) -> Path:
    """A baseline, an adapted rule and one that is only inspired by its paper; what they decided is not the point."""
    for name in ("rg", "pens", "cfns-lite"):
        run = make_run(tmp_path / name, method="rg")
        file = run.path / "run.toml"
        file.write_text(file.read_text(encoding="utf-8").replace('id = "rg"', f'id = "{name}"'), encoding="utf-8")
    return tmp_path


def test_runs_of_such_methods_say_so_to_the_page_and_in_the_report(marked_runs: Path) -> None:
    shelf = Shelf([marked_runs])
    runs: Any = data_of(report_page(shelf))["runs"]
    for found in (shelf.standings(), runs):
        said = {run["method"]: run.get("fidelity", "").partition(":")[0] for run in found}
        assert said == {"rg": "", "pens": ADAPTED, "cfns-lite": INSPIRED}


def test_a_reader_sees_the_marks(marked_runs: Path, watch: Callable[..., Watched]) -> None:
    file = marked_runs / "report.html"
    write_page(file, report_page(Shelf([marked_runs])))
    text = watch().open(file.as_uri()).inner_text("main")
    assert text.count("inspired by its paper, not ranked") == 1
    assert "cfns-lite is inspired by: only the abstract is public." in text
    assert "pens is adapted: heads stay local" in text
    assert "rg is" not in text
