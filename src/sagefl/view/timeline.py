"""One round of a run with a clock: what everybody did when, and who waited for whom."""

from __future__ import annotations

from typing import Any

import polars as pl

from ..runs.files import RunError
from .plain import plain
from .shelf import Run

COLUMNS = ("client", "began_at", "trained_at", "decided_at", "ended_at", "waited", "awaited", "chosen")


def timeline(run: Run, round: int) -> dict[str, Any]:
    """The turns of a round, in client order; of clients at their own pace there may be several, or none."""
    table = run.table("decisions")
    if "ended_at" not in table.columns:
        raise RunError("This run has no clock: set clock.network to see who waits for whom.")
    turns = table.filter((pl.col("round") == round) & pl.col("began_at").is_not_null()).sort("client", "began_at")
    return {"round": round, "clients": run.config.clients, "turns": plain(turns.select(COLUMNS).to_dicts(), 6)}
