"""Recorded probe losses, packed: one small file per round, enough to replay any other rule on the same evidence.

0-1 losses take one bit per (peer, anchor); other losses are float32. What was not asked is marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from .files import RunError, atomic_write

__all__ = ["Recorded", "losses_path", "read_losses", "write_losses"]


@dataclass(frozen=True)
class Recorded:
    """One client-round: losses (peers x anchors), NaN where nothing was recorded, and the pool they come from."""

    client: int
    peers: npt.NDArray[np.int32]
    pool: int
    losses: npt.NDArray[np.float64]


def losses_path(directory: Path, round: int) -> Path:
    """Where a round's losses stand."""
    return directory / "losses" / f"round-{round:05d}.safetensors"


def write_losses(path: Path, records: Iterable[Recorded]) -> None:
    """Pack a round's losses into one file, atomically."""
    kept = list(records)
    flat = np.concatenate([r.losses.ravel() for r in kept]) if kept else np.zeros(0)
    asked = ~np.isnan(flat)
    values = flat[asked]
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "clients": np.array([r.client for r in kept], dtype=np.int32),
        "pools": np.array([r.pool for r in kept], dtype=np.int32),
        "shapes": np.array([r.losses.shape for r in kept], dtype=np.int32).reshape(-1, 2),
        "peers": np.concatenate([r.peers for r in kept]).astype(np.int32) if kept else np.zeros(0, np.int32),
        "asked": np.packbits(asked),
    }
    if np.isin(values, (0.0, 1.0)).all():
        arrays["bits"] = np.packbits(values.astype(bool))
    else:
        arrays["values"] = values.astype(np.float32)
    path.parent.mkdir(exist_ok=True)
    atomic_write(path, lambda p: save_file(arrays, p))


def read_losses(path: Path) -> list[Recorded]:
    """The inverse of `write_losses`."""
    try:
        arrays = load_file(path)
    except Exception as error:  # safetensors raises its own exception type for torn files
        raise RunError(f"{path} does not hold recorded losses: {error}") from None
    shapes = arrays["shapes"]
    count = int(shapes.prod(axis=1).sum()) if len(shapes) else 0
    flat = np.full(count, np.nan)
    asked = np.unpackbits(arrays["asked"], count=count).astype(bool)
    total = int(asked.sum())
    flat[asked] = np.unpackbits(arrays["bits"], count=total) if "bits" in arrays else arrays["values"]
    records, at, peer_at = [], 0, 0
    for client, pool, (degree, width) in zip(arrays["clients"], arrays["pools"], shapes, strict=True):
        losses = flat[at : at + degree * width].reshape(degree, width)
        peers = arrays["peers"][peer_at : peer_at + degree]
        records.append(Recorded(int(client), peers, int(pool), losses))
        at, peer_at = at + degree * width, peer_at + degree
    return records
