"""What a verdict costs: `sagefl scout` against one run of the same world.

    .venv/bin/python benchmarks/scouting.py

The worlds of `sagefl study worlds`, seed 1, each scouted, and run once with random gossip and with the rule that scout
recommends; all on one core (sequential engine, processor time, evaluation as in the study). Limits: a tenth of the
run, and two minutes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from sagefl.api.scouting import scout_world
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.study.design import Design

ALONE, REPEATS = Execution(engine="sequential"), 3
AGAINST = ("rg", "sage-m:outside=home")  # the cheapest rule, and the one that scout recommends


def ran(config: RunConfig) -> float:
    """Seconds of processor time of one run."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        Simulator(config, RunDirectory(Path(folder) / "run"), ALONE).run()
        return time.process_time() - began


def scouted(config: RunConfig) -> tuple[str, float]:
    """The verdict and its seconds, the median of a few: at a second each, one alone would be at a machine's mercy."""
    spent = []
    for _ in range(REPEATS):
        began = time.process_time()
        verdict = scout_world(config, ALONE).verdict
        spent.append(time.process_time() - began)
    return verdict, statistics.median(spent)


def main() -> None:
    """Print a line for every world, then the ratios together."""
    print(f"load average {os.getloadavg()[0]:.2f}: anything above 1 makes absolute times unreliable")
    worlds: dict[str, dict[str, RunConfig]] = {}
    for cell in Design.read("worlds").cells:
        if cell.config.seed == 1 and cell.method in AGAINST:
            worlds.setdefault(str(cell.configuration), {})[cell.method] = cell.config
    scouted(worlds["alike"]["rg"])  # imports and first touches aside
    ratios, longest = [], 0.0
    for name, configs in worlds.items():
        verdict, seconds = scouted(configs["rg"])
        runs = [ran(configs[method]) for method in AGAINST]
        ratios.append([seconds / run for run in runs])
        longest = max(longest, seconds)
        shown = ", ".join(f"{run:.1f} s ({seconds / run:.3f})" for run in runs)
        print(f"{name:32} {verdict:7} {seconds:.2f} s; runs with {', '.join(AGAINST)}: {shown}", flush=True)
    for method, column in zip(AGAINST, zip(*ratios, strict=True), strict=True):
        print(f"of a run with {method}: median {statistics.median(column):.3f}, largest {max(column):.3f} (limit .1)")
    print(f"longest verdict: {longest:.1f} s (limit 120)")


if __name__ == "__main__":
    main()
