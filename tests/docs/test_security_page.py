"""Every promise of SECURITY.md names tests that are there."""

from __future__ import annotations

import ast
import re

from doc_pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def _named_in(name: str) -> set[str]:
    """The test functions of a file, named as the page names it."""
    (found,) = [ROOT / name] if "/" in name else (ROOT / "tests").rglob(name)
    return {n.name for n in ast.walk(ast.parse(found.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef)}


def test_every_promise_is_shown_by_tests_that_exist() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "test_" in line]
    assert len(rows) >= 15
    for row in rows:
        cited = re.findall(r"`((?:[\w/]*/)?test_\w+\.py)?(?:::)?(test_\w+)?`", row)
        files = {file: _named_in(file) for file, _ in cited if file}
        assert files, row
        functions = {name for _, name in cited if name}
        assert functions <= set().union(*files.values()), functions - set().union(*files.values())
