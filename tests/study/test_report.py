"""The report stands alone, and figures are drawn from whatever there is."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tiny_study import results

from sagefl.runs.config import RunConfig
from sagefl.study import canvas, figures, paper_figures
from sagefl.study.canvas import Drawn, inline
from sagefl.study.claims import RULE
from sagefl.study.collect import Record
from sagefl.study.design import Findings
from sagefl.study.errors import StudyError
from sagefl.study.figures import budget
from sagefl.study.paper import PAPER, audit
from sagefl.study.report import to_page
from sagefl.study.statements import STATEMENTS


class Page(HTMLParser):
    """Everything that a browser would fetch, the ids, and whether tags match."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self._attributes(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._attributes(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _attributes(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "data", "action", "poster"):
                self.fetched.append(f"{tag} {name}={value}")
            if name in ("href", "xlink:href"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")


RENDERED = ("stopping", "budget", "sweeps")


def unrendered(figure: object, name: str, title: str, caption: str) -> Drawn:
    """Drawn, but not rendered: that is what takes long."""
    return Drawn(name, title, caption, '<svg width="48pt" height="48pt"></svg>', b"")


@pytest.fixture(scope="module")
def folder(tiny: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with all figures drawn, the three most different ones rendered in full: rendering takes long."""
    out = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        for charts in (figures, paper_figures):
            patch.setattr(charts, "save", lambda f, n, t, c: (canvas.save if n in RENDERED else unrendered)(f, n, t, c))
        said = {"provenance": ["sagefl study paper --preset smoke"], "notes": ["cifar10 <is> not here"]}
        replace(tiny, **said).write(out)
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_report_fetches_nothing(page: str) -> None:
    parsed = Page(page)
    assert parsed.open == []
    assert parsed.fetched == []
    assert {"script", "link", "img", "iframe"} & parsed.tags == set()
    assert all(link.startswith("#") for link in parsed.links)
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/(2000/svg|1999/xlink))", page)


def test_every_link_has_a_target_and_every_id_is_one(page: str) -> None:
    parsed = Page(page)
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert {link[1:] for link in parsed.links} <= set(parsed.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(parsed.ids)


def test_the_report_has_everything(page: str) -> None:
    for statement in STATEMENTS:
        assert f'id="claim-{statement.id}"' in page
    for text in ("Table I.", "Table II.", "Table III.", "Model traffic", "Seconds a round to decide", RULE[:60],
                 "sagefl study paper --preset smoke", "K = 6, T = 3", "prefers-color-scheme: dark"):  # fmt: skip
        assert text.replace("'", "&#39;") in page
    assert "cifar10 &lt;is&gt; not here" in page
    assert page.count("<svg") == 9


def test_files_are_written_beside_it(folder: Path) -> None:
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    figures = {"stopping", "stop32", "relative", "budget", "traffic", "per-byte", "mechanisms", "sweeps"}
    tables = {"table1", "table2", "table3", "traffic", "time"}
    assert {f"figures/{f}.{e}" for f in figures for e in ("svg", "png")} <= there
    assert {f"tables/{t}.{e}" for t in tables for e in ("md", "tex", "csv")} <= there
    assert {"cells.csv", "sweeps.csv", "claims.md", "claims.csv", "report.html", "study.json"} <= there


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for charts in (figures, paper_figures):
        monkeypatch.setattr(charts, "save", unrendered)


@pytest.mark.usefixtures("quick")
def test_the_audit_alone_makes_a_report(tmp_path: Path) -> None:
    page = audit("sagefl study paper --audit").write(tmp_path).read_text(encoding="utf-8")
    assert Page(page).fetched == []
    assert "19 contradicted" in page
    assert "by one run a cell" not in page
    assert not (tmp_path / "cells.csv").exists()


def measured(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Findings:
    """Findings of the paper's study with these values, one per seed."""
    rows = results(values).rows
    records = [Record(r.configuration, r.method, RunConfig(seed=r.seed), dict(r.values)) for r in rows]
    return Findings(PAPER, records)


@pytest.mark.usefixtures("quick")
def test_the_page_escapes_what_it_is_given() -> None:
    page = to_page(measured({"sage-os:ties=<b>": {"accuracy": [0.4]}, "rg": {"accuracy": [0.4]}}))
    assert "ties=&lt;b&gt;" in page
    assert "ties=<b>" not in page


# Figures ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_the_published_tables_suffice_for_what_they_allow() -> None:
    drawn = audit().figures
    assert [d.name for d in drawn] == ["stopping", "stop32", "relative", "by-alpha", "budget", "traffic"]
    assert all(d.title and d.caption for d in drawn)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("methods", [("rg",), ("local",), ("sage-os",), ("rg", "sage-os-table"), ("rg", "my-own")])
def test_whatever_was_measured_can_be_drawn(methods: tuple[str, ...]) -> None:
    values = {"accuracy": [0.4, 0.5], "budget": [0.2, 0.3], "bytes": [5.0, 5.0], "decisions": [5.0, 5.0]}
    drawn = {d.name for d in measured(dict.fromkeys(methods, values)).figures}
    assert {"relative", "by-alpha", "budget"} <= drawn
    assert ("per-byte" in drawn) == (len(methods) == 2)


def test_a_figure_is_svg_and_png_and_the_same_every_time(folder: Path, tiny: Findings) -> None:
    again = budget(tiny)
    assert again is not None
    assert again.png.startswith(b"\x89PNG")
    assert again.svg == (folder / "figures" / "budget.svg").read_text(encoding="utf-8")
    assert again.png == (folder / "figures" / "budget.png").read_bytes()


def test_an_inlined_figure_takes_the_pages_colours() -> None:
    svg = (
        f'<?xml?><svg width="48pt" height="9pt"><metadata>http://x</metadata><path id="a" style="fill: {canvas.INK}"/>'
    )
    drawn = Drawn("f", "A title", "", svg + '<use xlink:href="#a" clip-path="url(#a)"/></svg>', b"")
    made = inline(drawn)
    assert made.startswith('<svg role="img" aria-label="A title" style="max-width: 4.0rem"')
    assert 'id="f-a"' in made
    assert 'href="#f-a"' in made
    assert "url(#f-a)" in made
    assert "fill: currentColor" in made
    assert "http" not in made


def test_methods_can_be_told_apart_without_colour() -> None:
    looks = [
        canvas.marker(m) for m in ("local", "rg", "pens", "pfeddst", "aq-128", "sage-nf", "sage-vanilla", "sage-os")
    ]
    assert len(set(looks)) == len(looks)
    assert canvas.colour("some-other-method").startswith("#")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StudyError, match=r"pip install .*'\.\[study\]'"):
        _ = audit().figures


def test_methods_drawn_together_are_told_apart_and_the_papers_always_look_the_same() -> None:
    methods = [*(f"mine:k={k}" for k in range(30)), "sage-os", "rg"]
    found = canvas.styles(methods)
    assert list(map(found.get, methods)).count(None) == 0
    assert len(set(found.values())) == len(methods)
    for method in ("sage-os", "rg"):
        assert found[method] == (canvas.colour(method), canvas.marker(method))
