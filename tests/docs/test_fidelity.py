"""The table of checks against papers: one row for every published method, from the tool's own list."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from sagefl.methods import methods

ROOT = Path(__file__).parents[2]
VERDICTS = {"reproduced", "direction only", "not reproduced", "not testable"}


def test_every_published_method_has_been_checked_against_its_paper() -> None:
    with (ROOT / "results/fidelity/checks.csv").open(encoding="utf-8") as file:
        checks = {row["method"]: row for row in csv.DictReader(file)}
    published = {id for id, found in methods().items() if found.fidelity and id != "pens-original"}
    assert published == set(checks)
    assert {row["verdict"] for row in checks.values()} <= VERDICTS
    assert all(row["published"] and row["ours"] for row in checks.values())
    for id, row in checks.items():
        assert (row["verdict"] == "not testable") == methods()[id].fidelity.startswith("inspired by")


def test_the_table_lists_what_the_tool_checks_in_its_words() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import fidelity
    finally:
        sys.path.pop(0)
    with (ROOT / "results/fidelity/checks.csv").open(encoding="utf-8") as file:
        recorded = [(row["method"], row["setting"], row["published"]) for row in csv.DictReader(file)]
    assert recorded == [(id, check.setting, check.published) for id, check in fidelity.CHECKS.items()]
