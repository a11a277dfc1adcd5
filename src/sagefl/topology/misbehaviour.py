"""Which clients misbehave, and how: a description and pure functions that the simulator applies.

- `none`: nobody misbehaves
- `wrong-answers`: answers every probe with a class other than its honest answer; its model is honest
- `flatter`: answers every probe with the true label, so it looks like the best peer; its model is honest
- `poison`: answers honestly but hands over a ruined model
- `flatter-poison`: both; it looks like the best peer, and whoever believes it gets the ruined model
- `free-rider`: publishes its initial model every round, and answers from it
- `free-noise`: publishes noise as long as its model, new every round, and answers from it
- `stale`: answers from and hands over the model it had some rounds ago

The same clients misbehave for the whole run. They lie to others, not to themselves: their own training and evaluation
stay honest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from ..streams import stream
from ._common import BoolArray, Seed, TopologyError, number, probability, whole

MisbehaviourKind = Literal[
    "none", "wrong-answers", "flatter", "poison", "flatter-poison", "free-rider", "free-noise", "stale"
]
Poison = Literal["noise", "flip"]
Label = TypeVar("Label", bound=np.integer)
Weight = TypeVar("Weight", bound=np.floating)


@dataclass(frozen=True)
class Misbehaviour:
    """How a `fraction` of the clients misbehaves; `poison` and `scale` are the mode and scale of `poison_row`.

    `stale` is how many rounds old the models of stale peers are.
    """

    kind: MisbehaviourKind = "none"
    fraction: float = 0.0
    poison: Poison = "noise"
    scale: float = 1.0
    stale: int = 5

    def __post_init__(self) -> None:
        if self.kind not in (kinds := get_args(MisbehaviourKind)):
            raise TopologyError(f"unknown misbehaviour {self.kind!r}; known: {', '.join(kinds)}")
        _check_poison(self.poison, self.scale)
        probability("misbehaviour fraction", self.fraction)
        whole("stale", self.stale, 1)

    @property
    def lies(self) -> bool:
        """Whether culprits send `false_answers`."""
        return self.kind == "wrong-answers"

    @property
    def flatters(self) -> bool:
        """Whether culprits answer with the true labels. A real peer never sees them: no flattery could be stronger."""
        return self.kind in ("flatter", "flatter-poison")

    @property
    def poisons(self) -> bool:
        """Whether culprits hand over a `poison_row`."""
        return self.kind in ("poison", "flatter-poison")

    @property
    def rides_free(self) -> bool:
        """Whether culprits publish something else than what they trained, and answer from that."""
        return self.kind in ("free-rider", "free-noise")

    @property
    def history(self) -> int:
        """How many rounds old culprits' models are, and so how many older snapshots must be kept for them."""
        return self.stale if self.kind == "stale" else 0

    def culprits(self, clients: int, seed: Seed) -> BoolArray:
        """Which clients misbehave: exactly `round(fraction * clients)`, or nobody if the kind is `none`.

        The draw does not depend on the kind, and the culprits of a smaller fraction are among those of a larger one.
        """
        clients = whole("clients", clients, 1)
        chosen = np.zeros(clients, dtype=np.bool_)
        if self.kind != "none":
            order = stream(seed, "misbehaviour").permutation(clients)
            chosen[order[: round(self.fraction * clients)]] = True
        return chosen


def wrong_labels(labels: npt.NDArray[Label], rng: np.random.Generator, classes: int) -> npt.NDArray[Label]:
    """Every answer replaced by another class, drawn uniformly.

    It can be the true one by chance: the liar knows its own honest answer, not the truth.
    """
    classes = whole("classes", classes, 2)
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise TopologyError(f"labels must lie in 0 to {classes - 1}, got {labels.min()} to {labels.max()}")
    shift = rng.integers(1, classes, size=labels.shape)
    return ((labels.astype(np.int64) + shift) % classes).astype(labels.dtype)


def false_answers(kind: str, answers: npt.NDArray[Any], rng: np.random.Generator, classes: int) -> npt.NDArray[Any]:
    """What a liar makes of its honest answers of this kind."""
    if kind == "labels":
        return wrong_labels(answers, rng, classes)
    if kind == "probs":  # every class with the probability of another one
        shift = rng.integers(1, classes, size=(len(answers), 1))
        return np.take_along_axis(answers, (np.arange(classes) + shift) % classes, axis=1)
    return poison_row(answers, rng)  # as long as the honest ones, pointing anywhere


def poison_row(
    row: npt.NDArray[Weight], rng: np.random.Generator, scale: float = 1.0, mode: Poison = "noise"
) -> npt.NDArray[Weight]:
    """A ruined copy of a model's weights, with `scale` times the norm of the honest ones.

    `noise` points in a uniformly random direction; `flip` changes every sign and draws nothing.
    """
    _check_poison(mode, scale)
    if mode == "flip":
        return (-scale * row).astype(row.dtype)
    noise = rng.standard_normal(row.shape)
    norm = float(np.linalg.norm(row.astype(np.float64)))
    # A row of zeros stays zero, and an empty row has no direction.
    noise *= scale * norm / (float(np.linalg.norm(noise)) or 1.0)
    return noise.astype(row.dtype)


def _check_poison(mode: str, scale: float) -> None:
    if mode not in get_args(Poison):
        raise TopologyError(f"poison must be 'noise' or 'flip', got {mode!r}")
    number("poison scale", scale, 0.0)
