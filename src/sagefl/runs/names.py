"""What the clients of a run are called, where the data name their owners: `names.json` in the run directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .files import RunError, explained, write_text

FILE = "names.json"
LONGEST = 200  # letters of a name; a stranger's folder may say anything
Names = tuple[str, ...]


def write_names(directory: Path, names: Sequence[str] | None) -> None:
    """Write them down once; clients that have numbers only need no file."""
    if names is None or (directory / FILE).exists():
        return
    with explained(f"names in {directory}"):
        write_text(directory / FILE, json.dumps(list(names), ensure_ascii=False) + "\n")


def read_names(directory: Path, clients: int) -> Names | None:
    """The clients' names in their order, None where they have none; a file that does not fit the run is refused."""
    path = directory / FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > (clients + 1) * (4 * LONGEST + 4):
            raise ValueError("it is too large")
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, list) or len(found) != clients or not all(isinstance(name, str) for name in found):
            raise ValueError(f"expected a list of {clients} names")
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read as the names of a run's clients: {error}") from None
    return tuple(name[:LONGEST] for name in found)
