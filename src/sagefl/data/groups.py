"""Who belongs together: clients dealt to groups, at random or along the graph.

Nothing here knows what the groups differ in (`shifts` does) or what a graph is: neighbours come as lists of clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .errors import DataError

Assign = Literal["random", "graph"]


def apportion(total: int, shares: Sequence[float], what: str = "client") -> list[int]:
    """`total` split in proportion to `shares`, the largest remainders rounded up; nobody may come away with nothing."""
    if not shares or any(not share > 0 for share in shares):
        raise DataError(f"shares of groups must be positive numbers, got {', '.join(f'{s:g}' for s in shares)}")
    exact = np.asarray(shares, np.float64) / sum(shares) * total
    parts = np.floor(exact + 1e-9).astype(np.int64)
    for group in np.argsort(-(exact - parts), kind="stable")[: total - int(parts.sum())]:
        parts[group] += 1
    if (parts == 0).any():
        empty, sizes = int(np.argmin(parts)), ", ".join(f"{share:g}" for share in shares)
        raise DataError(
            f"group {empty} would have no {what}: {total} cannot be split by the shares {sizes}; use fewer groups or "
            "more equal sizes"
        )
    return [int(part) for part in parts]


def assign_groups(
    sizes: Sequence[int], how: Assign, neighbours: Sequence[Sequence[int]], rng: np.random.Generator
) -> NDArray[np.int64]:
    """The group of every client, with exactly `sizes[g]` clients in group g."""
    order = rng.permutation(sum(sizes)).tolist() if how == "random" else _along(sizes, neighbours, rng)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.repeat(np.arange(len(sizes)), sizes)
    return groups


def _along(sizes: Sequence[int], neighbours: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """Clients in an order in which every group is a patch of the graph.

    A group grows outwards from one client among those left; the next begins beside the clients that are taken, so that
    what is left stays in one piece where the graph allows it. A patch that cannot grow goes on elsewhere.
    """
    rank = rng.permutation(len(neighbours))  # decides where the first one starts, and every tie
    free = set(range(len(neighbours)))
    order: list[int] = []
    for size in sizes:
        waiting: deque[int] = deque()
        seen: set[int] = set()
        for _ in range(size):
            if not waiting:
                waiting.append(_start(free, order, neighbours, rank))
                seen.add(waiting[0])
            client = waiting.popleft()
            free.remove(client)
            order.append(client)
            new = [peer for peer in neighbours[client] if peer in free and peer not in seen]
            waiting.extend(sorted(new, key=lambda peer: int(rank[peer])))
            seen.update(new)
    return order


def _start(free: set[int], taken: Sequence[int], neighbours: Sequence[Sequence[int]], rank: NDArray[np.int64]) -> int:
    """Of the clients left, one with the fewest free neighbours among those beside the taken ones."""
    done = set(taken)
    beside = [k for k in free if any(peer in done for peer in neighbours[k])] or list(free)
    if not done:
        return min(beside, key=lambda k: int(rank[k]))
    return min(beside, key=lambda k: (sum(peer in free for peer in neighbours[k]), int(rank[k])))
