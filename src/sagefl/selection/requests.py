"""What a selector may ask for, each request with its price.

A selector yields requests and is handed answers; it never touches data, models or the network. There are three:

========== ============================================== ==================================================
request    the answer                                     what it costs
========== ============================================== ==================================================
`Probe`    losses of peers on the receiver's anchors      one *evaluation* per (peer, anchor): input and answer
`Inspect`  a metric of peers' full models, taken at home  one *model transfer* per peer not inspected before
`Read`     something small a peer publishes               one control message per peer
========== ============================================== ==================================================

Whoever drives the selector answers: a NumPy array in a test, batched inference in the simulator, RPCs in a node.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from .scoring import LABEL_ERRORS, Scoring

Peer = Hashable
Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Split = Literal["anchor", "train"]
Metric = Literal["ce", "error", "losses", "distance"]
SPLITS: Final[tuple[str, ...]] = get_args(Split)
METRICS: Final[tuple[str, ...]] = get_args(Metric)
READS: Final = ("head", "last-layer", "loss", "degree", "samples", "age", "mask")
"""What clients publish anyhow; anything else that is read is what a rule keeps in its state."""

ME: Final = "@me"
"""The receiver itself, as a peer to inspect or read; that is free. Probes go to neighbours only."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask `peers` about anchors `start <= i < stop`; the answer is a (peers x new anchors) array of losses in [0, M].

    `scoring` is what a peer sends back per anchor and how the receiver scores it. `mask` (peers x new anchors) says who
    answers which anchor; None means everybody answers all. Entries that were not asked come back as NaN.
    """

    peers: tuple[Peer, ...]
    start: int
    stop: int
    scoring: Scoring = LABEL_ERRORS
    mask: Mask | None = field(default=None, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(peers, new anchors): the shape of a full answer."""
        return len(self.peers), self.stop - self.start

    @property
    def evaluations(self) -> int:
        """Anchor-peer evaluations this request pays for."""
        if self.mask is not None:
            return int(self.mask.sum())
        return len(self.peers) * (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Inspect:
    """Move the full models of `peers` here and evaluate them on one of the receiver's own splits.

    The answer is one number per peer, or with `metric="losses"` a row of per-sample losses per peer. With `groups`
    the answer is one number per group, of the *average* of its members' models; members must be among `peers`. `ME`
    may appear anywhere. `weights` weigh the models of `peers` in those averages (with `ME` among them); without, all
    count the same. What is averaged are shared blocks, under the receiver's own head, or with `whole` heads as well.
    """

    peers: tuple[Peer, ...]
    split: Split = "anchor"
    metric: Metric = "ce"
    groups: tuple[tuple[Peer, ...], ...] | None = None
    weights: tuple[float, ...] | None = None
    whole: bool = False

    @property
    def models(self) -> tuple[Peer, ...]:
        """Peers whose model has to be moved for this."""
        return tuple(p for p in self.peers if p != ME)

    @property
    def entries(self) -> tuple[Hashable, ...]:
        """What the answer has one value for: peers, or groups of them."""
        return self.peers if self.groups is None else self.groups

    @property
    def key(self) -> Hashable:
        """What is measured, whoever is asked."""
        return "inspect", self.split, self.metric, self.groups is None, self.weights, self.whole

    def only(self, entries: tuple[Any, ...]) -> Inspect:
        """The same inspection of some of its entries."""
        return replace(self, peers=entries) if self.groups is None else replace(self, groups=entries)


@dataclass(frozen=True, slots=True)
class Read:
    """Read something small that `peers` publish: one of `READS`, or what a rule keeps in its state.

    The answer is a sequence with one array (or number) per peer. Reading `ME` is free.
    """

    peers: tuple[Peer, ...]
    what: str

    @property
    def entries(self) -> tuple[Hashable, ...]:
        """What the answer has one item for: peers."""
        return self.peers

    @property
    def key(self) -> Hashable:
        """What is read, whoever is asked."""
        return "read", self.what

    def only(self, entries: tuple[Any, ...]) -> Read:
        """The same message read from some of the peers."""
        return replace(self, peers=entries)


Request = Probe | Inspect | Read
