"""Random streams keyed by what they are for.

Every random number in the project comes from a stream named by `(seed, purpose, round, client)`, never from a
global generator. Two methods that need the same draw (the same anchors, the same gossip peer) ask for the same
stream and get the same numbers, whatever else they drew before; a resumed run continues as if it had never stopped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np


@lru_cache(maxsize=256)
def _code(purpose: str) -> int:
    return crc32(purpose.encode())


def stream(seed: int | tuple[int, ...], purpose: str, *key: int) -> np.random.Generator:
    """The generator of one purpose; `key` is usually `(round, client)`.

    >>> stream(7, "anchors", 3, 12).integers(100) == stream(7, "anchors", 3, 12).integers(100)
    np.True_
    """
    root = seed if isinstance(seed, tuple) else (seed,)
    # The length keeps (1, purpose, 2) and (1, 2, purpose) apart; one purpose always has keys of one length.
    words: Any = [len(root), *root, _code(purpose), *key]
    if min(words) >= 0 and max(words) < 2**32:  # the same words; numpy takes an array faster than a list
        words = np.array(words, dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
