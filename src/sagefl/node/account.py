"""A node's privacy account on disk: after any restart it counts at least what was answered.

The file reserves answers ahead of time: before answers leave that it does not cover yet, it is rewritten with a block
more than needed for the neighbour who asks. So most requests cost no write, a clean stop leaves the exact numbers, and
a crash makes the account at most one block too high for each neighbour, never too low.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Mapping
from math import ceil
from pathlib import Path

from ..runs.files import UNFIT, make_durable, write_text
from ..selection.private import PrivacyAccount
from ..selection.requests import Peer
from .errors import NodeError

BLOCK = 1024  # answers reserved at once for one neighbour: a write of a few milliseconds for every eight probes of 128


class KeptAccount(PrivacyAccount):
    """A privacy account that callers' threads write to while the node reads it, and that survives restarts."""

    def __init__(self, epsilon: float, path: Path) -> None:
        super().__init__(epsilon)
        self.path = path
        self._reserved: dict[Peer, int] = {}  # what the file says: never less than `answers`
        self._closed = False
        self._lock = threading.Lock()

    def load(self) -> None:
        """Continue from the file, if there is one. Only one process may write to it."""
        self._closed = False
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            # Counts are in answers at the present epsilon, so that answers given at another one keep their weight.
            scale = float(stored["epsilon"]) / self.epsilon
            kept: dict[Peer, int] = {str(name): ceil(int(n) * scale) for name, n in stored["answers"].items()}
        except FileNotFoundError:
            return
        except (OSError, *UNFIT) as error:
            raise NodeError(
                f"{self.path} is not a privacy account ({error}): restore it from a copy; if there is none, remove it, "
                "but then what was answered before is no longer counted"
            ) from None
        with self._lock:
            self.answers, self._reserved = dict(kept), kept

    def answered(self, receiver: Peer, count: int) -> None:
        """Count answers to one receiver before they leave; if this fails, they must not be sent."""
        with self._lock:
            if self._closed:
                raise NodeError("the privacy account is closed: this node has stopped")
            total = self.answers.get(receiver, 0) + count
            if total > self._reserved.get(receiver, 0):
                self._reserve({**self._reserved, receiver: total + BLOCK})
            super().answered(receiver, count)

    def spent(self, receiver: Peer, more: int = 0) -> float:
        """Privacy loss towards one receiver so far, and with `more` answers."""
        with self._lock:
            return self.epsilon * (self.answers.get(receiver, 0) + more)

    def close(self) -> None:
        """Write the exact numbers and count no more; after this another process may continue with the file."""
        with self._lock:
            self._closed = True
            self._write(self.answers)

    def next_round(self) -> None:
        """Begin a new round."""
        with self._lock:
            super().next_round()

    def report(self) -> dict[str, float]:
        """Epsilon per answer, this round, and in total."""
        with self._lock:
            return super().report()

    def held(self) -> dict[Peer, int]:
        """Answers given to each receiver so far."""
        with self._lock:
            return dict(self.answers)

    def _reserve(self, reserved: Mapping[Peer, int]) -> None:
        try:
            self._write(reserved)
        except OSError as error:
            raise NodeError(
                f"cannot write the privacy account {self.path} ({error.strerror}): without it nothing can be "
                "answered privately; free some space, or check the path and its permissions"
            ) from error

    def _write(self, reserved: Mapping[Peer, int]) -> None:
        write_text(self.path, json.dumps({"epsilon": self.epsilon, "answers": reserved}, indent=1))
        make_durable(self.path.parent)
        self._reserved = dict(reserved)


def beside(directory: Path, what: str) -> Path:
    """A file beside a run directory, which survives its removal: answers that were given stay given."""
    return directory.with_name(f"{directory.name}.{what}")


def secret_beside(directory: Path) -> bytes:
    """The key of a node's noise; kept on disk, because fresh noise after a restart could be averaged out."""
    path = beside(directory, "secret")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
    return path.read_bytes()
