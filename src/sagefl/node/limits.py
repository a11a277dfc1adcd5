"""How much one caller may ask: token buckets per peer for requests and bytes, and a cap on concurrent calls.

Buckets use the monotonic clock, so changes to the wall clock have no effect. A refused call is not charged, and tells
the caller when to try again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import Field

from ..runs.sections import ConfigSection

# HTTP/2 at both ends: a probe of 128 images goes out at once, instead of waiting for permission after each 64 KiB.
WINDOW = (("grpc.http2.lookahead_bytes", 1 << 20), ("grpc.http2.max_frame_size", 1 << 17), ("grpc.http2.bdp_probe", 0))

# A connection on which nothing comes back is given up within seconds instead of waiting out every deadline on it.
KEEPALIVE = (("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000))


class Limits(ConfigSection):
    """What a neighbour may ask of this node."""

    anchors_per_request: int = Field(default=256, ge=16, description="anchor inputs in one probe")
    requests_per_minute: int = Field(default=3000, ge=1, description="calls per neighbour and minute")
    bytes_per_minute: int = Field(default=512 * 2**20, ge=1024, description="bytes in and out per neighbour and minute")
    calls_at_once: int = Field(default=8, ge=1, description="concurrent calls of one neighbour")
    connections: int = Field(default=4, ge=1, description="concurrent connections of one neighbour")
    open_seconds: float = Field(default=5.0, gt=0, description="seconds a caller has to send its message")
    silent_seconds: float = Field(default=15.0, gt=0, description="seconds a connection may stay without any call")
    model_bytes: int = Field(default=256 * 2**20, ge=1024, description="largest model served or accepted")
    stream_seconds: float = Field(default=60.0, gt=0, description="longest a streamed model may take")
    snapshots: int = Field(default=3, ge=1, description="published snapshots kept for pulls")


class OverLimit(Exception):  # noqa: N818 (a verdict, not an error)
    """A caller asked too much; it may try again in `after` seconds."""

    def __init__(self, what: str, after: float) -> None:
        super().__init__(f"over the limit of {what}; try again in {after:.1f} s")
        self.what, self.after = what, after


@dataclass
class Bucket:
    """Tokens that fill up at `rate` per second, to at most `size`."""

    rate: float
    size: float
    clock: Callable[[], float] = time.monotonic
    _level: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._level, self._at = self.size, self.clock()

    def wait(self, amount: float) -> float:
        """Seconds until there are `amount` tokens, 0 if there are already. Takes nothing."""
        instant = self.clock()
        self._level = min(self.size, self._level + (instant - self._at) * self.rate)
        self._at = instant
        return max(0.0, (min(amount, self.size) - self._level) / self.rate)

    def take(self, amount: float) -> None:
        """Take tokens; more than the bucket holds leaves it in debt."""
        self._level -= amount


class Meter:
    """One caller's buckets and concurrent calls."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._requests = Bucket(limits.requests_per_minute / 60, limits.requests_per_minute, clock)
        self._bytes = Bucket(limits.bytes_per_minute / 60, limits.bytes_per_minute, clock)
        self._calls = 0
        self._lock = threading.Lock()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Admit one call, of which nothing has been read yet, and count it until it ends."""
        with self._lock:
            if self._calls >= self.limits.calls_at_once:
                raise OverLimit(f"{self.limits.calls_at_once} calls at once", 0.1)
            self._admit(self._requests, 1, f"{self.limits.requests_per_minute} requests a minute")
            self._requests.take(1)
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1

    def spend(self, size: int) -> None:
        """Charge bytes that were received, or are about to be sent in answer."""
        with self._lock:
            self._admit(self._bytes, size, f"{self.limits.bytes_per_minute} bytes a minute")
            self._bytes.take(size)

    @staticmethod
    def _admit(bucket: Bucket, amount: float, what: str) -> None:
        if (after := bucket.wait(amount)) > 0:
            raise OverLimit(what, after)
