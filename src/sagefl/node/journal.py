"""Every event is counted and written as a line of JSON to `events.log` and standard output.

A flood of one kind of event is counted in full, but only some of it is written, so that nobody can fill the disk or the
log by misbehaving. Lines are written by threads of their own (`outlet`): an event never waits for a disk or for a
reader, and never ends the node. Lines that could not be written are counted too.
"""

from __future__ import annotations

import errno
import io
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from .limits import Bucket
from .outlet import Outlet

LINES_PER_MINUTE = 60  # of one kind about one peer
KINDS = 4096  # pairs of kind and peer that are told apart


class Journal:
    """Counts events and writes them down, from every thread of a node."""

    def __init__(self, path: Path | None = None, echo: TextIO | None = None) -> None:
        self.path = path
        self._outlets = [] if path is None else [Outlet("events", self._append)]
        if echo is not None:
            self._outlets.append(Outlet("echo", lambda line: _say(echo, line)))
        self.counts: Counter[tuple[str, str]] = Counter()
        self.listeners: list[Callable[[str, str], None]] = []
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._silent: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def event(self, kind: str, peer: str = "", **details: Any) -> None:
        """Count an event and write it down."""
        with self._lock:
            if (kind, peer) not in self.counts and len(self.counts) >= KINDS:
                peer = "others"  # names are the callers' choice where there is no TLS: memory is not
            key = (kind, peer)
            self.counts[key] += 1
            bucket = self._buckets.setdefault(key, Bucket(LINES_PER_MINUTE / 60, LINES_PER_MINUTE))
            written = bucket.wait(1) == 0
            if written:
                bucket.take(1)
                if quiet := self._silent.pop(key, 0):
                    details["unwritten"] = quiet
                self._write({"event": kind, **({"peer": peer} if peer else {}), **details})
            else:
                self._silent[key] += 1
        for listener in self.listeners:
            listener(kind, peer)

    def total(self, kind: str) -> int:
        """How often a kind of event happened, over all peers."""
        with self._lock:
            return sum(count for (k, _), count in self.counts.items() if k == kind)

    def totals(self) -> dict[str, int]:
        """Every kind of event with its count."""
        with self._lock:
            summed: Counter[str] = Counter()
            for (kind, _), count in self.counts.items():
                summed[kind] += count
        return dict(sorted(summed.items()))

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return sum(outlet.lost for outlet in self._outlets)

    @property
    def failing(self) -> bool:
        """Whether the last line for the log could not be written."""
        return any(outlet.failing for outlet in self._outlets)

    def flush(self, seconds: float = 1.0) -> None:
        """Wait for lines that are on their way, but not for long."""
        for outlet in self._outlets:
            outlet.flush(seconds)

    def _write(self, details: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **details}, default=str)
        for outlet in self._outlets:
            outlet.put(line)

    def _append(self, line: str) -> None:
        assert self.path is not None
        content = f"{line}\n".encode()
        with self.path.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if file.write(content) != len(content):  # the disk is full: no half lines
                file.truncate(end)
                raise OSError(errno.ENOSPC, "no space for a line")


def _say(echo: TextIO, line: str) -> None:
    """Past Python's buffer: a thread that waits inside it would hang the end of the process."""
    try:
        descriptor = echo.fileno()
    except io.UnsupportedOperation:
        echo.write(line + "\n")
    else:
        os.write(descriptor, f"{line}\n".encode())
