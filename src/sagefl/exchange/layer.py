"""What moves in a round and how it merges. The default moves dense shared blocks and mixes them as decided.

A published method that compresses, masks or re-weights overrides single steps; the round loop stays as it is. Steps
that need rows are functions ``f(workbench, client, ...)`` carried out through `Tasks.map("apply", ...)`, so that every
engine runs them where the rows are. A step writes to its own client's rows only; if it reads others', it says whose
with `reads`, so that they can be brought along where rows lie on several machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ..selection import Outcome
from .accounting import Sizes, Traffic, account
from .mixing import Mix, resolve

__all__ = ["Bench", "ExchangeLayer", "Row", "Tasks", "reads"]

Step = TypeVar("Step", bound=Callable[..., Any])


class Row(NamedTuple):
    """Somebody's row of a tensor of the population (``snapshots``, ``extras.NAME``); snapshots are of some round."""

    tensor: str
    client: int
    round: int = 0


def reads(rows: Callable[..., Iterable[Row]]) -> Callable[[Step], Step]:
    """Declare which rows a step reads besides its client's own: `rows` gets the step's arguments after the client."""

    def declare(step: Step) -> Step:
        step.rows = rows  # type: ignore[attr-defined]
        return step

    return declare


class Bench(Protocol):
    """What a step on rows is handed: a workbench, as far as the exchange knows it."""

    population: Any
    layout: Any
    seed: int


class Tasks(Protocol):
    """Whoever carries out work on rows; an engine."""

    def map(self, task: str, calls: Sequence[tuple[Any, ...]], weights: Sequence[float] | None = None) -> list[Any]:
        """Run a workbench task for every call, first argument the client."""


class ExchangeLayer:
    """Plain exchange: dense blocks, the mix as decided. Subclasses say what they change."""

    def extras(self, width: int, shared: int) -> dict[str, int]:
        """Per-client arrays this layer keeps (name -> columns), part of the checkpoint."""
        return {}

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Before the first round of a fresh run: fill the extras."""

    def groups(self, neighbours: Sequence[Sequence[int]], round: int) -> list[list[int]]:
        """Which clients train together, in order; `neighbours` are the active ones of each. Default: all at once."""
        return [list(range(len(neighbours)))]

    def reuse(self, tasks: Tasks, round: int, group: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
        """Before `group` trains: take over what earlier groups published in this same round."""

    def publish(self, tasks: Tasks, clients: int, round: int) -> None:
        """After local training, before decisions: prepare what is published."""

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """The round's mixing matrix."""
        return resolve(outcomes, ages, mixing)

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Carry the mixing out."""
        tasks.map("mix", [(client, round, mix.own, mix.pulls) for client, mix in mixes.items()])

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[str, int], sizes: Sizes) -> Traffic:
        """What one client's decision and exchange cost."""
        return account(outcome, asked, sizes)

    def state(self) -> dict[str, Any]:
        """The layer's own memory across rounds (arrays and JSON), part of the checkpoint."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up a memory that `state` gave."""
