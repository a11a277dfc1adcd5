"""Events in virtual time: training, calls that share uplinks and downlinks, answers, waiting.

A transfer moves at the smaller of its shares of the sender's uplink and of the receiver's downlink; whenever one begins
or ends, those that share an end with it change their pace. A peer answers one call after another, as they arrive. What
happens at the same moment happens in the order in which it was caused, so the same input always gives the same times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

from .network import Network
from .script import Call, Script

NOBODY = -1


class Trained(NamedTuple):
    """A client has trained and publishes."""

    client: int
    at: float


class Ended(NamedTuple):
    """A client is through with its script. Times are seconds."""

    client: int
    began: float
    decided: float  # all looks done; what is left is the exchange
    at: float
    waited: float  # for peers that were still training
    awaited: int | None  # the one it waited for longest


@dataclass
class _Act:
    """A client in its script."""

    script: Script
    began: float
    step: int = -1
    open: int = 0  # calls of this step without an answer
    decided: float = math.nan
    waited: float = 0.0
    longest: float = 0.0  # wait for one peer
    awaited: int = NOBODY
    waits: dict[int, float] = field(default_factory=dict)  # of this step, by peer


@dataclass
class _Flow:
    """A transfer under way."""

    source: int
    target: int
    left: float
    then: str
    client: int
    call: int
    rate: float = 0.0
    since: float = 0.0
    version: int = 0


class Clockwork:
    """Everything that goes on among some clients, and when it ends."""

    def __init__(self, network: Network, now: float = 0.0) -> None:
        self.network, self.now = network, now
        self._events: list[tuple[float, int, str, int, int]] = []
        self._made = 0
        self._acts: dict[int, _Act] = {}
        self._flows: dict[int, _Flow] = {}
        self._sent: list[dict[int, None]] = [{} for _ in range(network.clients)]
        self._got: list[dict[int, None]] = [{} for _ in range(network.clients)]
        self._busy = [now] * network.clients  # until when a client answers earlier calls
        self._ready = [now] * network.clients  # from when on it has its new model

    # What is begun ------------------------------------------------------------------------------------------------

    def train(self, client: int, until: float) -> None:
        """Let a client train; `advance` says when it has. Meanwhile it answers from what it has published."""
        self._at(until, "trained", client)

    def promise(self, client: int, ready: float) -> None:
        """Let calls for a client's new model wait until it has it."""
        self._ready[client] = ready

    def act(self, client: int, script: Script, at: float) -> None:
        """Let a client go through its script from some time on; `advance` says when it is through."""
        self._acts[client] = _Act(script, at)
        self._at(at, "step", client)

    # What comes next ----------------------------------------------------------------------------------------------

    def advance(self) -> Trained | Ended | None:
        """Go on to the next moment in which a client has trained or is through; None: nothing is going on."""
        while self._events:
            time, _, kind, client, call = heappop(self._events)
            if kind == "flow" and not self._flowed(client, call, time):
                continue  # its pace has changed meanwhile
            self.now = time
            if kind == "trained":
                return Trained(client, time)
            if kind != "flow" and (ended := getattr(self, f"_{kind}")(client, call)):
                assert isinstance(ended, Ended)
                return ended
        return None

    @property
    def coming(self) -> list[Trained]:
        """Trainings under way, in the order in which they end; at the same moment in client order."""
        found = [(time, client) for time, _, kind, client, _ in self._events if kind == "trained"]
        return [Trained(client, time) for time, client in sorted(found)]

    # Steps of a script --------------------------------------------------------------------------------------------

    def _step(self, client: int, _: int) -> Ended | None:
        """The client's last look is done: begin the next one, or end."""
        act = self._acts[client]
        self._count_waits(act)
        act.step += 1
        if act.step == len(act.script.looks):
            act.decided = self.now
        if act.step == len(act.script.steps):
            del self._acts[client]
            awaited = None if act.awaited == NOBODY else act.awaited
            return Ended(client, act.began, act.decided, self.now, act.waited, awaited)
        calls = act.script.steps[act.step].calls
        act.open = len(calls)
        for i, call in enumerate(calls):
            self._send(client, call.peer, call.there, "there", client, i)
        if not calls:
            self._at_home(client)
        return None

    def _there(self, client: int, i: int) -> None:
        """A call has arrived: the peer answers when it has its new model, after the calls before this one."""
        call = self._call(client, i)
        begin = self.now
        if call.fresh and self._ready[call.peer] > begin:
            self._acts[client].waits[call.peer] = self._ready[call.peer] - begin
            begin = self._ready[call.peer]
        if call.work:
            begin = max(begin, self._busy[call.peer])
            self._busy[call.peer] = begin = begin + float(call.work / self.network.infer[call.peer])
        self._at(begin, "answered", client, i)

    def _answered(self, client: int, i: int) -> None:
        call = self._call(client, i)
        self._send(call.peer, client, call.back, "back", client, i)

    def _back(self, client: int, _: int) -> None:
        act = self._acts[client]
        act.open -= 1
        if not act.open:
            self._at_home(client)

    def _at_home(self, client: int) -> None:
        act = self._acts[client]
        home = act.script.steps[act.step].home
        self._at(self.now + float(home / self.network.infer[client]), "step", client)

    def _call(self, client: int, i: int) -> Call:
        act = self._acts[client]
        return act.script.steps[act.step].calls[i]

    def _count_waits(self, act: _Act) -> None:
        """Calls of a look wait side by side, so the longest wait is the look's."""
        if act.waits:
            longest = max(act.waits.values())
            act.waited += longest
            if longest > act.longest:
                act.longest, act.awaited = longest, min(p for p, w in act.waits.items() if w == longest)
            act.waits = {}

    # Transfers ----------------------------------------------------------------------------------------------------

    def _send(self, source: int, target: int, size: float, then: str, client: int, call: int) -> None:
        if not size or math.isinf(min(self.network.up[source], self.network.down[target])):
            self._at(self.now + self.network.between(source, target), then, client, call)
            return
        self._made += 1
        self._flows[self._made] = _Flow(source, target, float(size), then, client, call, since=self.now)
        self._sent[source][self._made] = self._got[target][self._made] = None
        self._retime(source, target)

    def _flowed(self, id: int, version: int, time: float) -> bool:
        """Whether a transfer has ended: then the last byte is on its way, and others have more room."""
        flow = self._flows.get(id)
        if flow is None or flow.version != version:
            return False
        self.now = time
        del self._flows[id], self._sent[flow.source][id], self._got[flow.target][id]
        self._retime(flow.source, flow.target)
        self._at(time + self.network.between(flow.source, flow.target), flow.then, flow.client, flow.call)
        return True

    def _retime(self, source: int, target: int) -> None:
        """Give every transfer that shares an end its present pace."""
        for id in dict.fromkeys([*self._sent[source], *self._got[target]]):
            flow = self._flows[id]
            share_up = self.network.up[flow.source] / len(self._sent[flow.source])
            rate = float(min(share_up, self.network.down[flow.target] / len(self._got[flow.target])))
            if rate == flow.rate:
                continue
            flow.left = max(flow.left - flow.rate * (self.now - flow.since), 0.0)
            flow.rate, flow.since, flow.version = rate, self.now, flow.version + 1
            self._at(self.now + flow.left / rate, "flow", id, flow.version)

    def _at(self, time: float, kind: str, client: int, call: int = 0) -> None:
        self._made += 1
        heappush(self._events, (time, self._made, kind, client, call))

    # For a checkpoint ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that is going on, as plain values."""
        return {
            "now": self.now,
            "made": self._made,
            "events": [list(event) for event in sorted(self._events)],
            "acts": [[k, a.script.plain(), *(getattr(a, n) for n in _OF_ACT)] for k, a in self._acts.items()],
            "flows": [[id, *vars(flow).values()] for id, flow in self._flows.items()],
            "busy": list(self._busy),
            "ready": list(self._ready),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.now, self._made = state["now"], state["made"]
        self._events = [(time, made, kind, client, call) for time, made, kind, client, call in state["events"]]
        self._acts = {}
        for client, script, *values in state["acts"]:
            named = dict(zip(_OF_ACT, values, strict=True))
            self._acts[client] = _Act(Script.of(script), **named)
        self._flows = {id: _Flow(*values) for id, *values in state["flows"]}
        for id, flow in sorted(self._flows.items()):
            self._sent[flow.source][id] = self._got[flow.target][id] = None
        self._busy, self._ready = list(state["busy"]), list(state["ready"])


_OF_ACT = ("began", "step", "open", "decided", "waited", "longest", "awaited", "waits")


def play(
    network: Network, trained: Mapping[int, float], starts: Mapping[int, float], scripts: Mapping[int, Script]
) -> dict[int, Ended]:
    """When everybody is through in a round: `trained` says who has its new model when, `starts` when scripts begin."""
    works = Clockwork(network, min(trained.values(), default=0.0))
    for client, time in trained.items():
        works.promise(client, time)
    for client in sorted(scripts):
        works.act(client, scripts[client], starts[client])
    ended: dict[int, Ended] = {}
    while (event := works.advance()) is not None:
        assert isinstance(event, Ended)
        ended[event.client] = event
    return ended
