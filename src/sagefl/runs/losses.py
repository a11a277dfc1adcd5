"""Recorded probe losses, packed: one small file per round, enough to replay any other rule on the same evidence.

0-1 losses take one bit per (peer, anchor); other losses are float32. What was not asked is marked as such, and what
peers were asked for and how it was scored stands beside it: errors of labels say nothing of latents. Where peers
perturbed their labels, so does the number of classes, by which a rule is priced: whoever replays needs no data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ..selection.decision import Decision
from ..selection.requests import Array
from ..selection.scoring import Scoring, filed_as
from .files import RunError, atomic_write

UNKNOWN = -1
PARTS = (
    ("clients", "i", 1), ("pools", "i", 1), ("scorings", "i", 1), ("shapes", "i", 2), ("peers", "i", 1),
    ("asked", "u", 1), ("bits", "u", 1), ("values", "f", 1),
)  # of a file: name, kind of number, dimensions  # fmt: skip
OPTIONAL = {"scorings", "bits", "values"}  # files of earlier versions lack the first; one of the others is there
MOST_LOSSES = 2**26  # of one round: a dozen times those of 10,000 clients


@dataclass(frozen=True)
class Recorded:
    """One client-round: losses (peers x anchors), NaN where nothing was recorded, and the pool they come from."""

    client: int
    peers: npt.NDArray[np.int32]
    pool: int
    losses: npt.NDArray[np.float64]
    scoring: Scoring | None = None  # what peers sent and how it was scored; None: the file does not say
    told: Mapping[str, Any] = field(default_factory=dict)  # what else the audit says of the decision, for a replay

    @classmethod
    def of(cls, client: int, decision: Decision, scoring: Scoring, losses: Array) -> Recorded:
        """The losses of one decision, up to the last anchor that anybody was asked about."""
        asked = np.flatnonzero((~np.isnan(losses)).any(axis=0))
        width = int(asked[-1]) + 1 if len(asked) else 0
        hood = decision.hood
        return cls(client, np.array(hood.peers, dtype=np.int32), hood.anchors, losses[:, :width], scoring)


def losses_path(directory: Path, round: int) -> Path:
    """Where a round's losses stand."""
    return directory / "losses" / f"round-{round:05d}.safetensors"


def first_losses(directory: Path) -> Path | None:
    """The losses of the first round that has any."""
    return min((directory / "losses").glob("round-*.safetensors"), default=None)


def write_losses(path: Path, records: Iterable[Recorded], classes: int | None = None) -> None:
    """Pack a round's losses into one file, atomically; `classes`: of labels that peers perturbed."""
    kept = list(records)
    flat = np.concatenate([r.losses.ravel() for r in kept]) if kept else np.zeros(0)
    asked = ~np.isnan(flat)
    values = flat[asked]
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "clients": np.array([r.client for r in kept], dtype=np.int32),
        "pools": np.array([r.pool for r in kept], dtype=np.int32),
        "scorings": np.array([UNKNOWN if r.scoring is None else r.scoring.filed for r in kept], dtype=np.int8),
        "shapes": np.array([r.losses.shape for r in kept], dtype=np.int32).reshape(-1, 2),
        "peers": np.concatenate([r.peers for r in kept]).astype(np.int32) if kept else np.zeros(0, np.int32),
        "asked": np.packbits(asked),
    }
    if np.isin(values, (0.0, 1.0)).all():
        arrays["bits"] = np.packbits(values.astype(bool))
    else:
        arrays["values"] = values.astype(np.float32)
    if classes is not None:
        arrays["classes"] = np.array([classes], dtype=np.int32)
    path.parent.mkdir(exist_ok=True)
    atomic_write(path, lambda p: save_file(arrays, p))


def perturbed_classes(path: Path) -> int | None:
    """How many classes the labels have that peers perturbed; None: they did not, or the file is too old to say."""
    with _explained(path), safe_open(path, framework="np") as file:
        return int(file.get_tensor("classes")[0]) if "classes" in file.keys() else None  # noqa: SIM118 (no mapping)


def read_losses(path: Path) -> list[Recorded]:
    """The inverse of `write_losses`."""
    with _explained(path):
        if path.stat().st_size > 5 * MOST_LOSSES:
            raise ValueError(f"more than {MOST_LOSSES:,} losses")
        return list(_records(load_file(path), path))


def _records(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> Iterator[Recorded]:
    count, asked = _asked(arrays)
    shapes = arrays["shapes"].tolist()
    flat = np.full(count, np.nan)
    total = int(asked.sum())
    flat[asked] = np.unpackbits(arrays["bits"], count=total) if "bits" in arrays else arrays["values"]
    scorings = arrays.get("scorings", np.full(len(shapes), UNKNOWN, dtype=np.int8))
    at = peer_at = 0
    for client, pool, scoring, (degree, width) in zip(
        arrays["clients"], arrays["pools"], scorings, shapes, strict=True
    ):
        losses = flat[at : at + degree * width].reshape(degree, width)
        peers = arrays["peers"][peer_at : peer_at + degree]
        yield Recorded(int(client), peers, int(pool), losses, _form(int(scoring), path))
        at, peer_at = at + degree * width, peer_at + degree


def _asked(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[int, npt.NDArray[np.bool_]]:
    """(entries, which of them were asked) of a file whose arrays fit together, before anything is made of them."""
    for name, kinds, sides_of in PARTS:
        if name in arrays and (arrays[name].dtype.kind not in kinds or arrays[name].ndim != sides_of):
            raise ValueError(f"{name} are not what they should be")
    if missing := {name for name, *_ in PARTS} - OPTIONAL - arrays.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    sides = arrays["shapes"].reshape(-1, 2).tolist()
    count = sum(degree * width for degree, width in sides)
    listed = (arrays[name] for name in ("clients", "pools", "shapes", "scorings") if name in arrays)
    if len({len(array) for array in listed}) > 1 or min(map(min, sides), default=0) < 0:
        raise ValueError("there are not as many shapes as clients")
    if count > MOST_LOSSES or len(arrays["asked"]) != -(-count // 8):
        raise ValueError(f"{len(arrays['asked']):,} bytes tell what was asked of {count:,} entries")
    if len(arrays["peers"]) != sum(degree for degree, _ in sides):
        raise ValueError("there are not as many rows as peers")
    asked = np.unpackbits(arrays["asked"], count=count).astype(bool)
    total = int(asked.sum())
    if len(arrays["bits"] if "bits" in arrays else arrays["values"]) != (-(-total // 8) if "bits" in arrays else total):
        raise ValueError(f"there are not as many losses as the {total:,} that were asked for")
    return count, asked


def _form(number: int, path: Path) -> Scoring | None:
    if number == UNKNOWN:
        return None
    if (form := filed_as(number)) is None:
        raise RunError(f"{path} holds answers of form {number}, which nothing that is installed here defines")
    return form


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # safetensors raises its own exception type for torn files
        raise RunError(f"{path} does not hold recorded losses: {error}") from None
