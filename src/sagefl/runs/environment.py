"""What a run was made of, and where: the code and files that decide its result, and `environment.json` beside it.

A run's config names a model, a method and data; what these names stand for may change between two commands. `made_of`
says what they stand for now: the digests of a user's own sources and files, and results versions of parts of this
package above 1. It is part of a run's address, and a folder in which something else was run is never taken for the
run. Versions of libraries and the kind of CPU change the last digits at most: they are recorded, and said.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from ..data.catalogue import ENTRY_POINTS as DATASETS
from ..data.reading import files_of
from ..data.tables import is_table
from ..references import file_of, find_module, installed, is_reference
from ..selection.registry import ENTRY_POINTS as SELECTORS
from ..selection.selector import Selector
from . import versions
from .config import RunConfig
from .own_losses import LOSSES
from .sources import Digests, digest_of_file, source_of_object, sources_of_file

MadeOf = dict[str, Digests]
METHODS, MODELS = "sagefl.methods", "sagefl.models"
VERSION = "results version"


# What decides the result ----------------------------------------------------------------------------------------------


def made_of(config: RunConfig) -> MadeOf:
    """What a config's names stand for now, by part; empty where all is this package's own at version 1."""
    parts = {"round loop": _versioned(versions.LOOP), **_method(config.method.id), **_world(config)}
    return {name: digests for name, digests in parts.items() if digests}


def address(config: RunConfig) -> str:
    """Where studies and comparisons keep a run: a hash of everything that decides its result, code included."""
    return _hashed(config.digest, made_of(config))


def is_older(held: str, config: RunConfig) -> bool:
    """Whether an address may be that of this config under code that has changed since.

    Lower results versions are tried one by one; what a user's own code used to be is not known, so there it may.
    """
    parts = made_of(config)
    if any(VERSION not in digests for digests in parts.values()):
        return True
    numbers = [range(1, int(digests[VERSION]) + 1) for digests in parts.values()]
    made = [dict(zip(parts, map(_versioned, before), strict=True)) for before in product(*numbers)]
    return held in {_hashed(config.digest, {name: d for name, d in one.items() if d}) for one in made}


def world_address(config: RunConfig) -> str:
    """As `address`, the method left out."""
    parts = {"round loop": _versioned(versions.LOOP), **_world(config)}
    return _hashed(config.world_digest, {name: digests for name, digests in parts.items() if digests})


def _hashed(digest: str, parts: MadeOf) -> str:
    if not parts:
        return digest
    return hashlib.sha256(f"{digest} {json.dumps(parts, sort_keys=True)}".encode()).hexdigest()[:16]


def _world(config: RunConfig) -> MadeOf:
    parts = {f"data {config.data.dataset}": _data(config.data.dataset), **_model(config.model.name)}
    if (loss := config.data.loss) is not None:
        parts[f"loss {loss}"] = _code(loss, (), LOSSES, 1)
    files = {"graph": config.topology.file, "availability": config.network.trace}
    return parts | {f"{what} {file}": {file: digest_of_file(Path(file))} for what, file in files.items() if file}


def _versioned(number: int) -> Digests:
    return {VERSION: str(number)} if number > 1 else {}


def _method(id: str) -> MadeOf:
    registered: dict[str, Any] = dict(Selector.registered)
    if (base := sys.modules.get("sagefl.methods.base")) is not None:  # elsewhere nobody can have registered any
        registered |= base.Method.registered
    return {f"method {id}": _code(id, (SELECTORS, METHODS), registered, versions.METHODS.get(id, 1))}


def _model(name: str) -> MadeOf:
    module = sys.modules.get("sagefl.learning.models")
    registered = {} if module is None else module.MODELS
    return {f"model {name}": _code(name, (MODELS,), registered, versions.MODELS.get(name, 1))}


def _data(name: str) -> Digests:
    if name.endswith(".npz") or is_table(name):
        return {name: digest_of_file(Path(name.partition("?")[0]).expanduser())}
    if Path(name).is_dir():
        return {f"{name}/{path.name}": digest_of_file(path) for path in sorted(Path(name).glob("*.npy"))}
    if name.startswith("hf:"):
        return {}
    return _code(name, (DATASETS,), {}, versions.DATASETS.get(name, 1))


def _code(name: str, groups: tuple[str, ...], registered: Mapping[str, Any], number: int) -> Digests:
    """What stands behind a name: a file, an installed package, a class of this process, or a part of this package."""
    for point in (p for group in groups for p in installed(group) if p.name == name):
        file = find_module(point.module, sys.path)
        return {point.value: "missing"} if file is None else sources_of_file(file)
    if is_reference(name):
        file = file_of(name)
        return {name.partition(":")[0]: "missing"} if file is None else sources_of_file(file)
    if name in registered and not _ours(registered[name]):
        return source_of_object(registered[name])
    return _versioned(number)


def _ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] == "sagefl"


def read_by(config: RunConfig) -> Digests:
    """The files that the data were read from by a user's function, which is known once it has been called."""
    return {str(path): digest_of_file(path) for path in files_of(config.data.dataset)}


