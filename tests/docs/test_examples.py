"""The example files: peer selection costs a plain loop few lines, and every how-to file is run somewhere."""

from __future__ import annotations

import difflib

from doc_pages import PAGES, ROOT, blocks, commands

EXAMPLES = ROOT / "examples"
MOST_ADDED = 30


def test_a_plain_loop_gains_selection_in_few_lines() -> None:
    before = (EXAMPLES / "embed" / "before.py").read_text().splitlines()
    after = (EXAMPLES / "embed" / "after.py").read_text().splitlines()
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    added = [line for line in changes if line.startswith("+ ")]
    assert "import sagefl" not in "\n".join(before)
    assert any("from sagefl import" in line for line in added)
    assert 5 <= len(added) < MOST_ADDED
    assert len(changes) - len(added) <= 8, "the loop was rewritten, not extended"


def test_every_how_to_file_is_run() -> None:
    typed = " ".join(
        command
        for page in PAGES
        for block in blocks(page)
        if block.kind == "console" and not block.marked("never")
        for command, _ in commands(block)
    )
    for path in [*(EXAMPLES / "howto").iterdir(), *(EXAMPLES / "embed").iterdir()]:
        if path.name != "__pycache__":
            assert path.name in typed or f"{path.stem}:" in typed, f"no page runs {path.name}"
