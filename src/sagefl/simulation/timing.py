"""The clock of runs that keep rounds: who is in time, and when everything of a round happened.

Time never changes what a round does: it follows from what was trained, asked and moved. Only a deadline does, because
who is not in time is not there. Such a client trains on and is there again in the round in which it has finished.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..clock import Ended, Network, Script, play
from ..clock.network import NetworkError
from ..errors import UsageError
from ..exchange import ExchangeLayer
from ..methods import Method
from .world import World

logger = logging.getLogger(__name__)

OF_ROUNDS = ("begin", "groups", "reuse", "publish", "resolve", "ensembles")
"""Steps of an exchange that are about all clients in the same round."""

FAR = 3.0  # how much longer than the whole run a training must take to be warned of: probing makes rounds longer


def refuse_rounds(method: Method, schedule: str) -> None:
    """Refuse a method whose exchange needs all clients in the same round, where they do not keep rounds."""
    layer = type(method.exchange)
    if any(getattr(layer, step) is not getattr(ExchangeLayer, step) for step in OF_ROUNDS):
        raise UsageError(
            f"{method.id} exchanges in rounds that all clients keep ({layer.__name__}), which clock.schedule = "
            f"{schedule} does not: use schedule = rounds"
        )


def among(peers: Sequence[Sequence[int]], there: Collection[int]) -> list[list[int]]:
    """Everybody's peers without those who are not there; who is not there has none."""
    return [[p for p in row if p in there] if k in there else [] for k, row in enumerate(peers)]


def moments(began: float, trained: float, ended: Ended) -> dict[str, Any]:
    """A decision's columns of time."""
    return {
        "began_at": began,
        "trained_at": trained,
        "decided_at": ended.decided,
        "ended_at": ended.at,
        "waited": ended.waited,
        "awaited": ended.awaited,
    }


class RoundClock:
    """Virtual time of one run that keeps rounds."""

    def __init__(self, world: World, machines: Network) -> None:
        self.machines, self.deadline = machines, world.config.clock.deadline
        self.seconds = [machines.training(k, world.workload(k)) for k in range(world.clients)]
        self.now = 0.0
        self._under_way: dict[int, tuple[float, float]] = {}  # from when until when somebody trains
        if self.deadline is not None:
            longest = max(machines.pulling(k, world.sizes.shared_block) for k in range(world.clients))
            _judge_deadline(self.deadline, self.seconds, world.config.rounds * (self.deadline + longest))

    def begin(self) -> set[int]:
        """Everybody who is free begins to train; returns who has trained in time."""
        for client, seconds in enumerate(self.seconds):
            self._under_way.setdefault(client, (self.now, self.now + seconds))
        if self.deadline is None:
            return set(self._under_way)
        return {k for k, (_, until) in self._under_way.items() if until <= self.now + self.deadline}

    def end(self, scripts: Mapping[int, Script], missing: Collection[int]) -> dict[int, dict[str, Any]]:
        """End the round of those with a script; returns everybody's columns of time.

        `missing` are those who miss a neighbour: until the deadline they cannot know that it will not come.
        """
        trained = {k: self._under_way[k][1] for k in scripts}
        closes = self.now + (self.deadline or 0.0)
        starts = {k: max(at, closes if k in missing else self.now) for k, at in trained.items()}
        ended = play(self.machines, trained, starts, scripts)
        facts: dict[int, dict[str, Any]] = {k: {"began_at": began} for k, (began, _) in self._under_way.items()}
        for client, end in ended.items():
            began, until = self._under_way.pop(client)
            facts[client] = moments(began, until, end)
        self.now = max(end.at for end in ended.values())
        return facts

    @property
    def minutes(self) -> float:
        """The time by now."""
        return self.now / 60

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"now": self.now, "under_way": [[k, *times] for k, times in sorted(self._under_way.items())]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.now = state["now"]
        self._under_way = {client: (began, until) for client, began, until in state["under_way"]}


def _judge_deadline(deadline: float, seconds: Sequence[float], ends: float) -> None:
    """Refuse a deadline that nobody meets; warn of a client that is late until the run is over after about `ends`."""
    if deadline < min(seconds):
        raise NetworkError(
            f"clock.deadline is {deadline:g} s, but the fastest client trains for {min(seconds):.3g} s: "
            "nobody would ever be in time; raise it"
        )
    slowest = max(range(len(seconds)), key=seconds.__getitem__)
    if seconds[slowest] > FAR * ends:
        logger.warning(
            "client %d trains for %.3g s, and all rounds are over after about %.3g s: it takes part in none of them; "
            "give it a faster machine, or raise rounds or clock.deadline",
            slowest, seconds[slowest], ends,
        )  # fmt: skip
