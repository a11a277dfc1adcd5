"""Training in bfloat16 against float32: the built-in model on images of Fashion-MNIST's and CIFAR-10's shapes.

python benchmarks/precision.py [--quick]  # about two minutes on an idle core; --quick: seconds, and no figure to keep

Both precisions take turns in one process on one thread, so that a slow spell hits both; what counts is the ratio of
samples per second. Images are made up: how long a step takes does not depend on what they show. bfloat16 pays only
where the processor multiplies in it (AVX512-BF16, AMX); the table says whether it does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from sagefl.data import Dataset
from sagefl.learning.tasks import Train
from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig
from sagefl.simulation.engines import Sequential
from sagefl.simulation.world import World

SHAPES = {"Fashion-MNIST": (1, 28, 28), "CIFAR-10": (3, 32, 32)}
PRECISIONS = ("float32", "bfloat16")
CLIENTS = 2


def images(shape: tuple[int, int, int], samples: int) -> Dataset:
    """Ten classes of noise."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (samples, *shape), dtype=np.uint8)
    y = np.arange(samples) % 10
    return Dataset.from_arrays("images", x, y, x[:100], y[:100])


def engine(dataset: Dataset, precision: str) -> Sequential:
    """Everybody at the start."""
    settings = {"clients": CLIENTS, "data": {"partition": "iid"}, "training": {"precision": precision}}
    world = World.build(RunConfig.parse(settings), dataset)
    made = Sequential(world, LocalTraining())
    made.population.reset(world.initial)
    return made


def speeds(shape: tuple[int, int, int], samples: int, turns: int) -> dict[str, list[float]]:
    """Samples per second of every turn, a turn being a round of all clients; the first one does not count."""
    dataset = images(shape, samples)
    engines = {precision: engine(dataset, precision) for precision in PRECISIONS}
    found: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for turn in range(1 + turns):
        for precision, made in engines.items():
            began = time.perf_counter()
            seen = sum(n for _, n in made.map([Train(client, turn) for client in range(CLIENTS)]))
            found[precision].append(seen / (time.perf_counter() - began))
    for made in engines.values():
        made.close()
    return {precision: values[1:] for precision, values in found.items()}


def native() -> str:
    """Whether this processor multiplies in bfloat16, as far as Linux says."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore").split())
    except OSError:
        return "unknown"
    return ", ".join(sorted(flags & {"avx512_bf16", "amx_bf16", "bf16"})) or "no"


def main() -> None:
    """A row per shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few samples and a single turn: that it runs at all")
    quick = parser.parse_args().quick
    samples, turns = (300, 1) if quick else (12_000, 5)
    print(f"Native bfloat16: {native()}. Samples per second on one thread.\n")
    print("| shape | float32 | bfloat16 | ratio |\n|---|---|---|---|")
    for name, shape in SHAPES.items():
        found = speeds(shape, samples, turns)
        full, low = (statistics.median(found[precision]) for precision in PRECISIONS)
        ratio = statistics.median(b / a for a, b in zip(*(found[p] for p in PRECISIONS), strict=True))
        print(f"| {name} | {full:,.0f} | {low:,.0f} | {ratio:.2f} x |", flush=True)


if __name__ == "__main__":
    main()
