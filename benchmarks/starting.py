"""How long a small run takes to start: `sagefl run` of one round with eight clients, against `import torch` alone.

    .venv/bin/python benchmarks/starting.py            # eleven turns
    .venv/bin/python benchmarks/starting.py --quick    # one, to see that it works

The run is timed as it is, and with one mini-batch per client, which leaves hardly more than start-up and evaluation.
Every figure is of fresh interpreters with warm byte code, which take turns; processor seconds are those of all
processes that a command starts. Limit: 2 s of wall time for the run with one mini-batch, on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sagefl.simulation.crowding import Others, look

LIMIT, TURNS = 2.0, 11
TORCH = "import torch"
RUN = [sys.executable, "-m", "sagefl", "run", "--clients", "8", "--rounds", "1", "-q", "--out"]
CASES = {
    TORCH: [sys.executable, "-c", TORCH],
    "run, one mini-batch per client": [*RUN, "{out}", "--max-batches", "1"],
    "run, one round": [*RUN, "{out}"],
}


def timed(command: list[str], cache: Path) -> tuple[float, float]:
    """Wall and processor seconds of a command."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        given = [part.format(out=Path(folder) / "run") for part in command]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(given, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn")
    turns = 1 if parser.parse_args().quick else TURNS
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print(f"Before: {look(cores)}", flush=True)
    others, taken = Others(), {name: list[tuple[float, float]]() for name in CASES}
    with tempfile.TemporaryDirectory() as cache:
        for turn in range(turns + 1):
            for name, command in CASES.items():
                found = timed(command, Path(cache))
                if turn > 0:  # the first turn fills the caches
                    taken[name].append(found)
    print(f"Meanwhile: {look(cores, others=others)}\n")
    for name, found in taken.items():
        wall, processor = (statistics.median(column) for column in zip(*found, strict=True))
        ratio = statistics.median(a[1] / b[1] for a, b in zip(found, taken[TORCH], strict=True))
        print(f"{name:<32} {wall:5.2f} s, processor {processor:5.2f} s, {ratio:4.2f} x {TORCH} ({turns} turns)")
    within = statistics.median(wall for wall, _ in taken["run, one mini-batch per client"]) < LIMIT
    print(f"limit for a run with one mini-batch: {LIMIT:.0f} s, {'kept' if within else 'BROKEN'}")
    return 0 if within or turns == 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
