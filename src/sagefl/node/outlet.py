"""Lines on their way out: writing one never blocks and never raises, whatever is at the other end.

A full disk, a pipe nobody reads, a terminal that is gone: the lines wait in a bounded queue on their own thread, the
oldest are dropped when it is full, and how many were lost is counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

LINES = 4096  # lines waiting: a megabyte or so


class Outlet:
    """A bounded queue of lines and the thread that writes them with `write`, which may block and may raise."""

    def __init__(self, name: str, write: Callable[[str], object], lines: int = LINES) -> None:
        self.write, self.lost, self.failing = write, 0, False
        self._lines: deque[str] = deque()
        self._most = lines
        self._busy = False
        self._changed = threading.Condition()
        self._name = name
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Have a line written, sooner or later; if too many wait, the oldest is lost."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            if len(self._lines) >= self._most:
                self._lines.popleft()
                self.lost += 1
            self._lines.append(line)
            self._changed.notify_all()

    def flush(self, seconds: float = 1.0) -> bool:
        """Wait until everything is written, but not longer than `seconds`; whether it is."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._lines or self._busy:
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    return False
            return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                line, self._busy = self._lines.popleft(), True
            try:
                self.write(line)
                self.failing = False
            except (OSError, ValueError):  # ValueError: the file was closed
                self.failing = True
                self.lost += 1
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
