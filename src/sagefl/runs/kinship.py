"""Who goes well with whom: groups of clients, found from what mixing with a peer costs each of them.

The cost of a pair is the error after mixing minus the error before, on samples of the receiver that nobody trained on.
Within a group it is about the same for all pairs, and lower than between groups. The number of groups is the one that
predicts the other half of the samples best; how sure one can be, is how well the two halves agree.
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


@dataclass(frozen=True)
class Kinship:
    """The groups found: of every client, by size; one group where nothing tells clients apart."""

    groups: tuple[int, ...]
    within: float  # what mixing with kin costs, as a difference in error
    between: float | None  # with strangers; None in one group
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


def find_kin(costs: Floats, answers: Floats | None = None) -> Kinship:
    """Groups from the costs of mixing, [receiver, peer, sample]; NaN where nothing was tried, as on the diagonal.

    Pairs that are no neighbours were not tried; `answers`, the errors of everybody on everybody's samples, tell what
    their cost might be, as far as the two go together where both are known.
    """
    halves = [pair_costs(costs[:, :, half::2]) for half in (0, 1)]
    whole = pair_costs(costs)
    far = None if answers is None else pair_costs(answers - answers[range(len(answers)), range(len(answers))][:, None])
    ways = [partitions(_filled(half, far)) for half in halves]
    count = _best_count(halves, ways)
    groups = _by_size(partitions(_filled(whole, far))[count])
    found = [way[count] for way in ways]
    low, high = _contrast([_directed(costs[:, :, half::2]) for half in (1, 0)], found)
    if count == 1 or low <= 0:
        one = np.zeros(len(whole), np.int64)
        return Kinship(tuple(one.tolist()), _mean(whole, _same(one)), None, (low, high), 1.0)
    kin, strangers = _same(groups), ~_same(groups)
    agreement = adjusted_rand(*found)
    return Kinship(tuple(groups.tolist()), _mean(whole, kin), _mean(whole, strangers), (low, high), agreement)


def pair_costs(costs: Floats) -> Floats:
    """The mean cost of every pair, both directions together; NaN where none was tried."""
    directed = _directed(costs)
    return nanmean(np.stack([directed, directed.T]), 0)


def partitions(costs: Floats) -> dict[int, Labels]:
    """Average linkage: for every number of groups, the group of each client. Pairs that were not tried do not count."""
    clients = len(costs)
    members = [[k] for k in range(clients)]
    known = ~np.isnan(costs)
    np.fill_diagonal(known, False)
    total, number = np.where(known, np.nan_to_num(costs), 0.0), known.astype(float)
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
    """How far two partitions agree about pairs: 1 if they are the same, 0 in the mean if they have nothing to do.

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
    """How much more strangers cost than kin, by receiver, on the half that the groups were not found with."""
    both = []
    for costs, labels in zip(directed, found, strict=True):
        kin = _same(labels)
        np.fill_diagonal(kin, False)
        strangers = ~_same(labels)
        both.append([_mean(row, s) - _mean(row, k) for row, k, s in zip(costs, kin, strangers, strict=True)])
    gaps = nanmean(np.array(both), 0)
    gaps = gaps[~np.isnan(gaps)]
    if len(gaps) < 2:
        return -1.0, 1.0
    return estimate(gaps.tolist()).interval()


def _filled(costs: Floats, far: Floats | None) -> Floats:
    """Costs of all pairs; those not tried by a straight line through those that were, over how far answers differ."""
    off = ~np.eye(len(costs), dtype=bool)
    both = off & ~np.isnan(costs) & ~np.isnan(far) if far is not None else np.zeros_like(off)
    if far is None or both.sum() < 6 or np.ptp(far[both]) == 0:
        return costs
    slope, level = np.polyfit(far[both], costs[both], 1)
    return np.where(np.isnan(costs) & off, level + max(slope, 0.0) * far, costs)


def _directed(costs: Floats) -> Floats:
    return nanmean(costs, 2)


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
