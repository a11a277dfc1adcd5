"""A world with a known truth: clients come in groups that differ in something, and some have noisy labels.

`deal` is a pure function of a data set, a partition and a description. It gives a federation whose samples are
already as their owner sees them (train, anchor and eval alike), the group of every client, and one test set for each
group. Everything drawn comes from streams keyed by the seed, so that all methods and engines share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import WIDE
from ..streams import stream
from .dataset import Dataset
from .errors import DataError
from .federation import Federation
from .groups import Assign, apportion, assign_groups
from .inputs import describe
from .partition import Indices, Owners, Partitioner
from .roles import Roles, split_roles
from .shifts import Place, Shift, ShiftKind, at_scale, chosen


@dataclass(frozen=True)
class WorldKind:
    """What a world is like; `sagefl.runs.sections.WorldConfig` explains every field."""

    shift: ShiftKind = "none"
    groups: int = 2
    strength: float | None = None
    sizes: tuple[float, ...] | None = None
    assign: Assign = "random"
    label_noise: float = 0.0
    noisy: float = 0.0


@dataclass(frozen=True, eq=False)
class Grouping:
    """The truth about the clients' data, and on which test samples (positions in the test split) a group is tested."""

    groups: NDArray[np.int64]  # of every client
    noisy: NDArray[np.bool_]  # whose labels are partly wrong
    tests: Sequence[Indices]  # of every group


class Dealt(NamedTuple):
    """A federation, and the truth about it."""

    federation: Federation
    grouping: Grouping


def deal(
    kind: WorldKind,
    dataset: Dataset,
    partitioner: Partitioner,
    clients: int,
    seed: int,
    anchor: float,
    eval: float,
    neighbours: Sequence[Sequence[int]],
) -> Dealt:
    """The data set dealt to the clients of a world; `neighbours` of each, for groups along the graph."""
    if kind.shift == "none":
        federation = Federation.build(dataset, partitioner, clients, seed, anchor, eval)
        grouping = Grouping(np.zeros(clients, np.int64), _noisy(kind, clients, seed), [np.arange(len(dataset.test_y))])
    else:
        shift, strength = chosen(kind.shift, kind.groups, kind.strength)
        _check_shift(kind.shift, shift, dataset)
        shares = kind.sizes or (1.0,) * kind.groups
        sizes = apportion(clients, shares)
        groups = assign_groups(sizes, kind.assign, neighbours, stream(seed, "world-groups"))
        order = stream(seed, "world-classes").permutation(dataset.classes)
        if kind.shift == "label-set":
            held = np.split(order, np.cumsum(apportion(dataset.classes, shares, "class"))[:-1])
            federation = _label_sets(dataset, partitioner, groups, held, seed, anchor, eval)
            tests = [np.flatnonzero(np.isin(dataset.test_y, classes)) for classes in held]
        else:
            federation = Federation.build(dataset, partitioner, clients, seed, anchor, eval)
            if kind.shift == "quantity":
                federation = _thinned(federation, groups, strength, kind.groups)
                tests = [np.arange(len(dataset.test_y))] * kind.groups
            else:
                places = [Place(group, kind.groups, strength) for group in range(kind.groups)]
                federation, tests = _shifted(federation, groups, shift, places, order)
        grouping = Grouping(groups, _noisy(kind, clients, seed), tests)
    return Dealt(_with_noisy_labels(federation, grouping.noisy, kind.label_noise), grouping)


def _check_shift(name: ShiftKind, shift: Shift, dataset: Dataset) -> None:
    """Refuse a shift that these data cannot be changed by."""
    if shift.images and dataset.train_x.ndim != 4:
        shape = " x ".join(map(str, dataset.train_x.shape[1:])) or "a record of"
        raise DataError(f"shift = {name} is for images, and a sample of {dataset.name} is {shape} numbers")
    if shift.inputs is not None and dataset.train_x.dtype.name not in ("uint8", "float32", *WIDE):
        raise DataError(
            f"shift = {name} changes pixels or floats, and {dataset.name} holds {describe(dataset.train_x)}"
        )
    if dataset.task == "regression" and (shift.labels is not None or name == "label-set"):
        raise DataError(f"shift = {name} is about classes, and the targets of {dataset.name} are values")


