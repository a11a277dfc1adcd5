"""Attackers as processes: `python attackers.py KIND IDENTITY ADDRESS NAME SECONDS`; each ends by itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from sagefl.node.identity import Identity


def channel(identity: Path, address: str, name: str) -> grpc.Channel:
    """A connection of its own."""
    key, certificate, ca = ((identity / file).read_bytes() for file in ("node.key", "node.pem", "ca.pem"))
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    options = [
        ("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200),
    ]  # fmt: skip
    return grpc.secure_channel(address, credentials, options)


def half_open(identity: Path, address: str, name: str, seconds: float, connections: int = 4, calls: int = 8) -> None:
    """Calls that never send their message, opened again whenever they are ended."""
    end, over = time.monotonic() + seconds, threading.Event()

    def silence() -> Iterator[bytes]:
        over.wait(max(0.0, end - time.monotonic()))
        yield from ()

    def keep_open() -> None:
        with channel(identity, address, name) as own:
            call = own.stream_unary("/sagefl.node.v1.Peer/Probe")
            while time.monotonic() < end:
                under_way = [call.future(silence(), timeout=seconds) for _ in range(calls)]
                for one in under_way:
                    one.exception(timeout=seconds)
                time.sleep(0.05)

    _together([threading.Thread(target=keep_open) for _ in range(connections)], seconds)
    over.set()


def connections(identity: Path, address: str, name: str, seconds: float, count: int = 200) -> None:
    """Many connections, a call on each, held open as long as the other side lets it."""
    end = time.monotonic() + seconds
    held = [channel(identity, address, name) for _ in range(count)]
    while time.monotonic() < end:
        for one in held:
            one.unary_unary("/sagefl.node.v1.Peer/Health").future(b"", timeout=2.0)
        time.sleep(0.5)


def _together(threads: list[threading.Thread], seconds: float) -> None:
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join(seconds + 5)


@contextmanager
def attack(kind: str, identity: Path, address: str, name: str, seconds: float = 20.0) -> Iterator[None]:
    """An attacker at work; it ends by itself after `seconds`, or when the block ends."""
    Identity.load(identity)  # a real member
    command = [sys.executable, __file__, kind, str(identity), address, name, str(seconds)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


if __name__ == "__main__":
    {"half-open": half_open, "connections": connections}[sys.argv[1]](
        Path(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5])
    )
