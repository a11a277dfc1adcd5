"""Checkpoints: a few tensors and a manifest, whole or not there.

A checkpoint of round t is a folder ``checkpoint/round-t`` with the population in chunks (safetensors, so that a large
population never stands twice in memory) and ``manifest.json``, written last, with a digest of every chunk. The two
newest are kept; a torn or foreign one is refused and the one before it used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ..learning.population import Population
from .files import RunError, explained, write_text

__all__ = ["Checkpoint", "CheckpointError", "latest", "restore", "save"]

VERSION = 1
CHUNK_BYTES = 256 * 2**20
KEEP = 2


class CheckpointError(RunError):
    """A checkpoint that must not be used."""


@dataclass(frozen=True)
class Checkpoint:
    """A good checkpoint on disk: `round` is the next round to run."""

    path: Path
    round: int
    states: dict[str, Any]


def save(directory: Path, round: int, population: Population, identity: str, states: dict[str, Any]) -> None:
    """Write the checkpoint from which `round` is the next round to run."""
    root = directory / "checkpoint"
    target, partial = root / f"round-{round:05d}", root / f".round-{round:05d}.partial"
    with explained(f"checkpoint {target}"):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            digests = {}
            for name, tensor in _chunks(population):
                save_file({"rows": tensor.contiguous()}, partial / name)
                digests[name] = _digest(partial / name)
            manifest = {"version": VERSION, "round": round, "identity": identity, "chunks": digests, "states": states}
            write_text(partial / "manifest.json", json.dumps(manifest))
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    for old in sorted(root.glob("round-*"))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def latest(directory: Path, identity: str) -> tuple[Checkpoint | None, list[str]]:
    """The newest good checkpoint, and why newer ones were passed over."""
    refused: list[str] = []
    for path in sorted((directory / "checkpoint").glob("round-*"), reverse=True):
        try:
            return _verified(path, identity), refused
        except CheckpointError as error:
            refused.append(str(error))
    return None, refused


def restore(checkpoint: Checkpoint, population: Population) -> None:
    """Fill the population in place."""
    for name, rows in _chunks(population):
        stored = load_file(checkpoint.path / name)["rows"]
        if stored.shape != rows.shape:
            raise CheckpointError(
                f"{checkpoint.path / name} holds {tuple(stored.shape)}, the run needs {tuple(rows.shape)}"
            )
        rows.copy_(stored)


def _chunks(population: Population) -> Iterator[tuple[str, Tensor]]:
    """The population as named slices of bounded size; writing to a slice writes to the population."""
    for name, tensor in population.tensors():
        flat = tensor.view(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor.view(1, -1)
        rows = max(1, CHUNK_BYTES // (4 * flat.shape[1]))
        for i, start in enumerate(range(0, len(flat), rows)):
            yield f"{name}-{i:04d}.safetensors", flat[start : start + rows]


def _verified(path: Path, identity: str) -> Checkpoint:
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        version, owner, chunks = manifest["version"], manifest["identity"], dict(manifest["chunks"])
        checkpoint = Checkpoint(path, int(manifest["round"]), manifest["states"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path.name} is torn: its manifest cannot be read ({error})") from None
    if version != VERSION:
        raise CheckpointError(f"checkpoint {path.name} has format {version}, this version reads {VERSION}")
    if owner != identity:
        raise CheckpointError(
            f"checkpoint {path.name} belongs to another run (config or data {owner}, here {identity})"
        )
    for name, digest in chunks.items():
        if not (path / name).is_file() or _digest(path / name) != digest:
            raise CheckpointError(f"checkpoint {path.name} is torn: {name} is not what was written")
    return checkpoint


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
