"""The documentation site: it builds without a warning, is complete, and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT

import sagefl
from sagefl.runs.config import RunConfig

FETCHING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it; never with --quiet, which drops warnings before --strict counts them."""
    target = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    return target


class Fetched(HTMLParser):
    """What a browser would fetch when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "next", "prev", "edit"):
            return
        if address := values.get(FETCHING.get(tag, "")):
            self.addresses.append(address)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses or page.name == "report.html"  # a study's report is one file
        assert not [a for a in parser.addresses if re.match(r"(?:https?:)?//", a)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_make_docs_is_this_build() -> None:
    planned = subprocess.run(["make", "-n", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert re.search(r"mkdocs build --strict$", planned.stdout, flags=re.M)


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    library = (site / "reference" / "library.html").read_text(encoding="utf-8")
    rules = (site / "reference" / "selectors.html").read_text(encoding="utf-8")
    for name in sagefl.__all__:
        if name != "__version__":
            assert re.search(rf'id="sagefl\.(?:\w+\.)*{name}"', library + rules), name


def test_fields_and_functions_are_explained_and_not_only_named(site: Path) -> None:
    """A comment on a field's line is its docstring, functions are no modules, classes show how one is made."""
    library = _words(site / "reference" / "library.html")
    for said in (
        "GATED = 'gated' past rounds say probing does not pay here: gossip unasked",
        "wealth : tuple [ float , ... ] | None = None each peer's largest log-wealth so far",
        "The selector class of an id.",
        "anchors : int the size of its pool",
    ):
        assert said in library, said
    assert library.count("Start one decision in ask-and-answer form.") == 1
    assert "Simulator ( config : RunConfig , directory : RunDirectory" in _words(site / "reference" / "simulator.html")


def _words(page: Path) -> str:
    """What a page says, without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))).split())


def test_every_key_of_a_config_is_explained(site: Path) -> None:
    page = (site / "reference" / "config.html").read_text(encoding="utf-8")
    for name, field in RunConfig.model_fields.items():
        for key in getattr(field.annotation, "model_fields", None) or [""]:
            assert f"<code>{name}.{key}</code>" in page if key else f"<code>{name}</code>" in page


def test_every_command_is_in_the_reference(site: Path) -> None:
    from typer.main import get_command

    from sagefl.cli import app

    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f'id="sagefl-{name}"' in page


def test_every_example_is_shown_and_links_lead_there(site: Path) -> None:
    page = (site / "examples.html").read_text(encoding="utf-8")
    for path in (ROOT / "examples").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(ROOT)) in page
    for other in site.rglob("*.html"):
        for anchor in re.findall(r'href="[./]*examples\.html#([^"]+)"', other.read_text(encoding="utf-8")):
            assert f'id="{anchor}"' in page, f"{other.name} links to {anchor}"


def test_results_are_on_the_site_with_their_figures_and_links(site: Path) -> None:
    shown = [site / "results" / name for name in ("index.html", "figures.html", "methods.html")]
    links = {page: re.findall(r'(?:href|src)="([^"#:]+)[^":]*"', page.read_text(encoding="utf-8")) for page in shown}
    assert not [(page.name, to) for page, found in links.items() for to in found if not (page.parent / to).is_file()]
    figures = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results").glob("*/figures/*.svg")}
    assert figures == {f"results/{to}" for to in links[shown[1]] if to.endswith(".svg") and "figures/" in to}
    assert _words(shown[0]).count("Does the paper hold?") >= 1
    assert "Bad peers (culprits)" in _words(shown[1])


@pytest.mark.slow
def test_search_works_when_the_site_is_opened_as_files(site: Path, browser: Any) -> None:
    for name in ("index.html", "howto/scout.html"):
        page = browser.new_page()
        page.goto((site / name).as_uri())
        page.locator(".md-search__input").press_sequentially("headroom")  # it listens to keys
        page.wait_for_selector(".md-search-result__link")
        assert int(page.inner_text(".md-search-result__meta").split()[0]) > 3
        page.locator(".md-search-result__link").first.click()
        page.wait_for_load_state()
        assert "headroom" in page.inner_text("main").lower()
        page.close()


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone_and_no_word_of_a_command_is_cut(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    stuck = """nodes => nodes.filter(n => n.getClientRects().length > 1).map(n => n.textContent)"""
    beyond = """nodes => nodes.filter(n => {
        for (let p = n.parentElement; p; p = p.parentElement)
            if (["auto", "scroll"].includes(getComputedStyle(p).overflowX)) return false;
        return n.getBoundingClientRect().right > innerWidth + 1;
    }).map(n => n.textContent.slice(0, 60))"""
    words = 0
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.eval_on_selector_all(".md-content code .word", stuck) == [], path
        assert page.eval_on_selector_all(".md-content :is(table, pre code, .word)", beyond) == [], path
        words += page.locator(".md-content code .word").count()
    assert words > 500
    page.close()
