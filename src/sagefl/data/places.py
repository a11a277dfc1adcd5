"""Where data files are looked for, and where fetched ones are put. Paths only; nothing here reads a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SYSTEM = Path("/usr/share/datasets")  # Debian's `dataset-*` packages


def _home_cache() -> Path:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if xdg and Path(xdg).is_absolute():  # the XDG specification: ignore relative values
        return Path(xdg)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    return Path.home() / ".cache"


def cache_dir() -> Path:
    """The package's folder in the user's cache."""
    return _home_cache() / "sagefl"


def data_dir() -> Path:
    """The folder fetched data goes to: `$SAGEFL_DATA` if set, otherwise `sagefl/data` in the user's cache."""
    chosen = os.environ.get("SAGEFL_DATA")
    return Path(chosen).expanduser() if chosen else cache_dir() / "data"


def roots() -> tuple[Path, ...]:
    """Every folder searched for data; the first match wins."""
    return tuple(dict.fromkeys((data_dir(), cache_dir() / "data", SYSTEM)))
