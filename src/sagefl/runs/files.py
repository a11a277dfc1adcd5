"""Files are written whole or not at all, and a failure to write says what to do about it."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from polars.exceptions import PolarsError
from safetensors import SafetensorError

from ..errors import SageflError

PARTIAL = ".partial"
# What Python raises of JSON, or of numbers out of a file, that are not what they should be.
UNFIT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class RunError(SageflError, RuntimeError):
    """A run cannot start, go on or be read; the message says what to do."""


def make_durable(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk: they survive a loss of power.

    Windows flushes what is open for writing only, and opens no folder at all; it keeps their entries in a journal.
    """
    folder = path.is_dir()
    try:
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    except PermissionError:
        if folder:
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def atomic_write(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk, then move it into place in one step."""
    partial = path.with_name(f".{path.name}{PARTIAL}")
    try:
        write(partial)
        make_durable(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write text atomically."""

    def write(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")

    atomic_write(path, write)


def folders_in(place: Path) -> list[Path]:
    """The folders in a folder, by name; hidden ones and links are passed over."""
    return [p for p in sorted(place.iterdir()) if p.is_dir() and not p.name.startswith(".") and not p.is_symlink()]


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV; the same rows give the same bytes on every system."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def tidy(directory: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for left in sorted(directory.rglob(f".*{PARTIAL}")):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Make a failure to write say what was being written, what to do, and that nothing earlier is lost."""
    try:
        yield
    except (OSError, SafetensorError, PolarsError) as error:
        number = _error_number(error)
        if number is None:
            raise
        full = number in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space" if full else "check the path and its permissions"
        reason = "the disk is full" if full else os.strerror(number)
        raise RunError(
            f"cannot write {what}: {reason}. What was written before is intact; {advice}, then `sagefl resume` the run"
        ) from error


def _error_number(error: Exception) -> int | None:
    """The operating system's error number; libraries written in Rust have it in their message only."""
    if isinstance(error, OSError):
        return error.errno
    mentioned = re.search(r"os error (\d+)", str(error))
    return int(mentioned.group(1)) if mentioned else None
