"""Build the embedded dataset: a class-balanced subset of Fashion-MNIST, chosen once with a fixed seed.

    python tools/make_fmnist_mini.py [OUT.npz]

Needs the real Fashion-MNIST (`sagefl data get fmnist`). Training images come from its training split and test
images from its test split; the original positions are kept beside them (`train_index`, `test_index`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sagefl.data import Dataset, load
from sagefl.streams import stream

TRAIN_PER_CLASS, TEST_PER_CLASS = 1_000, 200
SEED = 2017  # the year of Fashion-MNIST
OUT = Path(__file__).parents[1] / "src" / "sagefl" / "data" / "embedded" / "fmnist-mini.npz"


def choose(labels: NDArray[np.int64], per_class: int, purpose: str) -> NDArray[np.int64]:
    """Positions of `per_class` random samples of each class, in their original order."""
    rng = stream(SEED, purpose)
    picks = [rng.choice(np.flatnonzero(labels == label), per_class, replace=False) for label in range(10)]
    return np.sort(np.concatenate(picks))


def build(full: Dataset) -> dict[str, NDArray[np.generic]]:
    """The arrays of the subset, labels and positions in the smallest types that hold them."""
    train = choose(full.train_y, TRAIN_PER_CLASS, "fmnist-mini-train")
    test = choose(full.test_y, TEST_PER_CLASS, "fmnist-mini-test")
    return {
        "train_x": full.train_x[train],
        "train_y": full.train_y[train].astype(np.uint8),
        "test_x": full.test_x[test],
        "test_y": full.test_y[test].astype(np.uint8),
        "train_index": train.astype(np.uint16),
        "test_index": test.astype(np.uint16),
    }


def main(out: Path) -> None:
    """Write the subset to `out` and say how large it is."""
    np.savez_compressed(out, allow_pickle=False, **build(load("fmnist")))
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB, digest {load(str(out)).digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
