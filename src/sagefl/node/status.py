"""A node's status: a small JSON file that it rewrites after every round."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runs.files import UNFIT, write_text
from .errors import NodeError, need_posix

FILE = "status.json"
FINISHED, INTERRUPTED, FORCED = 0, 3, 4  # how a node's process ends


def write_status(directory: Path, content: Mapping[str, Any]) -> None:
    """Write the status atomically."""
    write_text(directory / FILE, json.dumps({"pid": os.getpid(), "time": time.time(), **content}, indent=1))


def read_status(directory: Path) -> dict[str, Any]:
    """The status, plus whether the process is alive and how old the report is."""
    need_posix()
    path = directory / FILE
    try:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        pid, written = int(status["pid"]), float(status["time"])
    except OSError as error:
        raise NodeError(f"no status in {directory}: {error.strerror}; has a node run there?") from None
    except UNFIT as error:
        raise NodeError(f"{path} is not a node's status: {error}") from None
    running = status.get("phase") != "stopped" and _alive(pid)
    return {**status, "running": running, "age": max(0.0, time.time() - written)}


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
