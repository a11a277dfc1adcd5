"""A node's privacy account on disk: after any restart it says at least what was answered.

What stands in the file is reserved ahead: before answers leave that it does not cover yet, it is written anew, with a
block more than they need for the neighbour who asks. So most requests cost no write, a clean stop leaves the exact
numbers, and each crash makes the account say at most a block too much towards each neighbour, never too little.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from math import ceil
from pathlib import Path

from ..runs.files import write_text
from ..selection.private import PrivacyAccount
from ..selection.requests import Peer
from .errors import NodeError

__all__ = ["BLOCK", "KeptAccount"]

BLOCK = 1024  # answers to one neighbour reserved at once: a write of some milliseconds for every eight probes of 128


class KeptAccount(PrivacyAccount):
    """A privacy account that callers' threads enter into while the node reads it, and that outlives the node."""

    def __init__(self, epsilon: float, path: Path) -> None:
        super().__init__(epsilon)
        self.path = path
        self._reserved: dict[Peer, int] = {}  # what the file says: never less than `answers`
        self._closed = False
        self._lock = threading.Lock()

    def load(self) -> None:
        """Take up what the file says, if there is one; whoever does must be the only one to write it."""
        self._closed = False
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            # Counts are in answers at today's epsilon, so that answers at another one weigh what they weighed.
            scale = float(stored["epsilon"]) / self.epsilon
            kept: dict[Peer, int] = {str(name): ceil(int(n) * scale) for name, n in stored["answers"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, ArithmeticError, KeyError, TypeError, AttributeError) as error:
            raise NodeError(
                f"{self.path} is not a privacy account ({error}): put it back from a copy; if there is none, remove it "
                "and know that what was answered before is counted no more"
            ) from None
        with self._lock:
            self.answers, self._reserved = dict(kept), kept

    def answered(self, receiver: Peer, count: int) -> None:
        """Count answers to one receiver, to be called before they leave; where that cannot be kept, they must not."""
        with self._lock:
            if self._closed:
                raise NodeError("the privacy account is closed: this node has stopped")
            total = self.answers.get(receiver, 0) + count
            if total > self._reserved.get(receiver, 0):
                self._reserve({**self._reserved, receiver: total + BLOCK})
            super().answered(receiver, count)

    def close(self) -> None:
        """Write the exact numbers and take no more: after this another process may go on with the file."""
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
                f"cannot write the privacy account {self.path} ({error.strerror}): nothing is answered privately that "
                "it does not cover; free some space, or check the path and its permissions"
            ) from error

    def _write(self, reserved: Mapping[Peer, int]) -> None:
        write_text(self.path, json.dumps({"epsilon": self.epsilon, "answers": reserved}, indent=1))
        _make_durable(self.path.parent)
        self._reserved = dict(reserved)


def _make_durable(folder: Path) -> None:
    """Or a machine that loses power might come back with the file as it was before."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
