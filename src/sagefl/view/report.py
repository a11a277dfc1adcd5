"""`sagefl report`: the page's views frozen in one self-contained file.

Charts, network and reasons are complete for every round. Stage-by-stage traces are kept for a few rounds, spread evenly
from the first to the last, because those of all rounds would make up most of the file; other rounds show their record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__
from . import tables
from .page import frozen_page
from .plain import plain
from .scouting import listed, offers
from .shelf import READING_ERRORS, Run, Shelf
from .stopping import grid
from .unfolding import unfold
from .world import world

DETAILED = 8  # rounds of each run for which every decision is kept stage by stage


def report_page(shelf: Shelf, *, detailed: int = DETAILED) -> str:
    """All runs in one page."""
    runs = shelf.runs()
    standings = shelf.standings()
    offered = offers(shelf, standings)
    data: dict[str, Any] = {"version": __version__, "runs": standings, "data": {}, "map": grid()}
    data["scouts"] = listed(offered)
    data["sheets"] = {offer.id: _or_why(offer.sheet) for offer in offered}
    for id, run in runs.items():
        data["data"][id] = _frozen(run, detailed)
    names = ", ".join(dict.fromkeys(str(each["label"]) for each in standings or listed(offered)))
    return frozen_page(f"sagefl report: {names}"[:200], data)


def decision_page(decision: dict[str, Any]) -> str:
    """One decision alone."""
    return frozen_page(f"sagefl decide: {decision.get('label', '')}"[:200], {"decision": decision})


def write_page(path: Path, page: str) -> None:
    """Write a page; surrogates, which may come from file names, become question marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(page.encode("utf-8", "replace"))


def _frozen(run: Run, detailed: int) -> dict[str, Any]:
    """Everything that the page would fetch about a run; a part that cannot be read is replaced by the reason."""
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "rounds": lambda: tables.rounds(run),
        "decisions": lambda: tables.decisions(run),
        "clients": lambda: tables.clients(run),
        "world": lambda: world(run),
        "traces": lambda: _traces(run, detailed),
    }
    if run.config.clock.network is not None:
        parts["timelines"] = lambda: {str(n): tables.timeline(run, n) for n in _spread(run, detailed)}
    return {name: _or_why(make) for name, make in parts.items()}


def _or_why(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return make()
    except READING_ERRORS as error:
        return {"error": str(error)}


def _traces(run: Run, detailed: int) -> dict[str, Any]:
    """The stages of all decisions in evenly spread rounds, by round and client."""
    clients = range(run.config.clients)
    return {str(n): [_compact(unfold(run, n, k)) for k in clients] for n in _spread(run, detailed)}


def _spread(run: Run, detailed: int) -> list[int]:
    """So many rounds, evenly spread from the first to the last."""
    total = run.table("metrics").height
    count = min(detailed, total)
    return sorted({round(i * (total - 1) / max(count - 1, 1)) for i in range(count)})


def _compact(decision: dict[str, Any]) -> dict[str, Any]:
    """Without repetitions, and with fewer digits."""
    return plain({k: v for k, v in decision.items() if k != "audit"}, 7)  # type: ignore[no-any-return]
