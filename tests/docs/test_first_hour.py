"""The newcomer's walk, replayed: the light commands with the other pages, all of it, set-up included, here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, agrees, blocks, commands

PAGE = ROOT / "docs" / "first-hour.md"


def clone(target: Path) -> None:
    """The tree as a newcomer would get it: what is under version control or about to be, and nothing else."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if listing.returncode != 0:
        pytest.skip(f"the tree is no checkout, so there is nothing to clone: {listing.stderr.strip()}")
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())
            (target / name).chmod((ROOT / name).stat().st_mode)


def empty_environment(home: Path, checkout: Path) -> dict[str, str]:
    """No variables, no caches, a new home; only where packages come from is this machine's business."""
    home.mkdir()
    index = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "SSL_CERT_FILE"}
    tools = os.pathsep.join([str(checkout / ".venv" / "bin"), str(Path(sys.base_prefix) / "bin"), "/usr/bin", "/bin"])
    places = {"HOME": str(home), "XDG_CONFIG_HOME": str(Path.home() / ".config"), "PATH": tools, "LANG": "C.UTF-8"}
    return index | places


def test_the_walk_begins_with_the_demo_and_gets_somewhere() -> None:
    typed = [command for b in blocks(PAGE) if b.kind == "console" for command, _ in commands(b)]
    assert typed[0] == "make demo"
    assert len(typed) >= 8
    light = [b for b in blocks(PAGE) if b.kind == "console" and b.marks in ((), ("approx",))]
    assert len(light) >= 4, "too little of the walk is replayed by `make test`"


@pytest.mark.slow
def test_the_whole_walk_in_an_empty_environment(tmp_path: Path) -> None:
    checkout = tmp_path / "sagefl"
    clone(checkout)
    environment = empty_environment(tmp_path / "home", checkout)
    for block in blocks(PAGE):
        if block.kind != "console" or block.marked("never"):
            continue
        for command, shown in commands(block):
            run = subprocess.run(
                ["bash", "-c", command], cwd=checkout, env=environment, text=True, timeout=3600,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert run.returncode == 0, f"{command}\n{run.stdout}"
            told = re.sub(r"WARNING: Location 'file:.*\n", "", run.stdout)  # of a package index on this machine's disk
            printed = [line.rstrip() for line in told.strip().splitlines()]
            assert agrees(shown, printed, approx=True), f"{command}\n{run.stdout}"
