"""What the page draws, read from a run directory in compact columns, also starting at a given round for live updates.

A run that was killed and resumed may for a while have fewer rounds than a page has already seen. Every answer says at
which round it starts (`from`), and a page that is ahead gets everything again.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from ..runs.columns import OF_GROUP, Writer, known_metrics, shown
from ..runs.files import RunError
from .plain import numbers, plain
from .shelf import Run

TURN = ("client", "began_at", "trained_at", "decided_at", "ended_at", "waited", "awaited", "chosen")  # in time
CELLS = 2_000_000  # rounds x clients that are drawn though hardly any has a row
CODES = {
    "certified": "c",
    "committed": "m",
    "cost": "p",
    "exhausted": "x",
    "uniform": "u",
    "no-anchors": "n",
    "gated": "g",
    "open": "w",
    "home": "h",
    "only": "o",
    "failed": "f",
    "none": "-",
}  # one letter per decision, because the page is sent many thousands of them


def headings() -> dict[str, Any]:
    """Columns that the page shows by their titles: what an evaluation measures, the kinds of bytes, who was pulled.

    `grouped` is how some are called, and what they mean, where clients come in groups.
    """
    measured = [column for column in known_metrics() if column.title]
    values = [column for column in known_metrics(values=True) if column.title]
    moved = [column for column in shown() if column.unit == "bytes"]
    kept = ("name", "title", "meaning", "format")
    pulled = [column for column in shown("world") if column.only]
    found: dict[str, Any] = {
        kind: [{key: getattr(column, key) for key in kept} for column in of_kind]
        for kind, of_kind in (("measured", measured), ("values", values), ("bytes", moved), ("pulled", pulled))
    }
    return found | {"grouped": OF_GROUP}


def rounds(run: Run, since: int = 0) -> dict[str, Any]:
    """The metrics of every round from `since` on, a list per column; columns that the run lacks are null."""
    metrics = run.table("metrics")
    start = since if 0 <= since <= metrics.height else 0
    part = metrics.slice(start)
    nothing = [None] * part.height
    kinds: tuple[Writer, ...] = ("world", "clock", *(("values",) if "mae" in part.columns else ()))
    wanted = [c for c in shown(*kinds) if c.only is None or c.name in part.columns]
    columns = {c.name: numbers(part[c.name]) if c.name in part.columns else nothing for c in wanted}
    reasons = {
        reason: part[f"reason_{reason}"].to_list()
        for reason in CODES
        if f"reason_{reason}" in metrics.columns and metrics[f"reason_{reason}"].sum()
    }
    return {"from": start, "total": metrics.height, "columns": columns, "reasons": reasons, "bands": _bands(run)}


def _bands(run: Run) -> dict[str, list[Any]]:
    """The spread of the clients' accuracies on their own data at every evaluation: lowest, quartiles, highest."""
    if not (run.path / "clients.parquet").is_file():
        return {}
    table = run.table("clients")
    name = "own_mae" if "own_mae" in table.columns else "own_accuracy"
    own = pl.col(name)
    if not {"round", name} <= set(table.columns):
        return {}
    spread = table.group_by("round").agg(
        low=own.min(), q1=own.quantile(0.25), median=own.median(), q3=own.quantile(0.75), high=own.max()
    )
    return {name: numbers(column, 5) for name, column in spread.sort("round").to_dict(as_series=False).items()}


def decisions(run: Run, since: int = 0) -> dict[str, Any]:
    """Whom every client exchanged with and why, round by round from `since` on."""
    table = run.table("decisions")
    clients = int(table["client"].max() or 0) + 1 if table.height else 0  # type: ignore[arg-type]
    total = int(table["round"].max()) + 1 if table.height else 0  # type: ignore[arg-type]
    start = since if 0 <= since <= total else 0
    if clients * (total - start) > max(CELLS, table.height):
        raise RunError(f"{total - start:,} rounds of {clients:,} clients are not drawn: too many")
    found = [_empty(clients) for _ in range(start, total)]
    wanted = table.filter(pl.col("round") >= start).select(
        "round", "client", "reason", "chosen", "anchors", "evaluations", "direction"
    )
    for number, client, reason, chosen, anchors, evaluations, direction in wanted.iter_rows():
        row = found[number - start]
        row["reasons"][client] = CODES.get(reason, "?")
        row["chosen"][client] = chosen[0] if len(chosen or ()) == 1 else chosen or None
        row["anchors"][client] = anchors
        row["evaluations"][client] = evaluations
        row["push"] = row["push"] or direction == "push"
    for row in found:
        row["reasons"] = "".join(row["reasons"])
    return {"from": start, "total": total, "clients": clients, "codes": CODES, "rounds": found}


def _empty(clients: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("chosen", "anchors", "evaluations"))
    return {"reasons": ["-"] * clients, "push": False} | {name: [None] * clients for name in nothing}


def clients(run: Run) -> dict[str, Any]:
    """Every client's accuracy at every evaluation: on the shared test set and on its own held-out data."""
    table = run.table("clients").sort("round", "client")
    groups = table.group_by("round", maintain_order=True)
    found: dict[str, Any] = {"rounds": [], "accuracy": [], "own": []}
    if "mae" in table.columns:
        found["measure"] = "MAE"
    for (number,), rows in groups:
        found["rounds"].append(number)
        test, own = ("mae", "own_mae") if "mae" in rows.columns else ("accuracy", "own_accuracy")
        found["accuracy"].append(numbers(rows[test], 4))
        found["own"].append(numbers(rows[own], 4))
    return found


def timeline(run: Run, round: int) -> dict[str, Any]:
    """The turns of a round, in client order; of clients at their own pace there may be several, or none."""
    table = run.table("decisions")
    if "ended_at" not in table.columns:
        raise RunError("This run has no clock: set clock.network to see who waits for whom.")
    turns = table.filter((pl.col("round") == round) & pl.col("began_at").is_not_null()).sort("client", "began_at")
    return {"round": round, "clients": run.config.clients, "turns": plain(turns.select(TURN).to_dicts(), 6)}
