"""A clock for a run that is over: how long it would have taken on machines and links that it was not run with.

Time never changes what a run does that keeps rounds, so it can be counted afterwards. Decisions are replayed from what
was recorded of them, and each has to end as it did and to cost what it cost; then a clock per network plays the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import isclose
from typing import Any

from ..clock import Script
from ..data import Dataset
from ..exchange.mixing import client_of
from ..runs.columns import BYTES
from ..runs.config import RunConfig, merged
from ..runs.files import RunError
from ..runs.losses import Recorded
from ..runs.replaying import recorded_decisions, replay_decision
from ..runs.rundir import RunDirectory
from ..selection import ME, Decision, Read, State
from .scripts import Scripts
from .simulator import Simulator
from .timing import RoundClock
from .waves import RoundSight
from .world import World

Row = Mapping[str, Any]


def minutes_on(
    directory: RunDirectory, networks: Sequence[str], dataset: Dataset | None = None
) -> dict[str, list[float]]:
    """The time at the end of every recorded round on each network, in minutes; `dataset`: the run's, if loaded."""
    config = directory.config
    if config.clock.schedule != "rounds":
        raise RunError(
            f"{directory.path} was run with clock.schedule = {config.clock.schedule}, under which time decides what "
            "happens: run it anew with another clock.network"
        )
    settings = {name: RunConfig.parse(merged(config.model_dump(), {"clock": {"network": name}})) for name in networks}
    machines = {name: timed.clock.made(config.clients, config.seed) for name, timed in settings.items()}
    world = World.build(settings[networks[0]], dataset)
    clocks = {name: RoundClock(world, there) for name, there in machines.items() if there is not None}
    minutes: dict[str, list[float]] = {name: [] for name in clocks}
    for scripts in _Replay(directory, world).rounds():
        for name, clock in clocks.items():
            clock.begin()
            clock.end(scripts, ())
            minutes[name].append(clock.minutes)
    return minutes


class _Replay:
    """A run's decisions once more, from their record."""

    def __init__(self, directory: RunDirectory, world: World) -> None:
        self.directory, self.world = directory, world
        self.simulator = Simulator(world.config, directory, world=world)
        self.states: dict[int, State] = {}

    def rounds(self) -> Iterator[dict[int, Script]]:
        """What everybody did after training, round by round."""
        records = recorded_decisions(self.directory, own=True)
        rows = self.directory.table("decisions").select("round", "client", "peers", "chosen", *BYTES)
        for number, decided in groupby(rows.iter_rows(named=True), lambda row: int(row["round"])):
            sight = RoundSight(number, self.world.view(number), {}, {}, {}, self.world.history)
            noted, scripts = Scripts(self.world, sight.ages), {}
            for row in decided:
                client = row["client"]
                scripts[client] = Script()
                if row["peers"]:
                    decision = self._decision(row, next(records)[1], noted, sight)
                    traffic = self.simulator.recorder.traffic(client, decision)
                    scripts[client] = noted.of(client, decision, traffic)
                if not isclose(scripts[client].bytes, sum(row[name] or 0 for name in BYTES), abs_tol=1.0):
                    raise self._differs(row, "the messages that are known of it are not all that it cost")
            yield scripts

    def _decision(self, row: Row, record: Recorded, noted: Scripts, sight: RoundSight) -> Decision:
        client, number, config = row["client"], row["round"], self.world.config
        selector, key = self.simulator.method.selector, (config.seed, number, client)
        decision = replay_decision(
            selector, record, key, number, config.rounds, self.states.get(client),
            see=lambda opened: noted.note(client, opened), tell=lambda request: _degrees(request, sight),
        )  # fmt: skip
        if decision is None:
            raise self._differs(row, f"{selector.id} asked for what is not recorded")
        if list(decision.outcome.peers) != row["chosen"]:
            raise self._differs(row, f"it now takes {list(decision.outcome.peers)}, and took {row['chosen']}")
        if decision.outcome.state is not None:
            self.states[client] = decision.outcome.state
        return decision

    def _differs(self, row: Row, how: str) -> RunError:
        return RunError(
            f"{self.directory.path}: the decision of client {row['client']} in round {row['round'] + 1} cannot be "
            f"replayed, {how}; run it anew with --set clock.network=..."
        )


def _degrees(request: Read, sight: RoundSight) -> list[int] | None:
    """How many neighbours peers have, which the graph says; what else they publish is not recorded."""
    if request.what != "degree" or ME in request.peers:
        return None
    return [sight.told(-1, client_of(peer), "degree") for peer in request.peers]
