"""What the pages show is what happens: every block of README and docs is run."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from doc_pages import KINDS, PAGES, ROOT, Block, Sandbox, agrees, blocks, commands, replay, text

IDS = [str(page.relative_to(ROOT)) for page in PAGES]
MARKS = {"approx", "slow", "clone", "never", "file"}


def runs(page: Path, *, slow: bool) -> bool:
    """Whether there is anything to run on a page, in the quick or in the slow tests."""
    kept = [b for b in blocks(page) if not (b.marked("never") or b.marked("clone")) and b.kind in ("python", "console")]
    return any(b.marked("slow") for b in kept) if slow else any(not b.marked("slow") and not b.snippet for b in kept)


@pytest.mark.parametrize("page", [p for p in PAGES if runs(p, slow=False)], ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_print_what_they_show(page: Path, sandbox: Sandbox) -> None:
    assert replay(page, sandbox) > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if runs(p, slow=True)], ids=lambda p: str(p.relative_to(ROOT)))
def test_long_blocks_print_what_they_show(page: Path, sandbox: Sandbox) -> None:
    assert replay(page, sandbox, slow=True) > 0


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_block_is_of_a_kind_that_is_run(page: Path) -> None:
    found = blocks(page)
    assert len(found) == len(re.findall(r"^```\S", text(page), flags=re.M)), "a fence is not closed or not seen"
    for before, block in pairwise([None, *found]):
        where = f"{page.name}, line {block.line}"
        assert block.kind in KINDS, f"{where}: {block.kind!r} blocks are not run"
        assert {re.split(r"[ :]", mark)[0] for mark in block.marks} <= MARKS, f"{where}: {block.marks}"
        if block.kind == "text":
            assert before is not None
            assert before.kind == "python", f"{where}: output of what?"
        if block.kind in ("toml", "sh"):
            assert block.file or block.snippet, f"{where}: neither a file of the page nor one of the repository"
        if block.kind == "console":
            assert commands(block), where


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_snippets_are_run(page: Path) -> None:
    """A file that a page shows is run by a command on that page, as a script, a package or a module:object."""
    typed = " ".join(command for b in blocks(page) if b.kind == "console" for command, _ in commands(b))
    for block in blocks(page):
        if (path := block.snippet) is not None:
            assert path.is_file(), path
            names = (path.name, f"{path.stem}:", f"./{path.parent.relative_to(ROOT)}")
            assert any(name in typed for name in names), f"{page.name} shows {path.name} and does not run it"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_code_hides_in_indentation(page: Path) -> None:
    """An indented block would be shown as code and not be run."""
    outside = re.sub(r"^```.*?^```$", "", text(page), flags=re.M | re.S)
    outside = re.sub(r"^::: .*\n(?:    .*\n)*", "", outside, flags=re.M)  # mkdocstrings takes its options indented
    hidden = re.findall(r"\n\n(?!\s*[-*\d])    (\S.*)", outside)
    assert not hidden, f"{page.name}: commands belong into a console block, which is run, or into a table: {hidden}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_what_is_linked_exists(page: Path) -> None:
    made = {"contributing.md", "changelog.md", "security.md", "examples.md"}  # by docs/hooks.py
    for target in re.findall(r"\]\((?!http|#)([^)#\s]+)", text(page)):
        assert (page.parent / target).exists() or target in made, target


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_the_pointwise_claim_is_never_made(page: Path) -> None:
    """The guarantee holds in expectation; that a choice is always at least as good as gossip is false."""
    claims = re.findall(
        r"[^.]*(?:never (?:be )?worse|always (?:better|beats)|guaranteed to beat)[^.]*", text(page), re.I
    )
    assert not [c for c in claims if not re.search(r"never claim", c, re.I)]


def test_what_cannot_be_run_says_why() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.marked("never"):
                reason = next(mark for mark in block.marks if mark.startswith("never"))
                assert len(reason.split(":", 1)[1].split()) >= 3, f"{page.name}, line {block.line}"


# The tests above are only as good as this -----------------------------------------------------------------------------


def test_comparison_sees_differences() -> None:
    assert agrees(["a", "b 1"], ["a", "b 1"])
    assert not agrees(["a", "b 1"], ["a", "b 2"])
    assert not agrees(["a"], ["a", "b"])
    assert not agrees(["a", "b"], ["a"])
    assert agrees(["a", "...", "d"], ["a", "b", "c", "d"])
    assert agrees(["a", "..."], ["a"])
    assert not agrees(["a", "...", "d"], ["a", "b", "c"])
    assert agrees(["known: a ..."], ["known: a, b, c"])
    assert not agrees(["known: b ..."], ["known: a, b, c"])


def test_approximate_numbers_are_near_and_words_are_the_same() -> None:
    assert agrees(["rg  0.185  4.2%"], ["rg 0.19 4.4%"], approx=True)
    assert agrees(["48 decisions"], ["47 decisions"], approx=True)
    assert agrees(["0.1858 18.8%"], ["0.1950 19.5%"], approx=True)
    assert not agrees(["accuracy 0.1858"], ["accuracy 0.1960"], approx=True), "more than a point"
    assert not agrees(["18.8%"], ["20.0%"], approx=True)
    assert not agrees(["300.0 MB"], ["304.0 MB"], approx=True)
    assert not agrees(["accuracy 0.2"], ["accuracy 0.9"], approx=True)
    assert not agrees(["100 decisions"], ["200 decisions"], approx=True)
    assert not agrees(["sage-os 0.2"], ["sage-e 0.2"], approx=True)
    assert not agrees(["a 1 2"], ["a 1"], approx=True)


def test_a_wrong_page_is_noticed(tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doc_pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(6 * 7)\n```\n\n```text\n42\n```\n\n```console\n$ echo a\na\n```\n")
    assert replay(page, sandbox) == 2
    for wrong in ("```text\n43", "$ echo b\na", "$ false"):
        old = "```text\n42" if wrong.startswith("```") else "$ echo a\na"
        other = tmp_path / "wrong.md"
        other.write_text(page.read_text().replace(old, wrong))
        with pytest.raises(AssertionError):
            replay(other, sandbox)


def test_marks_and_files_are_read() -> None:
    block = Block(1, "toml", "a = 1\n", ("file mine.toml", "approx", "never: because it is so"))
    assert block.file == "mine.toml"
    assert block.marked("never")
    assert not block.marked("slow")
    shown = commands(Block(1, "console", "$ a \\\n>  b   # why\nout\n\n$ c\n"))
    assert shown == [("a b", ["out"]), ("c", [])]
