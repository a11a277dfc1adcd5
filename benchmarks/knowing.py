"""What it costs a run to know its code: a project's own model, rule and data, found and hashed.

    .venv/bin/python benchmarks/knowing.py

The project has a model that imports ten modules, a rule, and a file of data of 50 MB. Each figure is what one command
adds by looking at them, in a fresh interpreter. Limit: 50 ms for a project that has not changed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LIMIT, REPEATS, MODULES = 50.0, 11, 10  # milliseconds, interpreters, files
TIMED = """
import time
from sagefl.runs.config import RunConfig
from sagefl.runs.environment import address
config = RunConfig(method={"id": "rule.py:Rule"}, model={"name": "net.py:Net"}, data={"dataset": "images.npz"})
start = time.perf_counter()
address(config)
print(1e3 * (time.perf_counter() - start))
"""


def project(folder: Path) -> None:
    for i in range(MODULES):
        (folder / f"part{i}.py").write_text(f"WIDTH = {i}\n" + "# a line of this module\n" * 300)
    imports = "".join(f"import part{i}\n" for i in range(MODULES))
    (folder / "net.py").write_text(imports + "from torch import nn\n\n\nclass Net(nn.Module): ...\n")
    (folder / "rule.py").write_text("from sagefl import RandomGossip\n\n\nclass Rule(RandomGossip): ...\n")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64_000, 28, 28), dtype=np.uint8)
    np.savez(folder / "images.npz", x=images, y=rng.integers(0, 10, len(images)))
    for file in folder.iterdir():  # a file is taken for settled, and its digest remembered, some seconds after a change
        os.utime(file, (time.time() - 60, time.time() - 60))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder)
        taken = []
        for _ in range(REPEATS + 1):
            run = subprocess.run(
                [sys.executable, "-c", TIMED], cwd=folder, env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            taken.append(float(run.stdout))
    first, rest = taken[0], sorted(taken[1:])
    median = statistics.median(rest)
    print(f"a project seen for the first time: {first:.0f} ms")
    print(f"the same, unchanged: {median:.1f} ms ({rest[0]:.1f} to {rest[-1]:.1f}, {REPEATS} interpreters)")
    print(f"limit: {LIMIT:.0f} ms, {'kept' if median < LIMIT else 'BROKEN'}")
    return 0 if median < LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
