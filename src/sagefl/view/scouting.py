"""What a scout found, for the page: results that `sagefl scout --out` kept, and the losses that runs recorded.

Every run with losses is offered by itself; nodes, which recorded what they alone asked, are looked at together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..runs.files import RunError
from ..runs.findings import find_in_runs, read_sheet, sheets_below
from ..runs.losses import first_losses, read_losses
from .plain import plain
from .shelf import READING_ERRORS, FileCache, Run, Shelf

MOST = 100  # clients; recorded losses of more are left to `sagefl scout --run`
_kept = FileCache()


@dataclass(frozen=True)
class Offer:
    """Something to give a verdict on."""

    id: str
    label: str
    version: str  # differs whenever the verdict may
    make: Callable[[], dict[str, Any]]

    def sheet(self) -> dict[str, Any]:
        """The verdict, the map and what is behind them; made again only if something has changed."""
        return _kept.get(self.id, self.version, lambda: plain(self.make(), 5))


def offers(shelf: Shelf, standings: Sequence[dict[str, Any]]) -> list[Offer]:
    """Kept results first, then what runs and nodes recorded."""
    files = dict.fromkeys(path for place in shelf.places for path in sheets_below(place))
    kept = [
        Offer(_id(path), f"pilot in {path.parent.name}", _id(path.stat()), partial(read_sheet, path)) for path in files
    ]
    labels = {standing["id"]: standing["label"] for standing in standings}
    receivers = {run: count for run in shelf.runs().values() if (count := _receivers(run))}
    nodes = [run for run, count in receivers.items() if count == 1]
    whole = [_recorded(f"losses of {labels[run.id]}", [run]) for run, count in receivers.items() if count > 1]
    return [*kept, *whole, *([_recorded(f"losses of {len(nodes)} nodes", nodes)] if len(nodes) > 1 else [])]


def listed(offered: Sequence[Offer]) -> list[dict[str, str]]:
    """What is offered, by name."""
    return [{"id": offer.id, "label": offer.label, "version": offer.version} for offer in offered]


def scouted(shelf: Shelf, id: str) -> dict[str, Any]:
    """The verdict on what is offered under this id."""
    for offer in offers(shelf, shelf.standings()):
        if offer.id == id:
            return offer.sheet()
    raise RunError(f"no verdict {id!r} here")


def _recorded(label: str, runs: Sequence[Run]) -> Offer:
    version = _id([run.signature("losses") for run in runs], [run.version for run in runs])
    config, folders = runs[0].config, [run.path for run in runs]

    def sheet() -> dict[str, Any]:
        return find_in_runs(folders, config.described()).sheet()

    return Offer(_id(folders), label, version, sheet)


def _receivers(run: Run) -> int:
    """How many clients' losses a run recorded; none of a run that cannot be read, or is too large."""
    if run.signature("losses") is None:
        return 0
    return run.kept.get("receivers", (run.signature("losses"), run.signature("run.toml")), lambda: _counted(run))


def _counted(run: Run) -> int:
    try:
        first = first_losses(run.path)
        return 0 if first is None or run.config.clients > MOST else len({r.client for r in read_losses(first)})
    except READING_ERRORS:
        return 0


def _id(*of: Any) -> str:
    return hashlib.sha256(repr(of).encode("utf-8", "replace")).hexdigest()[:12]
