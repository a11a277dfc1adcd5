"""The audit log: one line per round, each with the hash of the line before it, so that no change goes unnoticed.

A line holds the hash of the round's row of the decision table and the digest of the model that was published. Whoever
alters a row, a line or their order breaks the chain; checkpoints keep its newest hash, so a log cut short is noticed
too. The log shows that a record was not altered afterwards, not that its node told the truth when it wrote it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from ..runs.columns import schema
from ..runs.files import UNFIT
from ..runs.rundir import RunDirectory
from .errors import NodeError

FILE = "audit.log"
GENESIS = "0" * 64


class Audit:
    """The log of one node, open at its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.head = path, GENESIS
        self._waiting: list[bytes] = []  # lines for which the disk had no room yet

    def resume(self, round: int) -> None:
        """Go on after the last line; rounds from `round` on are about to be run again."""
        if self.path.exists():
            self.head = _chain(self.path)[-1]["hash"] if self.path.stat().st_size else GENESIS
            self.enter({"resumed": round})

    def enter(self, content: Mapping[str, Any]) -> None:
        """Add a line; one that cannot be written waits for the next, and `OSError` says so."""
        line = {**content, "prev": self.head}
        self.head = _hash(line)
        self._waiting.append(f"{json.dumps({**line, 'hash': self.head})}\n".encode())
        self.flush()

    def flush(self) -> None:
        """Write every line that waits."""
        while self._waiting:
            self._append(self._waiting[0])
            del self._waiting[0]

    def _append(self, written: bytes) -> None:
        """Whole and on disk, or not at all."""
        with self.path.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if file.write(written) != len(written):
                file.truncate(end)
                raise OSError(errno.ENOSPC, "no space for a line")
            os.fsync(file.fileno())


def row_hash(row: Mapping[str, Any]) -> str:
    """The hash of one row of the decision table, as it reads back from disk."""
    kinds = schema("decisions", "node")
    (kept,) = pl.DataFrame([{name: row.get(name) for name in kinds}], schema=kinds).to_dicts()
    return _hash(kept)


def verify(directory: Path, heads: Mapping[str, str]) -> tuple[int, list[str]]:
    """(rounds checked, what is wrong); `heads` are hashes that must be in the chain, by where they are kept."""
    lines = _chain(directory / FILE)
    known = {GENESIS, *(line["hash"] for line in lines)}
    lost = sorted(where for where, head in heads.items() if head not in known)
    wrong = [f"the hash kept in {where} is not in the log: it was cut short or replaced" for where in lost]
    told: dict[int, str] = {}
    for line in lines:
        if "resumed" in line:
            told = {number: row for number, row in told.items() if number < line["resumed"]}
        else:
            told[line["round"]] = line["row"]
    rows = {row["round"]: row_hash(row) for row in RunDirectory(directory).table("decisions").to_dicts()}
    for number in sorted(rows.keys() | told.keys()):
        if number not in told:
            wrong.append(f"round {number} is in the table, but not in the log")
        elif number not in rows:
            if number < max(rows, default=0):
                wrong.append(f"round {number} is in the log, but not in the table")
        elif rows[number] != told[number]:
            wrong.append(f"round {number} in the table is not what the log says")
    return len(told), wrong


def heads(directory: Path) -> dict[str, str]:
    """The newest hash of the log as each checkpoint keeps it."""
    found = {}
    for manifest in sorted((directory / "checkpoint").glob("round-*/manifest.json")):
        try:
            found[manifest.parent.name] = str(json.loads(manifest.read_text())["content"]["states"]["audit"])
        except (OSError, *UNFIT):
            found[manifest.parent.name] = "unreadable"
    return found


def _chain(path: Path) -> list[dict[str, Any]]:
    """The lines of a log whose hashes fit."""
    previous, lines = GENESIS, []
    try:
        for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = dict(json.loads(raw))
            told = line.pop("hash")
            if line["prev"] != previous or _hash(line) != told:
                raise NodeError(f"{path}, line {number}: the chain is broken; this log has been altered")
            if not (isinstance(line["resumed"], int) if "resumed" in line else _tells_a_round(line)):
                raise ValueError(f"line {number} names no round")
            lines.append({**line, "hash": told})
            previous = told
    except FileNotFoundError:
        raise NodeError(f"no audit log in {path.parent}: has a node run there?") from None
    except UNFIT as error:
        raise NodeError(f"{path} is not an audit log: {error}") from None
    return lines


def _tells_a_round(line: Mapping[str, Any]) -> bool:
    return isinstance(line["round"], int) and isinstance(line["row"], str)


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
