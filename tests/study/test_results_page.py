"""`results/README.md` says what its CSVs say: it is made from them, and no figure in it is typed by hand."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = (  # what was planned, not what came out
    r"AQ-128|CIFAR-10|\b0-1 error|\b95 % interval|lambda = (0|2e-3)|\b2e-3|(ER|BA) / \.\d|alpha = \.\d|[KT] = \d+",
    r"seeds? [123]\b|\b(40|150|250) (rounds|whole)|\b8 (mini-batches|anchors)|\b25 rounds|\b250 epochs|\(d-1\)",
    r"degree 6|\b(32|128) anchors|for\s+90 %",
)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import results_page
    finally:
        sys.path.pop(0)
    return results_page


@pytest.fixture(scope="module")
def template(page: ModuleType) -> str:
    return str(page.TEMPLATE.read_text(encoding="utf-8"))


def test_the_page_is_what_the_csvs_make_of_its_template(page: ModuleType, template: str) -> None:
    assert page.render(template) == (ROOT / "results/README.md").read_text(encoding="utf-8")


def test_no_figure_is_typed_by_hand(template: str) -> None:
    prose = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", template, flags=re.S)
    text = "\n".join(line for line in prose.splitlines() if not line.startswith("| ["))  # that table says what was run
    typed = re.findall(r".{0,30}\d.{0,20}", re.sub("|".join(SETTINGS), "", text))
    assert typed == []


def test_a_figure_follows_its_csv_and_words_that_became_false_are_refused(
    page: ModuleType, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("figures", "*.html"))
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    cells = tmp_path / "results/laptop-fmnist-er-0.1/cells.csv"
    before = cells.read_text(encoding="utf-8")
    gossip = "0.37981799999999993"
    assert before.count(gossip) == 1
    cells.write_text(before.replace(gossip, "0.37991799999999993"), encoding="utf-8")
    assert "| global accuracy | .3523 | .3799 |" in page.render(template)
    cells.write_text(before.replace(gossip, "0.36981799999999993"), encoding="utf-8")  # gossip is below AQ-128 now
    with pytest.raises(AssertionError, match="do not bear out"):
        page.render(template)


def test_power_is_that_of_the_paired_t_test(page: ModuleType) -> None:
    """Without an effect it is the level; tables give .80 for one deviation and ten pairs at .05."""
    assert page.power(0.0, 1.0, 5, 0.05) == pytest.approx(0.05, abs=0.003)
    assert page.power(1.0, 1.0, 10, 0.05) == pytest.approx(0.80, abs=0.01)
