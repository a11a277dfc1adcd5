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
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from ..clock import NETWORKS
from ..data.loading import load as load_dataset
from ..data.tables import is_table
from ..errors import SageflError
from ..reading import code_of, files_of, forget_returned, read_beyond, returned_by
from ..references import (
    DATASETS,
    METHODS,
    MODELS,
    SELECTORS,
    file_of,
    find_module,
    installed,
    is_reference,
    search_path,
)
from ..selection.selector import Selector
from . import versions
from .config import RunConfig
from .own_losses import LOSSES
from .sources import MISSING, Digests, digest_of_file, libraries_of_file, noted_once, source_of_object, sources_of_file

MadeOf = dict[str, Digests]
VERSION = "results version"
OPENLY = ("numpy", "pandas", "PIL", "scipy", "sklearn", "torch", "sagefl")  # these open files through Python
BY_THEMSELVES = ("ctypes", "ftplib", "http", "multiprocessing", "socket", "subprocess", "urllib")
_once = False  # whether what a data function returned is not asked again


# What decides the result ----------------------------------------------------------------------------------------------


def made_of(config: RunConfig) -> MadeOf:
    """What a config's names stand for now, by part; empty where all is this package's own at version 1."""
    parts = {"round loop": _versioned(versions.LOOP), **_method(config.method.id), **_world(config)}
    if config.clock.schedule == "async":
        parts["own pace"] = _versioned(versions.OWN_PACE.get(config.method.id, 1))
    return {name: digests for name, digests in parts.items() if digests}


def is_certain(parts: MadeOf) -> bool:
    """Whether all of it was found, so that equal digests mean equal code."""
    return not any(MISSING in digests.values() for digests in parts.values())


def address(config: RunConfig) -> str:
    """Where studies and comparisons keep a run: a hash of everything that decides its result, code included."""
    return _hashed(config.digest, made_of(config))


