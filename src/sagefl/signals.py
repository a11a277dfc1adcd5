"""Stopping long work in two steps, in the same way for a run, a study and a node."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stoppable(stop: Callable[[], None], force: Callable[[], None] | None = None) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM calls `stop`, the second ends at once, by `force` if there is one.

    Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handler(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            if force is not None:
                force()
            raise KeyboardInterrupt
        asked = True
        stop()

    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
