"""`sagefl report`: the page's views frozen in one self-contained file.

Charts, network and reasons of every round are whole. Stage-by-stage traces are kept for some rounds, spread evenly from
the first to the last, because all of a long run's would be most of the file; other rounds show their record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__
from . import tables
from .page import frozen_page
from .plain import plain
from .shelf import READING_ERRORS, Run, Shelf
from .stopping import grid
from .unfolding import unfold
from .world import world

__all__ = ["decision_page", "report_page", "write_page"]

DETAILED = 8  # rounds of each run whose decisions are kept stage by stage


def report_page(shelf: Shelf, *, detailed: int = DETAILED) -> str:
    """Every run of the shelf in one page."""
    runs = shelf.runs()
    standings = shelf.standings()
    data: dict[str, Any] = {"version": __version__, "runs": standings, "data": {}, "map": grid()}
    for id, run in runs.items():
        data["data"][id] = _frozen(run, detailed)
    names = ", ".join(dict.fromkeys(str(s["label"]) for s in standings))
    return frozen_page(f"sagefl report: {names}"[:200], data)


def decision_page(decision: dict[str, Any]) -> str:
    """One decision by itself; it needs no charts and stays small."""
    return frozen_page(f"sagefl decide: {decision.get('label', '')}"[:200], {"decision": decision}, charts=False)


def write_page(path: Path, page: str) -> None:
    """Write a page; surrogates, which a file name can bring along, as question marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(page.encode("utf-8", "replace"))


def _frozen(run: Run, detailed: int) -> dict[str, Any]:
    """All that the page would fetch of a run; what cannot be read is left out with its reason."""
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "rounds": lambda: tables.rounds(run),
        "decisions": lambda: tables.decisions(run),
        "clients": lambda: tables.clients(run),
        "world": lambda: world(run),
        "traces": lambda: _traces(run, detailed),
    }
    return {name: _or_why(make) for name, make in parts.items()}


def _or_why(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return make()
    except READING_ERRORS as error:
        return {"error": str(error)}


def _traces(run: Run, detailed: int) -> dict[str, Any]:
    """Unfolded decisions of evenly spread rounds, by round and client."""
    total = run.table("metrics").height
    count = min(detailed, total)
    chosen = sorted({round(i * (total - 1) / max(count - 1, 1)) for i in range(count)})
    clients = run.config.clients
    return {str(number): [_compact(unfold(run, number, k)) for k in range(clients)] for number in chosen}


def _compact(decision: dict[str, Any]) -> dict[str, Any]:
    """Fewer digits, and nothing twice."""
    return plain({k: v for k, v in decision.items() if k != "audit"}, 7)  # type: ignore[no-any-return]
