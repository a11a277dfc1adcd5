"""A dataset dealt to clients: who holds which samples, in which role, and the order in which anchors are used.

A federation depends only on (dataset, partitioner, clients, seed), so all methods and topologies of a comparison
share it. It holds positions, not copies of the data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..streams import stream
from .dataset import Dataset
from .errors import DataError
from .partition import Indices, Partitioner
from .roles import Roles, split_roles

AnchorMode = Literal["shuffle", "fixed"]


@dataclass(frozen=True, eq=False)
class Federation:
    """A dataset and, for each client, the roles of its samples; no sample has two owners or two roles."""

    dataset: Dataset
    roles: Sequence[Roles]
    seed: int

    def __post_init__(self) -> None:
        if not self.roles:
            raise ValueError("a federation needs at least one client")
        held, size = np.concatenate([roles.all for roles in self.roles]), len(self.dataset.train_y)
        if held.min() < 0 or held.max() >= size:
            raise ValueError(
                f"clients hold positions {held.min()} to {held.max()}; expected 0 to {size - 1}, "
                f"the training split of {self.dataset.name}"
            )
        times = np.bincount(held, minlength=size)
        if times.max() > 1:
            shared = int(times.argmax())
            owners = [client for client, roles in enumerate(self.roles) if shared in roles.all]
            raise ValueError(f"sample {shared} is held by clients {owners}; expected one owner for each sample")

    @classmethod
    def build(
        cls,
        dataset: Dataset,
        partitioner: Partitioner,
        clients: int,
        seed: int,
        anchor: float = 0.1,
        eval: float = 0.1,
        safety: float = 0.0,
    ) -> Federation:
        """Deal the training split to `clients` and give every sample its role."""
        parts = partitioner.assign(dataset.strata, clients, stream(seed, "partition"))
        roles = []
        for client, indices in enumerate(parts):
            try:
                roles.append(split_roles(indices, stream(seed, "roles", client), anchor, eval, safety))
            except DataError as error:
                raise DataError(f"client {client} of {clients}: {error}") from error
        return cls(dataset, roles, seed)

    @cached_property
    def owners(self) -> Indices | None:
        """Which of the owners that the data name every client is; None if clients are not owners."""
        if self.dataset.owners is None:
            return None
        held = [np.unique(self.dataset.owners[roles.all]) for roles in self.roles]
        found = np.concatenate(held)
        return found if len(found) == len(np.unique(found)) == self.clients else None

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the clients are called; None if they have numbers only."""
        known = self.dataset.owner_names
        return None if self.owners is None or known is None else tuple(known[owner] for owner in self.owners)

    def own_tests(self) -> list[Indices] | None:
        """Every client's own part of the test split; None where test samples are everybody's."""
        tested = self.dataset.test_owners
        if self.owners is None or tested is None:
            return None
        parts = [np.flatnonzero(tested == owner) for owner in self.owners]
        if bare := [client for client, part in enumerate(parts) if not len(part)]:
            who = f"owner {self.names[bare[0]]!r}" if self.names else f"owner {self.owners[bare[0]]}"
            raise DataError(
                f"{self.dataset.name}: {who} has no test sample, on which its accuracy would be measured: give every "
                "owner some, or do not say whose the test samples are"
            )
        return parts

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.roles)

    def anchors(self, client: int, round: int, seed: int | None = None, mode: AnchorMode = "shuffle") -> Indices:
        """A client's anchor pool in the order of this round; a stage of m anchors is its first m.

        `shuffle` draws a new order every round from a stream keyed by (seed, round, client). It is the same for every
        method, so that decisions can be compared. `fixed` keeps one random order for the whole run. `seed` defaults to
        the federation's.
        """
        pool = self.roles[client].anchor
        if mode == "fixed":
            return pool.copy()
        if mode != "shuffle":
            raise ValueError(f"anchor mode {mode!r}; expected 'shuffle' or 'fixed'")
        return stream(self.seed if seed is None else seed, "anchors", round, client).permutation(pool)

    @cached_property
    def label_counts(self) -> NDArray[np.int64]:
        """How many samples of each class (or tenth of the values) a client holds, all roles together, a row each."""
        owner = np.repeat(np.arange(self.clients), [len(roles) for roles in self.roles])
        labels = self.dataset.strata[np.concatenate([roles.all for roles in self.roles])]
        kinds = self.dataset.classes if self.dataset.task == "classification" else int(labels.max()) + 1
        return np.bincount(owner * kinds + labels, minlength=self.clients * kinds).reshape(self.clients, kinds)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data and of who holds what in which role: equal digests mean the same federation."""
        state = hashlib.sha256(self.dataset.digest.encode())
        for roles in self.roles:
            for role, part in roles.items():
                state.update(f"{role} {len(part)}\n".encode())
                state.update(np.ascontiguousarray(part, dtype="<i8").data)
        return state.hexdigest()
