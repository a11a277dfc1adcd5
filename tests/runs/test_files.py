"""Files are written whole and flushed, also where the system flushes less than POSIX does."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagefl.runs.files import make_durable, write_text
from sagefl.simulation.engines import processes


def test_a_file_is_flushed_before_it_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[int, bool]] = []
    target = tmp_path / "a.txt"
    flush = os.fsync

    def watched(descriptor: int) -> None:
        flushed.append((os.fstat(descriptor).st_size, target.exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_text(target, "four")
    assert flushed == [(4, False)]
    make_durable(tmp_path)
    assert len(flushed) == 2


def like_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders cannot be opened, and only what is open for writing can be flushed."""
    opening: Callable[..., int] = os.open
    flush = os.fsync
    modes: dict[int, int] = {}

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        descriptor = opening(path, flags, *more, **named)
        modes[descriptor] = flags & (os.O_RDWR | os.O_WRONLY)
        return descriptor

    def flushed(descriptor: int) -> None:
        if not modes.get(descriptor, os.O_RDWR):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flush(descriptor)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", flushed)


def test_it_works_where_folders_cannot_be_opened_nor_read_only_files_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like_windows(monkeypatch)
    write_text(tmp_path / "a.txt", "text")
    make_durable(tmp_path)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "text"


def test_workers_start_where_there_are_no_process_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "setpgrp")
    before = signal.getsignal(signal.SIGINT)
    try:
        processes._ignore_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_file_that_may_not_be_written_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "a.txt").touch()
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionError):
        make_durable(tmp_path / "a.txt")
