"""What the `cells.csv` of some folders hold of a plan: cells that count although their runs are gone.

A cell is recalled by its address, a hash of its config and of the code behind it, whatever a study calls its world or
its method. One that was made before that code changed, or in another precision, stands in for the planned one until
that is run; reports say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..runs.config import RunConfig
from .collect import Record, differ, read_records
from .errors import StudyError
from .matrix import Cell

NAMED = 3  # how many cells a note names


@dataclass(frozen=True)
class Kept:
    """What some folders hold of a plan, by the digest of the planned cell."""

    known: Mapping[str, Record] = field(default_factory=dict)  # made as they would be made now
    instead: Mapping[str, Record] = field(default_factory=dict)  # of an older version, or another precision
    unplanned: Mapping[Path, Sequence[Record]] = field(default_factory=dict)

    @property
    def reported(self) -> dict[str, Record]:
        """What a report can use."""
        return {**self.instead, **self.known}

    @property
    def outdated(self) -> dict[str, Record]:
        """Those that were made before something changed."""
        return {digest: r for digest, r in self.instead.items() if r.changed}

    def accounts_for(self, row: Record) -> bool:
        """Whether a row is used, or was made before something changed and has its place taken by another."""
        there = self.reported.values()
        taken = row.changed and any(_place(r.config, r.method) == _place(row.config, row.method) for r in there)
        return bool(taken) or any(r.at == row.at for r in there)

    def notes(self) -> Iterator[str]:
        """What the folders hold beside the plan, a line each."""
        for folder, records in self.unplanned.items():
            names = [f"{r.configuration} {r.method} seed {r.config.seed}" for r in records[:NAMED]]
            more = ["..."] if len(records) > NAMED else []
            yield f"{len(records)} of the cells in {folder}, not in this plan: {', '.join([*names, *more])}"


def gather(folders: Iterable[Path]) -> dict[Path, list[Record]]:
    """The records of some folders; two that disagree about a cell are refused."""
    found = {folder: read_records(folder / "cells.csv") for folder in folders}
    kept: dict[str, Record] = {}
    for folder, records in found.items():
        for r in records:
            if differ(kept.setdefault(r.at, r), r):
                where = f"{r.configuration}, {r.method}, seed {r.config.seed}"
                raise StudyError(f"{folder} and a folder before it disagree about {where}: name only one of them")
    return found


def beside(out: Path) -> list[Path]:
    """Folders of earlier accounts of a study: that to be written, and those whose names begin as its name."""
    return [path.parent for path in sorted(out.parent.glob(f"{out.name}*/cells.csv"))]


def newest(records: Iterable[Record]) -> list[Record]:
    """Each config once in each world, made by the code of now where it is there."""
    found: dict[object, Record] = {}
    for r in records:
        key = (r.configuration, r.config.digest)
        if key not in found or not r.changed:
            found[key] = r
    return list(found.values())


def recall(cells: Iterable[Cell], folders: Iterable[Path]) -> Kept:
    """What some folders hold of these cells; whoever names a folder vouches for what is in it."""
    found = gather(folders)
    records = [r for some in found.values() for r in some]
    by_address = {r.at: r for r in records}
    by_place = {_place(r.config, r.method): r for r in sorted(records, key=lambda r: bool(r.changed), reverse=True)}
    known, instead = {}, {}
    for cell in cells:
        if (same := by_address.get(cell.address)) is not None and not same.changed:
            known[cell.config.digest] = _as(cell, same)
            continue
        other = by_place.get(_place(cell.config, cell.method))
        if other and (other.changed or other.config.training.precision != cell.config.training.precision):
            instead[cell.config.digest] = _as(cell, other)
    used = {r.at for r in (*known.values(), *instead.values())}
    rest = {folder: [r for r in some if r.at not in used] for folder, some in found.items()}
    return Kept(known, instead, {folder: some for folder, some in rest.items() if some})


def _place(config: RunConfig, method: str) -> tuple[str, str]:
    """A world and the name of the method in it, whatever precision it is computed in."""
    training = config.training.model_copy(update={"precision": "float32"})
    return config.model_copy(update={"training": training}).world_digest, method


def _as(cell: Cell, record: Record) -> Record:
    return replace(record, configuration=cell.configuration, method=cell.method)
