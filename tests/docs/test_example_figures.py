"""What the how-tos say that selection did is what was recorded; the slow tests of the pages run the commands again."""

from __future__ import annotations

import csv

import pytest
from doc_pages import ROOT

with (ROOT / "results" / "examples.csv").open(encoding="utf-8") as file:
    RECORDED = list(csv.DictReader(file))
PAGES = {"houses": "regression", "text": "text", "adapters": "text", "residual": "batchnorm"}


def test_every_example_is_recorded_under_both_rules() -> None:
    assert [(row["example"], row["method"]) for row in RECORDED] == [(e, m) for e in PAGES for m in ("rg", "sage-e")]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['example']} {row['method']}")
def test_pages_show_the_recorded_figures(row: dict[str, str]) -> None:
    page = (ROOT / "docs" / "howto" / f"{PAGES[row['example']]}.md").read_text(encoding="utf-8")
    shown = page.partition(f"--out runs/{row['example']}\n")[2].partition(f"Runs are in runs/{row['example']}")[0]
    (line,) = [line for line in shown.splitlines() if line.startswith(f"{row['method']} ")]
    told = line.split()
    for name in ("test", "own", "weak"):
        assert f"{float(row[name]):.4f}" in told, (name, line)
    for name in ("certified", "evidence"):
        assert f"{float(row[name]):.1%}" in told, (name, line)
