"""What `import sagefl` costs beyond NumPy, and what `sagefl --version` costs beyond starting Python.

    .venv/bin/python benchmarks/importing.py

Every figure is taken in fresh interpreters with warm byte code. CPU time, not wall time: on a busy machine a process
that waits for a core is not slower to import. Limit: 150 ms for `import sagefl` after `import numpy`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

LIMIT = 150.0  # milliseconds
REPEATS = 21
TIMED = "import time; {before}; start = time.process_time(); {timed}; print(1e3 * (time.process_time() - start))"
CASES = {
    "import numpy": ("pass", "import numpy"),
    "import sagefl, after numpy": ("import numpy", "import sagefl"),
    "import sagefl.cli, after sagefl": ("import sagefl", "import sagefl.cli"),
    "sagefl.selectors(), after sagefl": ("import sagefl", "sagefl.selectors()"),
}


def milliseconds(before: str, timed: str) -> float:
    code = TIMED.format(before=before, timed=timed)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> int:
    medians = {}
    for name, (before, timed) in CASES.items():
        milliseconds(before, timed)  # byte code and file cache
        taken = sorted(milliseconds(before, timed) for _ in range(REPEATS))
        medians[name] = statistics.median(taken)
        print(f"{name:<34} {medians[name]:6.0f} ms  ({taken[0]:.0f} to {taken[-1]:.0f}, {REPEATS} interpreters)")
    within = medians["import sagefl, after numpy"] < LIMIT
    print(f"limit for sagefl after numpy: {LIMIT:.0f} ms, {'kept' if within else 'BROKEN'}")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
