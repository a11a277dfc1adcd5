"""Events from gRPC's native log, the only place where it reports refused handshakes.

gRPC verifies certificates before any Python code runs and reports a failure only on standard error. While a node runs,
standard error goes through a pipe: lines about handshakes become events, everything else passes through unchanged, as
far as somebody takes it: neither a full disk nor a stalled reader holds up gRPC.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .journal import Journal
from .outlet import Outlet

STDERR = 2
FAILED = re.compile(r"Handshake failed with error .*?:(?P<reason>[A-Z0-9_]{6,})(?::|$)")
KINDS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no-certificate",
    "CERTIFICATE_VERIFY_FAILED": "untrusted-certificate",
    "BAD_SIGNATURE": "untrusted-certificate",
    "WRONG_VERSION_NUMBER": "plaintext",
    "HTTP_REQUEST": "plaintext",
    "HTTPS_PROXY_REQUEST": "plaintext",
}


def handshake_failure(line: str) -> tuple[str, str] | None:
    """(kind, reason) of a line that reports a failed handshake, else None."""
    found = FAILED.search(line)
    if found is None:
        return None
    reason = found["reason"]
    if "certificate has expired" in line:
        return "expired", reason
    return KINDS.get(reason, "handshake"), reason


@contextmanager
def watch_core_log(journal: Journal) -> Iterator[None]:
    """Watch this process's standard error inside the block."""
    original = os.dup(STDERR)
    source, sink = os.pipe()
    os.dup2(sink, STDERR)
    os.close(sink)
    through = Outlet("stderr", lambda line: os.write(original, line.encode()))

    def read() -> None:
        with os.fdopen(source, "r", errors="replace") as lines:
            for line in lines:
                failure = handshake_failure(line)
                if failure is None:
                    through.put(line)
                else:
                    journal.event(f"refused-{failure[0]}", why=failure[1])

    reader = threading.Thread(target=read, name="core-log", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(original, STDERR)  # closes the pipe's last writer, which ends the reader
        reader.join(1)
        if through.flush():  # else its thread still waits in a write: the descriptor stays open until the process ends
            os.close(original)
