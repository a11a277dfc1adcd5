"""One thread that acts when something takes too long: a call that stays half open, a reader that stalls."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass(order=True)
class Due:
    """Something to do at a time, unless it is called off."""

    at: float
    number: int
    act: Callable[[], object] | None = field(compare=False)
    fired: bool = field(default=False, compare=False)

    def call_off(self) -> None:
        """Do nothing, and let go of what the action holds: a call lives as long as anybody holds it."""
        self.act = None


class Watch:
    """Actions at a later time on one thread, however many calls there are. Actions must be quick."""

    def __init__(self) -> None:
        self._due: list[Due] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def later(self, seconds: float, act: Callable[[], object]) -> Due:
        """Call `act` in `seconds`, unless it is called off by then."""
        due = Due(time.monotonic() + seconds, next(self._numbers), act)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
                self._thread.start()
            heapq.heappush(self._due, due)
            if self._due[0] is due:
                self._changed.notify()
        return due

    @contextmanager
    def limit(self, seconds: float, act: Callable[[], object]) -> Iterator[Due]:
        """Call `act` if the block takes longer than `seconds`."""
        due = self.later(seconds, act)
        try:
            yield due
        finally:
            due.call_off()

    def close(self) -> None:
        """Forget everything that is still due."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            if (act := due.act) is not None:
                due.fired = True
                with suppress(Exception):  # one action that fails must not end the others
                    act()

    def _next(self) -> Due | None:
        with self._changed:
            while not self._closed:
                while self._due and self._due[0].act is None:
                    heapq.heappop(self._due)
                wait = self._due[0].at - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)
                self._changed.wait(wait)
            return None
