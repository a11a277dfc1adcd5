"""What the how-tos say that selection did is what was recorded; the slow tests of the pages run the commands again."""

from __future__ import annotations

import csv
import sys
from math import log

import pytest
from doc_pages import ROOT

with (ROOT / "results" / "examples.csv").open(encoding="utf-8") as file:
    RECORDED = list(csv.DictReader(file))
PAGES = {"houses": "regression", "text": "text", "adapters": "text", "residual": "batchnorm"}


FREE = ("houses", "sage-e:probe_cost=0")


def test_every_example_is_recorded_under_both_rules() -> None:
    both = [(example, method) for example in PAGES for method in ("rg", "sage-e")]
    assert [(row["example"], row["method"]) for row in RECORDED if (row["example"], row["method"]) != FREE] == both
    assert [row for row in RECORDED if (row["example"], row["method"]) == FREE]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['example']} {row['method']}")
def test_every_example_learns_more_than_to_give_one_answer_always(row: dict[str, str]) -> None:
    test, own, baseline = (float(row[name]) for name in ("test", "own", "baseline"))
    if row["measure"] == "MAE":
        assert max(test, own) < 0.75 * baseline
    else:
        assert min(test, own) > 1.5 * baseline
    assert row["baseline"] in (ROOT / "docs" / "howto" / f"{PAGES[row['example']]}.md").read_text(encoding="utf-8")


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


def test_the_picture_of_the_proof_is_drawn_from_the_runs_that_its_page_tells_of() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import proof_picture
    finally:
        sys.path.pop(0)
    assert proof_picture.TARGET.read_text(encoding="utf-8") == proof_picture.picture()
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    assert f"cyd: better {proof_picture.example()[-1, 2]:.2f}" in page
    caption = next(line for line in page.splitlines() if "proof-wealth.svg" in line)
    needed = log(2 * len(proof_picture.PEERS) / proof_picture.DELTA)
    passed = (proof_picture.receivers() >= needed).any(axis=1).sum()
    first = (proof_picture.example()[:, 2] >= needed).argmax()
    assert f"in round {first}," in caption
    assert f"{proof_picture.RECEIVERS} receivers with nobody better: {passed} ever pass" in caption