def changes(held: Mapping[str, Any] | None, config: RunConfig) -> list[str]:
    """What has changed since a run was made, by name; `held` is its environment, None if it was not recorded."""
    now = made_of(config)
    if held is None:
        return [f"{part} (its code was not recorded)" for part, digests in now.items() if VERSION not in digests] + [
            line for part in now if VERSION in now[part] for line in _changed(part, {}, now[part])
        ]
    then = held.get("made_of", {})
    found = [line for part in {**then, **now} for line in _changed(part, then.get(part, {}), now.get(part, {}))]
    return found + changed_files(held.get("files", {}), config)


def changed_files(read: Mapping[str, str], config: RunConfig) -> list[str]:
    """Those of the files behind the data of a run that have changed since they were read, by name."""
    paths = [
        path for path, digest in zip(map(Path, read), read.values(), strict=True) if digest_of_file(path) != digest
    ]
    return [f"{_short(path)} (read by data {config.data.dataset})" for path in paths]


def _changed(part: str, then: Digests, now: Digests) -> Iterator[str]:
    for name in {**then, **now}:
        if then.get(name) != now.get(name):
            if name == VERSION:
                yield f"{part} ({VERSION} {then.get(name, 1)} there, {now.get(name, 1)} here)"
            elif now.get(name, "missing") == "missing":
                yield f"{name} is gone ({part})"
            else:
                yield f"{name} ({part})"


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path)


# Where it was made ----------------------------------------------------------------------------------------------------


def circumstances() -> dict[str, Any]:
    """What a process works with: versions, the kind of CPU, the project's commit if there is one, what was typed."""
    found: dict[str, Any] = {"python": platform.python_version(), "cpu": _cpu(), "system": platform.system()}
    for name in ("sagefl", "torch", "numpy", "polars"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    if (commit := _commit(Path.cwd())) is not None:
        found["commit"] = commit
    return found | {"command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}


def differing(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """What may move the last digits between two environments, by name."""
    return [
        f"{name} {one[name]} there, {two[name]} here"
        for name in ("torch", "numpy", "cpu", "engine")
        if name in one and name in two and _kind(name, one[name]) != _kind(name, two[name])
    ]


def _kind(name: str, value: Any) -> Any:
    """Engines that compute one client at a time agree to the last bit."""
    return str(value).startswith("stacked") if name == "engine" else value


@cache
def _cpu() -> str:
    """The kind of CPU; trained numbers are bit-identical on one kind only."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        fields = dict(re.findall(r"^(vendor_id|cpu family|model)\s*: (.*)$", info.read_text(), re.MULTILINE))
        if fields:
            return f"{platform.machine()} {' '.join(fields.values())}"
    return f"{platform.machine()} {platform.processor()}".strip()


@cache
def _commit(folder: Path) -> str | None:
    """The commit of the user's project, with `-dirty` where files were changed since."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
        if done.returncode == 0:
            return done.stdout.strip()
    return None
