"""Count Sketch of a shared block: small enough to be compared before a model moves.

Every coordinate has a bucket and a sign, the same for all clients; a sketch is the signed sum of each bucket. It is
linear, and distances of sketches are near those of blocks (Charikar, Chen, Farach-Colton 2002).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..streams import stream

SKETCH = 1000  # numbers in a sketch


@lru_cache(maxsize=4)
def _tables(size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    rng = stream(0, "count-sketch", size)
    return rng.integers(0, SKETCH, size), np.where(rng.random(size) < 0.5, -1.0, 1.0)


def count_sketch(block: Tensor) -> npt.NDArray[np.float32]:
    """The sketch of a block; what is not a number counts 0."""
    values = block.nan_to_num().numpy().astype(np.float64)
    buckets, signs = _tables(len(values))
    return np.bincount(buckets, weights=signs * values, minlength=SKETCH).astype(np.float32)
