"""How clients ended beside a reference, by who has few of something; for `results_page.py`."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path
from statistics import fmean
from typing import NamedTuple


class Behind(NamedTuple):
    """Clients that have few, and the others: how many, and by how many points a rule leaves them behind."""

    few: int
    points: float
    others: int
    others_points: float

    @property
    def share(self) -> float:
        """Of all the points that are missing, those of clients that have few."""
        missing = self.few * self.points
        return missing / (missing + self.others * self.others_points)


class ClientsAccount:
    """Every client at the end of some cells (`tools/world_clients.py`)."""

    def __init__(self, path: Path) -> None:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.rows = {(r["world"], r["seed"], r["client"], r["method"]): r for r in rows}

    def behind(self, rule: str, reference: str, worlds: Collection[str], what: str, fewer_than: int) -> Behind:
        """What a rule lacks to a reference, apart for clients with fewer than so many of a column."""
        found: dict[bool, list[float]] = {True: [], False: []}
        for (world, seed, client, method), row in self.rows.items():
            if method == rule and world in worlds:
                mark = self.rows[world, seed, client, reference]
                lacks = 100 * (float(mark["accuracy"]) - float(row["accuracy"]))
                found[int(row[what]) < fewer_than].append(lacks)
        return Behind(len(found[True]), fmean(found[True]), len(found[False]), fmean(found[False]))
