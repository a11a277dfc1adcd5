"""The pictures of the page in `docs/images/view-*.png`, from real runs of the demo's world with groups.

python tools/page_pictures.py            # some minutes; runs are kept in runs/pictures and read again

It needs Chromium and Playwright's Python package, as the tests of the page do.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image
from playwright.sync_api import sync_playwright

from sagefl.view.report import report_page, write_page
from sagefl.view.shelf import Run, Shelf

WORLD = ["--config", "examples/demo/groups.toml", "--engine", "sequential"]
COMPARED = [
    *("--methods", "local,rg,oracle,sage-os,sage-m:outside=home", "--seeds", "1-3", "--rounds", "24"),
    *("--eval-every", "4", "--set", "clock.network=phones", "--set", "evaluation.losses=full", "--quiet"),
]
SIZE = {"width": 1280, "height": 700}  # pixels
TALLEST = 1600
LAST = 23  # of 24 rounds, from 0
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    if not (args.runs / "pilot").is_dir():
        sagefl("compare", *WORLD, *COMPARED, "--out", str(args.runs / "compared"))
        sagefl("scout", *WORLD, "--out", str(args.runs / "pilot"))
    shelf = Shelf([args.runs])
    page = args.runs / "report.html"
    write_page(page, report_page(shelf, detailed=2))
    draw(page.resolve().as_uri(), {name: address(*of) for name, of in shown(shelf).items()}, args.out)


def sagefl(*arguments: str) -> None:
    subprocess.run([sys.executable, "-c", "from sagefl.cli import app; app()", *arguments], check=True)


def shown(shelf: Shelf) -> dict[str, tuple[str, Run, int, int]]:
    """What each picture shows: the view, the run, the round and the client."""
    stops, remembers = method(shelf, "sage-os"), method(shelf, "sage-m")
    return {
        "runs": ("runs", remembers, 0, 0),
        "network": ("network", stops, LAST, 0),
        "groups": ("network", remembers, LAST, 0),
        "decision": ("decision", stops, LAST, certified(stops)),
        "memory": ("decision", remembers, LAST, certified(remembers)),
        "time": ("time", remembers, LAST, 0),
        "scout": ("scout", remembers, 0, 0),
        "map": ("map", remembers, 0, 0),
    }


def certified(run: Run) -> int:
    """The client whose certificate of the last round took most stages."""
    rows = run.table("decisions").filter((pl.col("round") == LAST) & (pl.col("reason") == "certified"))
    return int(rows.sort("stages")["client"][-1])


def method(shelf: Shelf, id: str) -> Run:
    return next(run for run in shelf.runs().values() if run.config.method.id == id)


def address(view: str, run: Run, round: int, client: int) -> str:
    return f"#view={view}&run={run.id}&round={round + 1}&client={client}"


def draw(page: str, addresses: dict[str, str], out: Path) -> None:
    """One PNG for each; clients are coloured by accuracy in `network`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, address in addresses.items():
            context = browser.new_context(viewport=SIZE, color_scheme="light")
            opened: Any = context.new_page()
            opened.goto(page + address)
            opened.wait_for_selector("body[data-ready=yes]")
            if name == "network":
                opened.select_option("#network-colour", "own")
            opened.wait_for_timeout(2500)
            height = min(TALLEST, opened.evaluate("document.documentElement.scrollHeight"))
            shot = opened.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": SIZE["width"], "height": height})
            with Image.open(BytesIO(shot)) as picture:
                picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
                    out / f"view-{name}.png", optimize=True
                )
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
