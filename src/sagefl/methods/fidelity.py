"""How true methods are to their papers, for every table that has them in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..selection.fidelity import ADAPTED, INSPIRED
from .base import methods

_SAID = {
    ADAPTED: "Adapted from their papers: {}.",
    INSPIRED: "Only inspired by their papers, not ranked: {}.",
}


def fidelity_of(label: str) -> str:
    """What the method of a label `id:name=value` says of itself; nothing for one that is not registered."""
    known = methods().get(label.partition(":")[0])
    return known.fidelity if known else ""


def kind_of(label: str) -> str:
    """The same in a word or two: as published, adapted, inspired by, ours."""
    return fidelity_of(label).partition(":")[0]


def ranked(label: str) -> bool:
    """Whether it may be compared with others under its paper's name."""
    return kind_of(label) != INSPIRED


def caveats(labels: Iterable[str], show: Callable[[str], str] = str) -> list[str]:
    """A sentence for those that are adapted and one for those only inspired by a paper, where there are any.

    The others are as published, or have no paper; `sagefl methods` says how each differs.
    """
    found = {kind: [show(label) for label in dict.fromkeys(labels) if kind_of(label) == kind] for kind in _SAID}
    return [_SAID[kind].format(", ".join(names)) for kind, names in found.items() if names]
