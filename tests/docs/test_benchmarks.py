"""Every benchmark that takes seconds still runs; what it measures is for an idle machine to say."""

from __future__ import annotations

import subprocess
import sys

import pytest
from doc_pages import ROOT

QUICK = {
    "decision.py": (),
    "importing.py": (),
    "knowing.py": (),
    "memory.py": (),
    "node.py": ("--seconds", "2", "--rounds", "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", QUICK)
def test_a_benchmark_runs(script: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *QUICK[script]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert any(character.isdigit() for character in done.stdout)