def _shifted(
    federation: Federation, groups: NDArray[np.int64], shift: Shift, places: Sequence[Place], order: Indices
) -> tuple[Federation, list[Indices]]:
    """Everybody's samples as its group sees them; the test split once for every group, one after the other."""
    data, seed = federation.dataset.narrowed(), federation.seed
    train_x, train_y = data.train_x, data.train_y
    test_x, test_y = [data.test_x] * len(places), [data.test_y] * len(places)
    if (change := shift.inputs) is not None:
        scaled, train_x = at_scale(data), train_x.copy()
        for client, roles in enumerate(federation.roles):
            how = partial(change, places[groups[client]], stream(seed, "world-inputs", client))
            train_x[roles.all] = scaled(train_x[roles.all], how)
        test_x = [
            scaled(data.test_x, partial(change, place, stream(seed, "world-test", place.group))) for place in places
        ]
    if (rename := shift.labels) is not None:
        names = np.empty((len(places), data.classes), np.int64)
        for place in places:
            names[place.group, order] = rename(order, place)
        train_y = train_y.copy()
        for client, roles in enumerate(federation.roles):
            train_y[roles.all] = names[groups[client], train_y[roles.all]]
        test_y = [names[place.group, data.test_y] for place in places]
    size = len(data.test_y)
    seen = replace(data, train_x=train_x, train_y=train_y, test_x=np.concatenate(test_x), test_y=np.concatenate(test_y))
    return replace(federation, dataset=seen), [np.arange(size) + group * size for group in range(len(places))]


def _label_sets(
    dataset: Dataset,
    partitioner: Partitioner,
    groups: NDArray[np.int64],
    held: Sequence[Indices],
    seed: int,
    anchor: float,
    eval: float,
) -> Federation:
    """Every group's classes dealt among its clients by the partitioner; owners keep those of their group's classes."""
    parts: list[Indices] = [np.empty(0, np.int64)] * len(groups)
    if isinstance(partitioner, Owners):
        whole = partitioner.assign(dataset.train_y, len(groups), stream(seed, "partition"))
        parts = [part[np.isin(dataset.train_y[part], held[g])] for part, g in zip(whole, groups, strict=True)]
    else:
        for group, classes in enumerate(held):
            mine = np.flatnonzero(np.isin(dataset.train_y, classes))
            members = np.flatnonzero(groups == group).tolist()
            rng = stream(seed, "world-partition", group)
            for client, part in zip(members, partitioner.assign(dataset.train_y[mine], len(members), rng), strict=True):
                parts[client] = mine[part]
    roles = []
    for holder, part in enumerate(parts):
        try:
            roles.append(split_roles(part, stream(seed, "roles", holder), anchor, eval))
        except DataError as error:
            raise DataError(
                f"client {holder}, which holds the classes of group {groups[holder]} only: {error}"
            ) from error
    return Federation(dataset, roles, seed)


def _thinned(federation: Federation, groups: NDArray[np.int64], ratio: float, k: int) -> Federation:
    """Every role of a client cut down to its group's share; roles are in random order, so a prefix is a sample."""

    def keep(part: Indices, group: int) -> Indices:
        return part[: max(1, round(len(part) * ratio ** (-group / (k - 1))))]

    roles = [
        Roles(**{role: keep(part, int(group)) for role, part in held.items()})
        for held, group in zip(federation.roles, groups, strict=True)
    ]
    return replace(federation, roles=roles)


def _noisy(kind: WorldKind, clients: int, seed: int) -> NDArray[np.bool_]:
    """Exactly `round(noisy * clients)`; those of a smaller share are among those of a larger one."""
    found = np.zeros(clients, np.bool_)
    found[stream(seed, "noisy-clients").permutation(clients)[: round(kind.noisy * clients)]] = True
    return found


def _with_noisy_labels(federation: Federation, noisy: NDArray[np.bool_], share: float) -> Federation:
    """So large a share of a noisy client's training samples and anchors gets another label than its own.

    Evaluation samples keep theirs: accuracy measured on wrong labels would measure the noise.
    """
    if not share or not noisy.any():
        return federation
    if federation.dataset.task == "regression":
        raise DataError("world.label_noise is about classes, and the targets are values: leave it out")
    data, labels = federation.dataset, federation.dataset.train_y.copy()
    for client in np.flatnonzero(noisy).tolist():
        roles, rng = federation.roles[client], stream(federation.seed, "label-noise", client)
        for part in (roles.train, roles.anchor):
            wrong = rng.permutation(part)[: round(share * len(part))]
            labels[wrong] = (labels[wrong] + rng.integers(1, data.classes, len(wrong))) % data.classes
    return replace(federation, dataset=replace(data, train_y=labels))
