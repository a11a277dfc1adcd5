"""Methods of other people's packages: found by entry point; a broken one takes nothing away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGIN = """
from sagefl.methods import Method
from sagefl.selection.random_gossip import RandomGossip

class Drifter(Method):
    id = "drifter"
    rule = RandomGossip
"""
USE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from sagefl.methods import method, methods
    found = methods()
print(sorted(set(found) & {"drifter", "broken", "wrong", "pens"}), method("drifter").id)
print(*sorted(str(w.message) for w in caught), sep="\\n")
"""


def test_a_package_brings_a_method_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "drifting.py").write_text(PLUGIN)
    metadata = tmp_path / "drifting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: drifting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[sagefl.methods]\ndrifter = drifting:Drifter\nbroken = nowhere:Broken\nwrong = drifting:RandomGossip\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, timeout=120
    )
    assert run.returncode == 0, run.stderr
    found, broken, wrong = run.stdout.splitlines()
    assert found == "['drifter', 'pens'] drifter"
    assert broken.startswith("method 'broken' of nowhere:Broken is left out: No module named")
    assert wrong.startswith("method 'wrong' of drifting:RandomGossip is left out:")
    assert "is not a Method class" in wrong
