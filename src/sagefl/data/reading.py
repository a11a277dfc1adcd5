"""Which files a user's data function opens while it runs: what it returns depends on them as much as on its code.

Python reports every file that is opened through it; libraries that open files in other languages are not seen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_open: list[str] | None = None  # files seen while somebody watches
_seen: dict[str, tuple[Path, ...]] = {}


@contextmanager
def watched(name: str) -> Iterator[None]:
    """Note which files are opened inside, under the name of a data set."""
    global _open
    _listen()
    before, _open = _open, []
    try:
        yield
    finally:
        _seen[name] = tuple(dict.fromkeys(path for text in _open if _counts(path := Path(text).absolute())))
        _open = before


def files_of(name: str) -> tuple[Path, ...]:
    """The files that the data set of this name was made from, once it has been loaded in this process."""
    return _seen.get(name, ())


def _counts(path: Path) -> bool:
    """Data, not code or what belongs to the system and to installed packages."""
    system = (Path("/proc"), Path("/sys"), Path("/dev"))
    strangers = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1], *system)
    if path.suffix in (".py", ".pyc", ".so") or "site-packages" in path.parts:
        return False
    return path.is_file() and not any(place in path.parents for place in strangers)


@cache
def _listen() -> None:
    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if _open is not None and event == "open" and isinstance(arguments[0], str | os.PathLike):
            mode = arguments[1]
            if mode is None or not set(mode) & set("wax+"):
                _open.append(os.fspath(arguments[0]))

    sys.addaudithook(hear)  # for good: there is no way to take it back, and it costs nothing while nobody watches
