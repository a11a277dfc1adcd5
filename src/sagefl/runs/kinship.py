"""Who is kin: groups of clients, found from how everybody's model does on everybody's samples.

The gap of a pair is the error of the peer's model minus that of one's own, on one's own samples. Clients that hold
other classes err on each other's samples without being of another kind, so what label shares explain is taken out
first: a straight line over their overlap. What is left is about the same for all pairs within a group, and lower than
between groups. The number of groups is the one that predicts the other half of the samples best; how well the two
halves agree says how sure one can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .intervals import estimate

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
MOST = 12  # more groups than this are not looked for
ALIKE = 0.05  # where label overlaps differ by less, labels explain nothing


@dataclass(frozen=True)
class Kinship:
    """The groups found: of every client, by size; one group where nothing tells clients apart."""

    groups: tuple[int, ...]
    within: float  # mean gap among kin
    between: float | None  # among strangers; None in one group
    contrast: tuple[float, float]  # 95 % interval of the difference, on samples that the groups were not found with
    agreement: float  # of the two halves of the samples about who is kin: 1 in full, 0 as by chance

    @property
    def count(self) -> int:
        """How many groups of two or more there are."""
        return sum(size > 1 for size in self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of all groups, largest first."""
        return tuple(np.bincount(self.groups).tolist())

    def kin(self, client: int) -> list[int]:
        """The others of a client's group."""
        return [k for k, group in enumerate(self.groups) if group == self.groups[client] and k != client]


def find_kin(gaps: Floats, overlap: Floats | None = None) -> Kinship:
    """Groups from gaps, [receiver, peer, sample], NaN where nothing is known, as on the diagonal.

    `overlap` says how far two clients' label shares are the same, [client, client], from 0 to 1.
    """
    left = gaps if overlap is None else _unexplained(gaps, overlap)
    halves = [pair_gaps(left[:, :, half::2]) for half in (0, 1)]
    off = ~np.eye(len(gaps), dtype=bool)
    if any(np.isnan(half[off]).all() for half in halves):  # nobody is known to have answered anybody
        return Kinship((0,) * len(gaps), float("nan"), None, (-1.0, 1.0), 1.0)
    ways = [partitions(half) for half in halves]
    count = _best_count(halves, ways)
    found = [way[count] for way in ways]
    low, high = _contrast([nanmean(left[:, :, half::2], 2) for half in (1, 0)], found)
    whole = pair_gaps(gaps)
    if count == 1 or low <= 0:
        one = np.zeros(len(whole), np.int64)
        return Kinship(tuple(one.tolist()), _mean(whole, _same(one)), None, (low, high), 1.0)
    groups = _by_size(partitions(pair_gaps(left))[count])
    kin, agreement = _same(groups), adjusted_rand(*found)
    return Kinship(tuple(groups.tolist()), _mean(whole, kin), _mean(whole, ~kin), (low, high), agreement)


