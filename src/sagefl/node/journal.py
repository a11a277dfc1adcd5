"""Every event is counted and written as a line of JSON to `events.log` and standard output.

A flood of one kind of event is counted in full, but only some of it is written, so that nobody can fill the disk or the
log by misbehaving. Writing an event can never end the node.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from .limits import Bucket

__all__ = ["Journal"]

LINES_PER_MINUTE = 60  # of one kind about one peer


class Journal:
    """Counts events and writes them down, from every thread of a node."""

    def __init__(self, path: Path | None = None, echo: TextIO | None = None) -> None:
        self.path, self.echo = path, echo
        self.counts: Counter[tuple[str, str]] = Counter()
        self.listeners: list[Callable[[str, str], None]] = []
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._silent: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def event(self, kind: str, peer: str = "", **details: Any) -> None:
        """Count an event and write it down."""
        key = (kind, peer)
        with self._lock:
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

    def _write(self, details: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **details}, default=str)
        try:
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
        except OSError as error:  # a full disk must not take the node down with it
            print(f"cannot write {self.path}: {error}", file=sys.stderr)
        if self.echo is not None:
            try:
                print(line, file=self.echo, flush=True)
            except (OSError, ValueError):
                self.echo = None
