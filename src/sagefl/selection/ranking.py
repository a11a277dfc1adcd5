"""What rules that rank peers by a score have in common: the best k, some at random, a bit of both.

Ties are common (0-1 risks, equal heads in the first round) and are broken at random: breaking them by index would make
all clients herd onto the same peers. Every count is capped at the number of peers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .requests import Peer
from .selector import Draws


def best(peers: Sequence[Peer], scores: npt.ArrayLike, k: int, rng: Draws) -> tuple[Peer, ...]:
    """The k peers with the highest scores, best first."""
    shuffled = rng("ties").permutation(len(peers))
    order = np.lexsort((shuffled, -np.asarray(scores, dtype=np.float64)))
    return tuple(peers[i] for i in order[:k])


def sample(peers: Sequence[Peer], k: int, rng: Draws) -> tuple[Peer, ...]:
    """k peers drawn uniformly without replacement, in the order of `peers`."""
    drawn = rng("sample").permutation(len(peers))[:k]
    return tuple(peers[i] for i in sorted(drawn))


def epsilon_greedy(
    peers: Sequence[Peer], scores: Mapping[Peer, float], k: int, epsilon: float, rng: Draws
) -> tuple[Peer, ...]:
    """k peers, each the best of those left, or with probability epsilon any of them."""
    left = list(best(peers, [scores[p] for p in peers], len(peers), rng))
    chosen: list[Peer] = []
    for _ in range(min(k, len(left))):
        explores = rng("explore").random() < epsilon
        chosen.append(left.pop(int(rng("explore").random() * len(left)) if explores else 0))
    return tuple(chosen)


def cosines(a: npt.ArrayLike, others: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float64]:
    """Cosines of the angles between one array and each of several of its size; 0 where one of them is all zero."""
    x = np.ravel(np.asarray(a, dtype=np.float64))
    rows = np.array([np.ravel(other) for other in others], dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(x)
    similarities: npt.NDArray[np.float64] = np.divide(rows @ x, norms, out=np.zeros(len(rows)), where=norms > 0)
    return similarities
