"""Recorded losses on disk: a CSV (header = peer names, one row per anchor) or an NPY matrix (peers x anchors)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UsageError
from .requests import Array, Peer


@dataclass(frozen=True)
class RecordedLosses:
    """Losses of `peers` on a receiver's anchors, in anchor order."""

    peers: tuple[Peer, ...]
    losses: Array  # peers x anchors


def read_losses(path: Path) -> RecordedLosses:
    """Read recorded losses; an error says in which line of the file it is."""
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    return _read_npy(path) if path.suffix == ".npy" else _read_csv(path)


def _read_npy(path: Path) -> RecordedLosses:
    try:
        losses = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path} is not a readable NPY array: {error}") from None
    if losses.ndim != 2 or losses.dtype.kind not in "biuf":
        raise UsageError(f"{path} must hold a numeric (peers x anchors) matrix, got {losses.dtype} {losses.shape}")
    return RecordedLosses(tuple(range(len(losses))), losses.astype(np.float64))


def _read_csv(path: Path) -> RecordedLosses:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is not a readable CSV file: {error}") from None
    if not lines:
        raise UsageError(f"{path} is empty: expected a header of peer names and one row of losses per anchor")
    peers = _header(path, *lines[0])
    rows = [_csv_row(path, line, row, len(peers)) for line, row in lines[1:]]
    return RecordedLosses(peers, np.array(rows, dtype=np.float64).reshape(-1, len(peers)).T)


def _header(path: Path, line: int, row: list[str]) -> tuple[str, ...]:
    peers = tuple(name.strip() for name in row)
    if "" in peers or len(set(peers)) != len(peers):
        odd = "a peer has no name" if "" in peers else "a name stands twice"
        raise UsageError(f"{path}, line {line}: the header names the peers, each once, but {odd}: {', '.join(row)}")
    return peers


def _csv_row(path: Path, line: int, row: list[str], width: int) -> list[float]:
    if len(row) != width:
        raise UsageError(f"{path}, line {line}: {len(row)} values for {width} peers")
    try:
        return [float(value) for value in row]
    except ValueError as error:
        raise UsageError(f"{path}, line {line}: {error}") from None