def is_older(held: str, config: RunConfig) -> bool:
    """Whether an address may belong to this config under code that has changed since.

    Lower results versions are tried one by one. What a user's own code was before is not known, so with any of it the
    answer is yes.
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
    clock = config.clock.network
    files = {"graph": config.topology.file, "availability": config.network.trace}
    files["machines"] = None if clock in NETWORKS else clock
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
    if (found := _file_behind(name, groups)) is not None:
        place, file, places = found
        return {place: MISSING} if file is None else sources_of_file(file, places)
    if name in registered and str(getattr(registered[name], "__module__", "")).split(".")[0] != "sagefl":
        return source_of_object(registered[name])
    return _versioned(number)


def _file_behind(name: str, groups: tuple[str, ...]) -> tuple[str, Path | None, list[str]] | None:
    """The file of a user's or package's module, with what it is called and where it imports from; else None."""
    for point in (p for group in groups for p in installed(group) if p.name == name):
        return str(point.value), find_module(point.module, sys.path), search_path()
    return (name.partition(":")[0], file_of(name), search_path(name)) if is_reference(name) else None


def read_by(config: RunConfig) -> Digests:
    """The files that a run was made from, which is known once all is made, and its data's digest if they do not say.

    Modules are among them that no import statement names.
    """
    files = {str(path): digest_of_file(path) for reader in _readers(config) for path in files_of(reader)}
    code = {str(path): digest_of_file(path) for reader in _readers(config) for path in code_of(reader)}
    named = {digest for digests in made_of(config).values() for digest in digests.values()}
    return files | {path: digest for path, digest in code.items() if digest not in named} | returned(config)


def _readers(config: RunConfig) -> list[str]:
    """Who may read files while a run is made: what a user or another package gave it."""
    loss = [f"loss {config.data.loss}"] if config.data.loss is not None else []
    named = [f"data {config.data.dataset}", f"model {config.model.name}", f"method {config.method.id}", *loss]
    made = made_of(config)
    return [reader for reader in named if VERSION not in made.get(reader, {VERSION: ""})]


def changes(held: Mapping[str, Any] | None, config: RunConfig) -> list[str]:
    """What has changed since a run was made, by name; `held` is its environment, None if it was not recorded."""
    now = made_of(config)
    if held is None:
        return [f"{part} (its code was not recorded)" for part, digests in now.items() if VERSION not in digests] + [
            line for part in now if VERSION in now[part] for line in _changed(part, {}, now[part])
        ]
    then = held.get("made_of", {})
    found = [line for part in {**then, **now} for line in _changed(part, then.get(part, {}), now.get(part, {}))]
    found += changed_files(files := held.get("files", {}), config)
    if not found and (digest := files.get(f"data {config.data.dataset}")) is not None:
        found += changed_data(config, digest)
    return found


def changed_files(read: Mapping[str, str], config: RunConfig) -> list[str]:
    """Those of the files that a run was read from that have changed since, by name."""
    paths = {Path(name): digest for name, digest in read.items() if name != f"data {config.data.dataset}"}
    changed = [path for path, digest in paths.items() if digest_of_file(path) != digest]
    whose = " or ".join(_readers(config)) if changed else ""
    return [f"{_short(path)} (read by {whose or f'data {config.data.dataset}'})" for path in changed]


def _changed(part: str, then: Digests, now: Digests) -> Iterator[str]:
    for name in {**then, **now}:
        if then.get(name) != now.get(name) or now[name] == MISSING:
            if name == VERSION:
                yield f"{part} ({VERSION} {then.get(name, 1)} there, {now.get(name, 1)} here)"
            elif then.get(name) == MISSING == now.get(name):
                yield f"{name} cannot be found, so nobody knows what it is ({part})"
            elif now.get(name, MISSING) == MISSING:
                yield f"{name} is gone ({part})"
            else:
                yield f"{name} ({part})"


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path)


# Data whose files do not tell all -------------------------------------------------------------------------------------


def returned(config: RunConfig) -> Digests:
    """What a user's data function came to, where the files that it was seen to open do not say all of it.

    It opened none, or looked into folders, processes or connections, or its code imports what may open files by itself.
    """
    name = config.data.dataset
    found, digest = _file_behind(name, (DATASETS,)), returned_by(f"data {name}")
    if found is None or digest is None:
        return {}
    _, file, places = found
    if not read_beyond(f"data {name}") and file is not None and all(map(_is_open, libraries_of_file(file, places))):
        return {}
    return {f"data {name}": digest}


def _is_open(library: str) -> bool:
    """Whether Python sees the files that a library opens."""
    top = library.partition(".")[0]
    return top in OPENLY or (top in sys.stdlib_module_names and top not in BY_THEMSELVES)


def changed_data(config: RunConfig, digest: str) -> list[str]:
    """Whether a user's data function returns other data than it did: it is asked, as a run would."""
    name = config.data.dataset
    why = ""
    if not _once or returned_by(f"data {name}") is None:
        try:
            load_dataset(name)
        except SageflError as error:
            why = f"cannot be loaded: {error}"
    if not why and returned_by(f"data {name}") != digest:
        why = "other data than it was, by files that cannot be seen"
    return [f"data {name} ({why})"] if why else []


@contextmanager
def asked_once() -> Iterator[None]:
    """However many runs are looked at inside, a data function that has to be asked is asked once.

    And a notebook's class stands for what it did in the beginning, whatever it counts or collects while it runs.
    """
    global _once
    if _once:
        yield
        return
    forget_returned()
    _once = True
    try:
        with noted_once():
            yield
    finally:
        _once = False


# Where it was made ----------------------------------------------------------------------------------------------------


def circumstances() -> dict[str, Any]:
    """What a process works with: versions, the kind of CPU, the project's commit if there is one, what was typed."""
    found: dict[str, Any] = {"python": platform.python_version(), "cpu": _cpu(), "system": platform.system()}
    for name in ("sagefl", "torch", "numpy", "polars"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    if (commit := _commit(Path.cwd())) is not None:
        found["commit"] = commit
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else shlex.quote(program.name)
    return found | {"command": " ".join([name, *map(shlex.quote, sys.argv[1:])])}


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