def label_overlap(shares: Floats) -> Floats:
    """How far clients hold the same classes, from each one's shares [client, class].

    >>> label_overlap(np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    both: Floats = np.minimum(shares[:, None], shares[None, :]).sum(2)
    return both


def _unexplained(gaps: Floats, overlap: Floats) -> Floats:
    """Gaps without what a straight line over the overlap of labels explains."""
    means = nanmean(gaps, 2)
    known = ~np.isnan(means)
    if known.sum() < 3 or np.ptp(overlap[known]) < ALIKE:
        return gaps
    slope, level = np.polyfit(overlap[known], means[known], 1)
    left: Floats = gaps - (level + slope * overlap)[:, :, None]
    return left


def pair_gaps(gaps: Floats) -> Floats:
    """The mean gap of every pair, both directions together; NaN where neither is known."""
    directed = nanmean(gaps, 2)
    return nanmean(np.stack([directed, directed.T]), 0)


def partitions(gaps: Floats) -> dict[int, Labels]:
    """Average linkage: for every number of groups, the group of each client. Unknown pairs do not count."""
    clients = len(gaps)
    members = [[k] for k in range(clients)]
    known = ~np.isnan(gaps)
    np.fill_diagonal(known, False)
    total, number = np.where(known, np.nan_to_num(gaps), 0.0), known.astype(float)
    found: dict[int, Labels] = {}
    while True:
        if len(members) <= MOST:
            found[len(members)] = _labels(members, clients)
        if len(members) == 1:
            return found
        with np.errstate(invalid="ignore", divide="ignore"):
            linked = np.where(number > 0, total / number, np.inf)
        linked[np.tril_indices(len(members))] = np.nan
        a, b = np.unravel_index(int(np.nanargmin(linked)), linked.shape)
        members[a] += members.pop(b)
        for table in (total, number):
            table[a] += table[b]
            table[:, a] += table[:, b]
        total, number = (np.delete(np.delete(table, b, 0), b, 1) for table in (total, number))


def adjusted_rand(one: Labels, two: Labels) -> float:
    """How far two partitions agree about pairs: 1 if they are the same, 0 on average if they are unrelated.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    upper = np.triu_indices(len(one), 1)
    a, b = _same(one)[upper], _same(two)[upper]
    both, chance, most = (a & b).sum(), a.sum() * b.sum() / len(a), (a.sum() + b.sum()) / 2
    return 1.0 if most == chance else float((both - chance) / (most - chance))


def _best_count(halves: Sequence[Floats], ways: Sequence[dict[int, Labels]]) -> int:
    """The number of groups with which one half predicts the other best; fewer, if that is as good as certain."""
    off = ~np.eye(len(halves[0]), dtype=bool)
    missed: dict[int, float] = {}
    for count in sorted(ways[0].keys() & ways[1].keys()):
        missed[count] = 0.0
        for which, way in enumerate(ways):
            here, there, kin = halves[which], halves[1 - which], _same(way[count])
            expected = np.where(kin, _mean(here, kin & off), _mean(here, ~kin))
            missed[count] += float(np.nanmean(((there - expected) ** 2)[off]))
    best = min(missed, key=lambda count: missed[count])
    enough = missed[best] + 0.02 * (missed[1] - missed[best])
    return min(count for count, value in missed.items() if value <= enough)


def _contrast(directed: Sequence[Floats], found: Sequence[Labels]) -> tuple[float, float]:
    """How much further strangers are apart than kin, by receiver, on the half that the groups were not found with."""
    both = []
    for gaps, labels in zip(directed, found, strict=True):
        kin = _same(labels)
        np.fill_diagonal(kin, False)
        strangers = ~_same(labels)
        both.append([_mean(row, s) - _mean(row, k) for row, k, s in zip(gaps, kin, strangers, strict=True)])
    apart = nanmean(np.array(both), 0)
    apart = apart[~np.isnan(apart)]
    if len(apart) < 2:
        return -1.0, 1.0
    return estimate(apart.tolist()).interval()


def _same(labels: Labels) -> npt.NDArray[np.bool_]:
    return np.asarray(labels[:, None] == labels[None, :])


def _mean(values: Floats, where: npt.NDArray[np.bool_]) -> float:
    held = values[where]
    held = held[~np.isnan(held)]
    return float(held.mean()) if len(held) else float("nan")


def nanmean(values: Floats, axis: int) -> Floats:
    """Without a warning where there is nothing."""
    known = ~np.isnan(values)
    number = known.sum(axis)
    total = np.where(known, np.nan_to_num(values), 0.0).sum(axis)
    mean: Floats = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
    return mean


def _labels(members: Sequence[Sequence[int]], clients: int) -> Labels:
    labels = np.zeros(clients, np.int64)
    for group, held in enumerate(members):
        labels[list(held)] = group
    return labels


def _by_size(labels: Labels) -> Labels:
    """Numbered anew: the largest group first, then by its first client."""
    sizes = np.bincount(labels)
    order = sorted(range(len(sizes)), key=lambda g: (-sizes[g], int(np.flatnonzero(labels == g)[0])))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return number[labels]
