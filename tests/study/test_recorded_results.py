"""What stands in results/ is what the code makes of its cells: tables, claims and comparisons, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagefl.study.account import comparisons_csv
from sagefl.study.collect import read_records
from sagefl.study.comparing import compare
from sagefl.study.design import Design, Findings
from sagefl.study.paper import PAPER
from sagefl.study.render import to_csv, to_latex, to_markdown
from sagefl.study.report import claims_csv, claims_markdown

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/claims.csv"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_tables_and_claims_are_rebuilt(folder: Path) -> None:
    findings = Findings.read(PAPER, [folder])
    made = {"claims.csv": claims_csv(findings.judged), "claims.md": claims_markdown(findings)}
    for table in findings.tables:
        texts = (("md", to_markdown(table)), ("tex", to_latex(table)), ("csv", to_csv(table)))
        made |= {f"tables/{table.name}.{ending}": text for ending, text in texts}
    assert {f"tables/{path.name}" for path in (folder / "tables").iterdir()} < made.keys()
    for name, text in made.items():
        assert text == (folder / name).read_text(encoding="utf-8"), name


def test_comparisons_are_rebuilt() -> None:
    folder = RESULTS / "beyond-laptop"
    trial = Design.read("beyond", "laptop").trial
    assert trial is not None
    made = comparisons_csv(compare(read_records(folder / "cells.csv"), trial), trial)
    assert made == (folder / "comparisons.csv").read_text(encoding="utf-8")
