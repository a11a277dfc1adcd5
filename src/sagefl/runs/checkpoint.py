"""Checkpoints: a few tensors and a manifest, whole or not there.

A checkpoint of round t is a folder `checkpoint/round-t` with the population in chunks (safetensors, so that a large
population never stands twice in memory) and `manifest.json`, written last, with a digest of every chunk and of
itself. It is filled under another name, flushed to the disk and then renamed. The two newest are kept while a run goes
on; a torn or foreign one is refused and the one before it used. A finished run keeps its last.
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

from ..learning.population import Storage
from .files import PARTIAL, UNFIT, RunError, explained, make_durable, write_text

VERSION = 2
PARTS = {"version": int, "round": int, "identity": str, "chunks": dict, "states": dict}  # of a manifest
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


def save(directory: Path, round: int, population: Storage, identity: str, states: dict[str, Any]) -> None:
    """Write the checkpoint from which `round` is the next round to run."""
    root = directory / "checkpoint"
    target, partial = root / f"round-{round:05d}", root / f".round-{round:05d}{PARTIAL}"
    with explained(f"checkpoint {target}"):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            digests = {}
            for file, name, start, stop, _ in _chunks(population):
                save_file({"rows": population.read(name, start, stop)}, partial / file)
                make_durable(partial / file)
                digests[file] = _digest(partial / file)
            content = {"version": VERSION, "round": round, "identity": identity, "chunks": digests, "states": states}
            sealed = {"content": content, "digest": _seal(content)}
            (partial / "manifest.json").write_text(json.dumps(sealed), encoding="utf-8")
            make_durable(partial / "manifest.json")
            make_durable(partial)
            shutil.rmtree(target, ignore_errors=True)  # there is one only if it was refused
            partial.rename(target)
            make_durable(root)  # before older ones are removed
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    _forget(root, round, KEEP)


def keep_last(directory: Path, round: int) -> None:
    """Forget all checkpoints but the one after the last round, from which a finished run can go on."""
    _forget(directory / "checkpoint", round, 1)


def _forget(root: Path, round: int, keep: int) -> None:
    for old in [path for number, path in _stored(root) if number <= round][keep:]:
        shutil.rmtree(old, ignore_errors=True)


def any_of(directory: Path) -> bool:
    """Whether there is a checkpoint, good or not."""
    return bool(_stored(directory / "checkpoint"))


def hand_over(directory: Path, held: str, config: str) -> None:
    """Let the newest checkpoint of one config belong to another in the same world: one that asks for more rounds."""
    path = of_config(directory, held, config)
    content = _manifest(path)
    content["identity"] = config + content["identity"].removeprefix(held).removeprefix(config)
    write_text(path / "manifest.json", json.dumps({"content": content, "digest": _seal(content)}))


def of_config(directory: Path, *configs: str) -> Path:
    """The newest checkpoint, whole and of one of these configs; its world is not looked at."""
    _, path = next(iter(_stored(directory / "checkpoint")), (0, None))
    if path is None:
        raise CheckpointError(f"{directory} holds no checkpoint: it cannot go on")
    identity = _manifest(path)["identity"]
    if not identity.startswith(tuple(f"{config}-" for config in configs)):
        raise CheckpointError(f"checkpoint {path.name} belongs to another run")
    return _verified(path, identity).path


def latest(directory: Path, identity: str) -> tuple[Checkpoint | None, list[str]]:
    """The newest good checkpoint, and why newer ones were passed over."""
    refused: list[str] = []
    for _, path in _stored(directory / "checkpoint"):
        try:
            return _verified(path, identity), refused
        except CheckpointError as error:
            refused.append(str(error))
    return None, refused


def restore(checkpoint: Checkpoint, population: Storage) -> None:
    """Fill the population in place."""
    for file, name, start, stop, columns in _chunks(population):
        stored, needed = load_file(checkpoint.path / file)["rows"], (stop - start, columns)
        if stored.shape != needed:
            raise CheckpointError(f"{checkpoint.path / file} holds {tuple(stored.shape)}, the run needs {needed}")
        population.write(name, start, stored)


def _stored(root: Path) -> list[tuple[int, Path]]:
    """What looks like a checkpoint, newest first."""
    named = ((path.name.removeprefix("round-"), path) for path in root.glob("round-*"))
    return sorted(((int(number), path) for number, path in named if number.isdecimal()), reverse=True)


def _chunks(population: Storage) -> Iterator[tuple[str, str, int, int, int]]:
    """The population in slices of bounded size: (file, table, first row, last row + 1, columns)."""
    for name, total, columns in population.shapes():
        rows = max(1, CHUNK_BYTES // (4 * columns))
        for i, start in enumerate(range(0, total, rows)):
            yield f"{name}-{i:04d}.safetensors", name, start, min(start + rows, total), columns


def _verified(path: Path, identity: str) -> Checkpoint:
    content = _manifest(path)
    if content["version"] != VERSION:
        raise CheckpointError(f"checkpoint {path.name} has format {content['version']}, this version reads {VERSION}")
    if content["identity"] != identity:
        raise CheckpointError(
            f"checkpoint {path.name} belongs to another run (config and world {content['identity']}, here {identity})"
        )
    for name, digest in content["chunks"].items():
        if not (path / name).is_file() or _digest(path / name) != digest:
            raise CheckpointError(f"checkpoint {path.name} is torn: {name} is not what was written")
    return Checkpoint(path, content["round"], content["states"])


def _manifest(path: Path) -> dict[str, Any]:
    try:
        sealed = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        content, digest = dict(sealed["content"]), sealed["digest"]
        for name, kind in PARTS.items():
            if not isinstance(content[name], kind):
                raise ValueError(f"{name} is {type(content[name]).__name__}")
        if not all(Path(name).name == name and isinstance(d, str) for name, d in content["chunks"].items()):
            raise ValueError("a chunk is not a file in its folder")
    except (OSError, *UNFIT) as error:
        raise CheckpointError(f"checkpoint {path.name} is torn: its manifest cannot be read ({error})") from None
    if _seal(content) != digest:
        raise CheckpointError(f"checkpoint {path.name} is torn: its manifest is not what was written")
    return content


def _seal(content: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
