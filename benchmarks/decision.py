"""What a decision costs: time against the arithmetic it cannot avoid, and memory over a whole run.

    .venv/bin/python benchmarks/decision.py

Time is a ratio taken in one run, so it means the same on a fast and a slow machine: one SAGE-OS decision of degree 8
through all four stages, in ask-and-answer form with a full trace, against a Python loop of ``x[:, :m].mean(1)`` over
the same stages. The two are timed in turns, in blocks of about equal length and in processor time, so that other
work on the machine disturbs them little and alike; the median ratio of all turns counts.

Memory is what `tracemalloc` sees after 12,500 decisions (250 rounds of 50 clients) that are made and dropped.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tracemalloc
from collections.abc import Callable
from time import process_time

import numpy as np

from sagefl import Decision, SageOS

DEGREE, STAGES = 8, (16, 32, 64, 128)
MOST_TIMES, MOST_BYTES = 12.0, 64 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of one decision.")
    parser.add_argument("--turns", type=int, default=300, help="pairs of timed blocks")
    parser.add_argument("--decisions", type=int, default=12_500, help="decisions of the memory run")
    arguments = parser.parse_args()
    times = ratio(arguments.turns)
    low, middle, high = times.quartiles
    print(f"decision of degree {DEGREE}, stages {STAGES}: {times.decision:.0f} us; the bare means: {times.bare:.1f} us")
    print(f"ratio: {middle:.2f} (quartiles {low:.2f} to {high:.2f}, {arguments.turns} turns); limit {MOST_TIMES:g}")
    grown, peak = memory(arguments.decisions)
    print(
        f"memory over {arguments.decisions:,} decisions: {grown / 1024:+.1f} KiB at the end, "
        f"{peak / 1024:.1f} KiB at most; limit {MOST_BYTES / 1024:g} KiB at the end"
    )
    if middle > MOST_TIMES or grown > MOST_BYTES:
        raise SystemExit("above the limit")


class Times:
    """Seconds per call of both sides, turn by turn."""

    def __init__(self, bare: list[float], decision: list[float]) -> None:
        self.quartiles = statistics.quantiles((d / b for d, b in zip(decision, bare, strict=True)), n=4)
        self.bare = statistics.median(bare) * 1e6
        self.decision = statistics.median(decision) * 1e6


def ratio(turns: int) -> Times:
    """Both sides timed in turns."""
    losses, decide = setting()

    def bare() -> None:
        for m in STAGES:
            losses[:, :m].mean(1)

    assert decide(0).outcome.anchors == STAGES[-1]  # it really goes through all stages
    pairs = [(timed(bare, 200), timed(lambda: decide(0), 20)) for _ in range(turns)]
    return Times(*map(list, zip(*pairs, strict=True)))


def timed(work: Callable[[], object], block: int) -> float:
    """Seconds per call."""
    start = process_time()
    for _ in range(block):
        work()
    return (process_time() - start) / block


def memory(decisions: int) -> tuple[int, int]:
    """Bytes held after many decisions beyond what the first hundred left, and the highest level in between."""
    _, decide = setting()
    for seed in range(100):
        decide(seed)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for seed in range(decisions):
        decide(seed)
    gc.collect()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before, peak - before


def setting() -> tuple[np.ndarray, Callable[[int], Decision]]:
    """Indistinguishable peers and free probes: nothing certifies and nothing stops early."""
    losses = (np.random.default_rng(1).random((DEGREE, STAGES[-1])) < 0.5).astype(float)
    rule, peers = SageOS(probe_cost=0.0, schedule=STAGES), tuple(range(DEGREE))

    def decide(seed: int) -> Decision:
        decision = rule.begin(peers, STAGES[-1], seed)
        while (probe := decision.request) is not None:
            decision.answer(losses[:, probe.start : probe.stop])
        return decision

    return losses, decide


if __name__ == "__main__":
    main()
