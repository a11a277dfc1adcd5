"""In other people's frameworks, which want other versions than we do: each is tried in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from doc_pages import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("neighbour", ["flower", "fluke"])
def test_it_works_inside_a_neighbour(neighbour: str) -> None:
    """What `make test-neighbours` does; without a package index there is nothing to make an environment from."""
    run = subprocess.run(
        [ROOT / "tools" / "neighbours.sh", neighbour],
        capture_output=True,
        text=True,
        timeout=1700,
        env=os.environ | {"PYTHON": sys.executable},
    )
    if run.returncode and re.search("No matching distribution|Connection|Could not find a version", run.stderr):
        pytest.skip(f"no package index within reach to install {neighbour} from: {run.stderr.strip()[-300:]}")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\d+ passed", run.stdout)
    assert "skipped" not in run.stdout
