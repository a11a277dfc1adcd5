"""Which neighbours a round asks: those that are there, not those that would hold it up.

A neighbour that does not answer is *away*: it is asked again in the background, further and further apart, and takes
part again once it has answered or called. One that answers too slowly within a decision, or whose merge was taken
back, is left alone for a number of rounds that doubles with every time in a row. So a neighbour that is gone costs the
others one deadline, once, and one that drags its feet costs them less and less.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .client import PeerClient
from .deciding import Neighbour
from .errors import Fault

FIRST, LONGEST = 1.0, 30.0  # seconds between two attempts to reach a neighbour that is away
ROUNDS = 64  # longest back-off


class Presence:
    """Who is there, who is away since when, and who is left alone until which round."""

    def __init__(
        self,
        clients: Mapping[int, PeerClient],
        describe: Callable[[PeerClient], Any],
        heard: Callable[[int, Fault], None],
        room: int,
    ) -> None:
        self.clients, self.describe, self.heard = clients, describe, heard
        self.until: dict[int, int] = {}  # neighbour -> first round in which it is asked again
        self._times: dict[tuple[int, str], int] = {}  # neighbour and reason -> how often in a row it was left alone
        self._away: dict[int, _Away] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2 * max(room, 1), thread_name_prefix="reach")

    def active(self, round: int) -> dict[int, Neighbour]:
        """The neighbours that answer in time with a model that fits, each with its snapshot of this round."""
        self._reach()
        wanted = [n for n in sorted(self.clients) if n not in self._away and self.until.get(n, 0) <= round]
        asked = {number: self._pool.submit(self.describe, self.clients[number]) for number in wanted}
        found = {}
        for number, future in asked.items():
            try:
                found[number] = Neighbour(number, self.clients[number], future.result())
            except Exception as error:
                fault = Fault.of(error)
                self.heard(number, fault)
                if fault.kind == "no-answer":
                    self.gone(number)
        return found

    def gone(self, number: int) -> None:
        """A neighbour does not answer: from now on it is asked in the background."""
        with self._lock:
            self._away.setdefault(number, _Away(time.monotonic() + FIRST))

    def called(self, number: int) -> None:
        """A neighbour that was away has called: it can be reached, so ask it now."""
        with self._lock:
            if (away := self._away.get(number)) is not None:
                away.next = 0.0

    def leave_alone(self, number: int, reason: str, round: int) -> int:
        """Do not ask a neighbour for a while after `round`; returns for how many rounds."""
        times = self._times[number, reason] = self._times.get((number, reason), 0) + 1
        rounds: int = min((1 << min(times, 16)) - 1, ROUNDS)
        self.until[number] = max(self.until.get(number, 0), round + 1 + rounds)
        return rounds

    def did_well(self, number: int, reason: str) -> None:
        """A neighbour has done its part: the next back-off for this reason begins short again."""
        self._times.pop((number, reason), None)

    def forget(self, number: int) -> None:
        """It is a neighbour no longer; if it comes back, it begins anew, but for its back-off."""
        with self._lock:
            self._away.pop(number, None)

    def state(self) -> dict[str, Any]:
        """Back-offs for a checkpoint."""
        times = [[number, reason, count] for (number, reason), count in sorted(self._times.items())]
        return {"until": {str(number): until for number, until in self.until.items()}, "times": times}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.until = {int(number): int(until) for number, until in state["until"].items()}
        self._times = {(int(number), str(reason)): int(count) for number, reason, count in state["times"]}

    def close(self) -> None:
        """Ask nobody any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _reach(self) -> None:
        """Look whether neighbours that were away are back, without waiting for them."""
        now = time.monotonic()
        with self._lock:
            for number, away in list(self._away.items()):
                if away.asked is not None and away.asked.done():
                    error = away.asked.exception()
                    fault = None if error is None else Fault.of(error)
                    if fault is None or fault.kind != "no-answer":
                        del self._away[number]
                        continue
                    away.again(now)
                    self.heard(number, fault)
                if away.asked is None and now >= away.next:
                    away.asked = self._pool.submit(self.describe, self.clients[number])


class _Away:
    """Since when and how a neighbour is looked for."""

    def __init__(self, next: float) -> None:
        self.next, self.pause = next, FIRST
        self.asked: Future[Any] | None = None

    def again(self, now: float) -> None:
        self.asked, self.pause = None, min(2 * self.pause, LONGEST)
        self.next = now + self.pause
