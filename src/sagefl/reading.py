"""What a user's data function, model, method or loss reads while it is made: it depends on that as on its code.

Python reports every file that is opened through it. Libraries that open files in other languages are not seen, and a
folder that is listed, a process or a connection may bring anything: whether somebody read beyond what was seen is
noted, and of data what was returned, so that a data function can be asked again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

LISTINGS = ("os.listdir", "os.scandir")
IMPORTERS = ("importlib", "pkgutil")  # they list folders to find modules
BEYOND = ("subprocess.Popen", "os.system", "os.posix_spawn", "socket.connect")


@dataclass
class _Reading:
    """What somebody has read."""

    files: dict[Path, None] = field(default_factory=dict)  # in order; kept, since modules and caches read a file once
    code: dict[Path, None] = field(default_factory=dict)  # modules, whoever imported them and how
    beyond: bool = False


_now: tuple[list[Any], list[Any], list[str]] | None = None  # opened, listed and begun while somebody watches
_seen: dict[str, _Reading] = {}  # by reader
_returned: dict[str, str] = {}  # by reader, the digest of the data it returned last


@contextmanager
def watched(name: str, *, alone: bool = False) -> Iterator[None]:
    """Note what is read inside, under the name of what reads it: `data NAME`, `model NAME`, `module NAME`.

    Whoever watches around it has read that too, now or when it was read before; unless it is watched `alone`.
    """
    global _now
    _listen()
    before, _now = _now, ([], [], [])
    try:
        yield
    finally:
        opened, listed, begun = _now
        known = _seen.setdefault(name, _Reading())
        for path in map(_source, map(_path, opened)):
            if _counts(path) and path.is_file():
                (known.code if path.suffix == ".py" else known.files)[path] = None
        known.beyond |= bool(begun) or any(isinstance(each, int) or _counts(_path(each)) for each in listed)
        if before is not None and not alone:
            before[0].extend([*known.files, *known.code])
            before[2].extend([name] * known.beyond)
        _now = before


def files_of(name: str) -> tuple[Path, ...]:
    """The files that this one was made from, once it has been made in this process."""
    return tuple(_seen[name].files) if name in _seen else ()


def code_of(name: str) -> tuple[Path, ...]:
    """The modules that were read for it, once it has been made in this process; also by other means than import."""
    return tuple(_seen[name].code) if name in _seen else ()


def read_beyond(name: str) -> bool:
    """Whether it listed folders, began processes or connected to somewhere, or opened no file that was seen."""
    return name not in _seen or _seen[name].beyond or not _seen[name].files


def note_returned(name: str, digest: str) -> None:
    """Note what data came to."""
    _returned[name] = digest


def returned_by(name: str) -> str | None:
    """The digest of what data came to when they were last made in this process."""
    return _returned.get(name)


def forget_returned() -> None:
    """Forget what data came to: they may have changed."""
    _returned.clear()


def _path(given: Any) -> Path:
    return Path(os.fsdecode(given or ".")).absolute()


def _source(path: Path) -> Path:
    """The file that a compiled module was made from; other files as they are."""
    with suppress(ValueError, NotImplementedError):
        if path.suffix == ".pyc":
            return Path(source_from_cache(path))
    return path


def _counts(path: Path) -> bool:
    """The user's own, not of the system or of installed packages."""
    system = (Path("/proc"), Path("/sys"), Path("/dev"))
    strangers = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent, *system)
    if path.suffix in (".pyc", ".so") or "site-packages" in path.parts:
        return False
    return path.exists() and not any(place in (path, *path.parents) for place in strangers)


@cache
def _listen() -> None:
    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if _now is None:
            return
        opened, listed, begun = _now
        if event in ("open", "sqlite3.connect") and isinstance(arguments[0], str | bytes | os.PathLike):
            mode = arguments[1] if event == "open" else None
            if mode is None or not set(mode) & set("wax"):
                opened.append(arguments[0])
        elif event in LISTINGS:
            caller = sys._getframe(1).f_code.co_filename
            if not any(who in caller for who in IMPORTERS):
                listed.append(arguments[0])
        elif event in BEYOND:
            begun.append(event)

    sys.addaudithook(hear)  # for good: there is no way to take it back, and it costs nothing while nobody watches
