"""How the page looks and whom it serves: every tab in both themes, wide, narrow and enlarged, checked by axe-core.

The runs are real ones of a small world with groups and a clock, and a scout's pilot of it. Pictures go to a temporary
folder, whose name the test prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_regression_page import regression_run
from typer.testing import CliRunner
from watched_pages import Served, Watched

from sagefl.cli import app
from sagefl.view.report import report_page, write_page
from sagefl.view.shelf import Shelf

pytestmark = pytest.mark.slow
Serve = Callable[..., Served]
Watch = Callable[..., Watched]
TABS = ("runs", "network", "decision", "time", "scout", "map")
SHOWN = {"looked_at": TABS, "regression": ("runs", "network", "decision", "map")}
SIZES = {"wide": (1440, 1.0), "narrow": (390, 1.0), "enlarged": (720, 2.0)}  # the last is 1440 pixels at 200 %
AXE = "4.14.0"
WORLD = [
    *("--config", "examples/demo/groups.toml", "--clients", "8", "--engine", "sequential"),
    *("--set", "training.max_batches=2", "--set", "world.groups=2"),
]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """References and a rule that remembers, two seeds each, with a clock and all losses; and a pilot."""
    folder = tmp_path_factory.mktemp("looked-at")
    shape = ["--rounds", "8", "--eval-every", "2", "--set", "clock.network=phones", "--set", "evaluation.losses=full"]
    methods = ["--methods", "local,rg,oracle,sage-os,sage-m:outside=home", "--seeds", "1-2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(request.config.rootpath)
        for command in (
            ["compare", *WORLD, *shape, *methods, "--out", str(folder / "runs"), "--quiet"],
            ["scout", *WORLD, "--out", str(folder / "pilot")],
        ):
            made = CliRunner().invoke(app, command)
            assert made.exit_code == 0, made.output
    return folder


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core: from SAGEFL_AXE, or fetched by npm; it is no part of this repository."""
    if named := os.environ.get("SAGEFL_AXE"):
        return Path(named).read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("axe-core cannot be had: install npm, or set SAGEFL_AXE to the path of axe.min.js")
    fetched = subprocess.run(
        ["npm", "pack", f"axe-core@{AXE}"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    if fetched.returncode:
        pytest.skip(f"axe-core {AXE} cannot be fetched by npm; set SAGEFL_AXE to the path of axe.min.js")
    with tarfile.open(folder / f"axe-core-{AXE}.tgz") as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def show(page: Any, tab: str) -> None:
    """Open a tab and wait until it is drawn."""
    page.click(f"#tab-{tab}")
    page.wait_for_selector(f"#view-{tab}:not([hidden])")
    if tab == "runs":
        page.wait_for_selector("body[data-charts=drawn]")
    page.wait_for_timeout(400)


def found(page: Any) -> list[str]:
    """What axe-core objects to, in short."""
    violations = page.evaluate("axe.run(document)")["violations"]
    return [f"{v['impact']}: {v['id']} at {v['nodes'][0]['target']}" for v in violations]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("frozen", [False, True])
def test_axe_finds_nothing_on_any_tab(
    serve: Serve, watch: Watch, looked_at: Path, axe: str, tmp_path: Path, scheme: str, *, frozen: bool
) -> None:
    write_page(tmp_path / "report.html", report_page(Shelf([looked_at]), detailed=2))
    address = (tmp_path / "report.html").as_uri() if frozen else serve(looked_at).address
    for width in (1440, 390):
        page = watch(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True).open(address)
        page.add_script_tag(content=axe)
        for tab in TABS:
            show(page, tab)
            page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
            if tab == "decision":
                page.locator("#decision-look").fill("1")  # later stages are dimmed
            page.wait_for_timeout(200)
            assert found(page) == [], f"{tab} at {width}"
        page.evaluate("document.documentElement.removeAttribute('lang')")
        assert any("html-has-lang" in said for said in found(page)), "it would find nothing whatever it is given"


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run about numbers instead of classes, with named clients."""
    folder = tmp_path_factory.mktemp("regression")
    regression_run(folder / "run")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shown", SHOWN)
def test_every_tab_is_drawn_and_nothing_sticks_out(
    serve: Serve, watch: Watch, request: pytest.FixtureRequest, tmp_path: Path, scheme: str, size: str, shown: str
) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra study")
    width, scale = SIZES[size]
    screen = {"viewport": {"width": width, "height": 900}, "device_scale_factor": scale, "color_scheme": scheme}
    page = watch(**screen).open(serve(request.getfixturevalue(shown)).address)
    for tab in SHOWN[shown]:
        show(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        outside = """nodes => nodes.filter((n) => n.checkVisibility() && !n.closest('.scroll')).filter((n) => {
            const box = n.getBoundingClientRect();
            return box.width && (box.right > innerWidth + 1 || box.left < -1);
        }).map((n) => n.tagName + ' ' + n.textContent.slice(0, 60))"""
        assert page.eval_on_selector_all("main :not(.visually-hidden, caption)", outside) == [], tab
        cut = """texts => texts.filter((t) => t.checkVisibility()).filter((t) => {
            const box = t.getBoundingClientRect(), frame = t.ownerSVGElement.getBoundingClientRect();
            return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1);
        }).map((t) => t.textContent)"""
        assert page.eval_on_selector_all(f"#view-{tab} :is(.drawing, .plot) svg text", cut) == [], tab
        path = tmp_path / f"{tab}-{size}-{scheme}.png"
        page.screenshot(path=path, full_page=True)
        with image.open(path) as picture:
            shades = picture.convert("RGB").getcolors(picture.width * picture.height)
            pixels = picture.width * picture.height
        assert len(shades) > 50, f"{path} is blank"
        assert max(count for count, _ in shades) < 0.97 * pixels, f"{path} is nearly blank"
    print(f"pictures in {tmp_path}")


def test_charts_made_while_their_tab_was_hidden_have_the_width_of_their_cards(
    serve: Serve, watch: Watch, looked_at: Path
) -> None:
    page = watch(viewport={"width": 1440, "height": 900}).open(serve(looked_at).address + "#view=network")
    page.wait_for_selector(".node")
    show(page, "runs")
    for width in (1440, 600):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        drawn = page.eval_on_selector_all(".plot > svg", "charts => charts.map((c) => [c, c.parentNode])"
                                          ".filter(([c, box]) => box.clientWidth)"
                                          ".map(([c, box]) => c.clientWidth - box.clientWidth)")  # fmt: skip
        assert len(drawn) > 3
        assert set(drawn) == {0}


def test_every_tab_is_reached_by_keyboard_and_focus_is_seen(serve: Serve, watch: Watch, looked_at: Path) -> None:
    page = watch().open(serve(looked_at).address)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    for tab in TABS:
        assert page.evaluate("document.activeElement.id") == f"tab-{tab}"
        page.wait_for_selector(f"#view-{tab}:not([hidden])")
        page.wait_for_timeout(300)
        wanted = f"""[...document.querySelectorAll('#view-{tab} :is(select, input, button, summary, .scroll, .node)')]
            .filter((n) => n.checkVisibility() && n.getAttribute('tabindex') !== '-1').length"""
        count, seen = page.evaluate(wanted), 0
        page.keyboard.press("Tab")
        while page.evaluate(f"document.activeElement.closest('#view-{tab}') !== null"):
            style = page.evaluate(
                """(() => {
                const at = document.activeElement, halo = at.querySelector('.halo');
                const drawn = getComputedStyle(halo ?? at);
                return halo ? drawn.strokeWidth : drawn.outlineWidth;
                })()"""
            )
            assert float(style.removesuffix("px")) >= 2, f"focus is not seen on {tab}"
            seen += 1
            page.keyboard.press("Tab")
        assert seen >= count > 0, tab
        page.locator(f"#tab-{tab}").focus()
        page.keyboard.press("ArrowRight")
