"""What moves in a round and how it merges. The default moves dense shared blocks and mixes them as decided.

A published method that compresses, masks or re-weights overrides single steps; the round loop stays as it is. A step
that needs rows is a task (`sagefl.learning.tasks`), so that every engine carries it out where the rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..learning.tasks import MixBlocks, Task, Tasks
from ..selection.outcome import Outcome, Traffic
from ..selection.scoring import Scoring
from .accounting import Sizes, account
from .mixing import Mix, resolve


class ExchangeLayer:
    """Plain exchange: dense blocks, mixed as decided. Subclasses override what they change."""

    beyond: ClassVar[str] = ""
    """What a method does beyond pulling blocks and mixing them (`block`), as an operator is told whose node cannot.

    A subclass that does no more says so with an empty one of its own.
    """

    def extras(self, width: int, shared: int) -> dict[str, int]:
        """Per-client arrays that this layer keeps (name -> columns); they are part of the checkpoint."""
        return {}

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Before the first round of a fresh run: fill the extras."""

    def groups(self, neighbours: Sequence[Sequence[int]], round: int) -> list[list[int]]:
        """Groups of clients that train together, in order; by default one. `neighbours` are the active ones of each."""
        return [list(range(len(neighbours)))]

    def reuse(self, tasks: Tasks, round: int, group: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
        """Before `group` trains: use what earlier groups published in this round."""

    def publish(self, tasks: Tasks, clients: int, round: int) -> None:
        """After local training, before decisions: prepare what is published."""

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """The round's mixing matrix."""
        return resolve(outcomes, ages, mixing)

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Carry the mixing out."""
        tasks.map([self.block(client, round, mix) for client, mix in mixes.items()])

    def block(self, client: int, round: int, mix: Mix) -> Task[None]:
        """How one client's pulled blocks become part of its own."""
        return MixBlocks(client, round, mix.own, mix.pulls)

    def ensembles(self) -> Mapping[int, Sequence[tuple[int, int, float]]]:
        """With whose published models (client, age, weight) a client predicts after mixing; by default with none."""
        return {}

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """What one client's decision and exchange cost."""
        return account(outcome, asked, sizes)

    def state(self) -> dict[str, Any]:
        """What the layer remembers across rounds (arrays and JSON); it is part of the checkpoint."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
