"""Who holds which training samples: Dirichlet, shard and IID partitions, or the owners named in the data.

A partitioner is configuration only. `assign` gets labels, a number of clients and a generator, and returns for each
client the positions of its samples in ascending order. No sample goes to two clients, and every sample goes to one,
except those of owners that are left out. What a client uses its samples for (train, anchor, eval) is up to `roles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import DataError
from .targets import Labels

Indices = NDArray[np.int64]


class Partitioner(Protocol):
    """Anything that deals samples to clients."""

    def assign(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """The positions of each client's samples, in ascending order; no sample appears twice."""
        ...


@dataclass(frozen=True)
class Dirichlet:
    """Label skew: each class is spread over the clients in Dirichlet(alpha) proportions.

    The smaller `alpha`, the fewer clients share a class. The name goes back to Hsu, Qi and Brown 2019,
    "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
    (arXiv:1909.06335), who draw class proportions *per client*; here, as in Yurochkin et al. 2019
    (arXiv:1905.12022) and most later code, client proportions are drawn *per class*, so that all samples are
    used and client sizes vary too. Where that code leaves clients nearly empty or moves samples around, we
    redraw the whole partition until every client holds at least `min_samples`: the result is an exact draw
    from the Dirichlet partition given that minimum. At most `max_tries` draws are made, and fewer if the first
    hundred show that it is hopeless.
    """

    alpha: float
    min_samples: int = 10
    max_tries: int = 100_000

    def __post_init__(self) -> None:
        if not (np.isfinite(self.alpha) and self.alpha > 0):
            raise ValueError(f"alpha is {self.alpha}; expected a positive number, such as 0.1")
        if self.min_samples < 0 or self.max_tries < 1:
            raise ValueError(
                f"min_samples is {self.min_samples} and max_tries {self.max_tries}; expected >= 0 and >= 1"
            )

    def assign(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """Redraw class proportions until all clients have enough samples, then deal each class accordingly."""
        _check(labels, clients, each=self.min_samples)
        counts = self._counts(np.bincount(labels), clients, rng)
        owner = np.empty(len(labels), np.int64)
        for label, per_client in enumerate(counts):
            members = np.flatnonzero(labels == label)
            owner[rng.permutation(members)] = np.repeat(np.arange(clients), per_client)
        return _group(owner, clients)

    def _counts(self, sizes: Indices, clients: int, rng: np.random.Generator) -> Indices:
        """How many samples of each class (rows) each client (columns) gets."""
        concentration, short = np.full(clients, self.alpha), 0
        for tried in range(1, self.max_tries + 1):
            shares = rng.dirichlet(concentration, size=len(sizes))
            cuts = np.rint(np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
            cuts[:, -1] = sizes  # the sum of the shares is 1 only up to rounding
            counts = np.diff(cuts, axis=1, prepend=0)
            lacking = int(np.count_nonzero(counts.sum(axis=0) < self.min_samples))
            if lacking == 0:
                return counts
            short += lacking
            # With a mean of s clients short, at most about one draw in e^s succeeds.
            if tried == 100 and short / tried > np.log(self.max_tries):
                break
        raise DataError(
            f"no Dirichlet(alpha={self.alpha:g}) partition of {sizes.sum()} samples over {clients} clients gave "
            f"every client {self.min_samples} samples in {tried} draws; on average {short / tried:.1f} clients "
            "fell short. Use a larger alpha, fewer clients, a smaller min_samples or more data"
        )


@dataclass(frozen=True)
class Shards:
    """Pathological label skew: sort by label, cut into equal shards, deal each client `per_client` of them.

    McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data"
    (arXiv:1602.05629), section 3: 200 shards of 300 MNIST digits, two for each of 100 clients. We shuffle within
    each label before sorting, so that seeds differ in more than the deal, and let shard sizes differ by one when
    they do not divide the data, so that no sample is lost.
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise ValueError(f"per_client is {self.per_client}; expected at least 1 shard for each client")

    def assign(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """Cut the shuffled, label-sorted samples into `clients * per_client` runs and deal them at random."""
        _check(labels, clients, each=self.per_client)
        shuffled = rng.permutation(len(labels))
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        shards = clients * self.per_client
        shard = np.arange(len(labels)) * shards // len(labels)
        holder = rng.permutation(np.repeat(np.arange(clients), self.per_client))
        owner = np.empty(len(labels), np.int64)
        owner[by_label] = holder[shard]
        return _group(owner, clients)


@dataclass(frozen=True)
class IID:
    """No skew: a random deal into equal parts (sizes differ by at most one); the IID case of McMahan et al. 2017."""

    def assign(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """Deal the samples like cards."""
        _check(labels, clients, each=1)
        return _group(rng.permutation(np.arange(len(labels)) % clients), clients)


@dataclass(frozen=True, eq=False)
class Owners:
    """Nothing is dealt: every client is one of the owners named in the data (a writer, a hospital, a device).

    Owners with fewer than `min_samples` samples are left out. If more remain than there are clients, the seed draws
    which of them take part; clients are in the owners' order.
    """

    owners: Indices
    min_samples: int = 10

    def assign(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """Each client the samples of one owner."""
        _check(labels, clients, each=1)
        held = _group(self.owners, int(self.owners.max()) + 1)
        return [held[owner] for owner in self.chosen(clients, rng)]

    def chosen(self, clients: int, rng: np.random.Generator) -> Indices:
        """Which owner every client is."""
        sizes = np.bincount(self.owners)
        fit = np.flatnonzero(sizes >= max(self.min_samples, 1))
        if len(fit) < clients:
            raise DataError(
                f"the data name {len(sizes)} owners, {len(fit)} of them with at least {self.min_samples} samples, for "
                f"{clients} clients. Use clients = {len(fit)} or fewer, or a smaller min_samples"
            )
        return fit if len(fit) == clients else np.sort(rng.choice(fit, clients, replace=False))


def _check(labels: Labels, clients: int, each: int) -> None:
    if clients < 1:
        raise ValueError(f"clients is {clients}; expected at least 1")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels are {labels.dtype} of shape {labels.shape}; expected a vector of integers")
    if len(labels) < clients * each or len(labels) == 0:
        raise DataError(
            f"{len(labels)} samples cannot give {clients} clients {max(each, 1)} each. Use fewer clients or more data"
        )


def _group(owner: Indices, clients: int) -> list[Indices]:
    """Turn the owner of each sample into the samples of each owner."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=clients))[:-1])
