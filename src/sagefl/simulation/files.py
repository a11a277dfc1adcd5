"""Files that are whole or not there: atomic writes, and errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import SageflError

__all__ = ["RunError", "atomic_write", "explained", "write_text"]


class RunError(SageflError, RuntimeError):
    """A run that cannot start, go on or be read, with what to do about it."""


def atomic_write(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary neighbour, make it durable, then put it in place in one step."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        descriptor = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Atomically write text."""
    atomic_write(path, lambda p: _write_text(p, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an operating-system error into one that says what was being done and that nothing is lost."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space" if full else "check the path and its permissions"
        reason = "the disk is full" if full else (error.strerror or str(error))
        raise RunError(
            f"cannot write {what}: {reason}. What was written before is intact; {advice}, then `sagefl resume` the run"
        ) from error
