"""The roles of a client's samples: it trains on some, probes peers with some and is evaluated on some.

A fourth role is there only where it is asked for, as nodes do: on `safety` samples every merge is tested, and they are
never sent to anyone, because whoever has seen them could be good on them alone.

A sample has exactly one role for the whole run. Probing on training data would favour peers that trained on similar
data, and choosing peers on evaluation data would invalidate every number reported on it; so `Roles` refuses an overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .errors import DataError
from .partition import Indices


@dataclass(frozen=True, eq=False)
class Roles:
    """Positions of one client's samples in the training split, by role; disjoint, and none of the three is empty."""

    train: Indices
    anchor: Indices
    eval: Indices
    safety: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        for role, part in self.items():
            if part.ndim != 1 or part.dtype.kind not in "iu" or len(part) == 0:
                raise ValueError(
                    f"role {role!r} is {part.dtype} of shape {part.shape}; expected a vector of at least one position"
                )
        everything = np.sort(self.all)
        if (repeated := everything[1:][everything[1:] == everything[:-1]]).size:
            raise ValueError(
                f"sample {repeated[0]} appears twice among train, anchor and eval; the roles must be disjoint. "
                "Use split_roles to make them"
            )

    def items(self) -> tuple[tuple[str, Indices], ...]:
        """The roles by name; safety only where there is some."""
        three = (("train", self.train), ("anchor", self.anchor), ("eval", self.eval))
        return (*three, ("safety", self.safety)) if len(self.safety) else three

    @property
    def all(self) -> Indices:
        """Every position the client holds."""
        return np.concatenate([part for _, part in self.items()])

    def __len__(self) -> int:
        return sum(len(part) for _, part in self.items())


def split_roles(
    indices: Indices, rng: np.random.Generator, anchor: float = 0.1, eval: float = 0.1, safety: float = 0.0
) -> Roles:
    """Give each sample its role at random: floor(.1 n) anchors, floor(.1 n) for evaluation, the rest for training.

    Every role gets at least one sample, so n must be 3 or more. Anchors are in random order, so any prefix of them is a
    uniform sample of the client's data. `safety` takes its floor(safety n) samples from those for training, so that
    anchors and evaluation are the same with it and without.
    """
    n = len(indices)
    if not (anchor > 0 and eval > 0 and anchor + eval < 1):
        raise DataError(
            f"anchor is {anchor} and eval {eval}; expected positive fractions that leave something to train on"
        )
    n_anchor, n_eval = (max(1, int(np.floor(fraction * n + 1e-9))) for fraction in (anchor, eval))
    if n_anchor + n_eval >= n:
        raise DataError(
            f"a client with {n} sample(s) cannot train, probe and be evaluated on different data: {n_anchor} "
            f"anchor(s) and {n_eval} for evaluation leave nothing to train on, and at least 3 samples are needed. "
            "Raise min_samples, or use fewer clients or more data"
        )
    shuffled = rng.permutation(indices)
    train = shuffled[n_anchor + n_eval :]
    n_safety = min(int(np.floor(safety * n + 1e-9)), len(train) - 1)
    return Roles(
        train=train[n_safety:],
        anchor=shuffled[:n_anchor],
        eval=shuffled[n_anchor : n_anchor + n_eval],
        safety=train[:n_safety],
    )
