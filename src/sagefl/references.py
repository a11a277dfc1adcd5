"""A user's own code by one string: `module:name`, or `file.py:name`; modules in the current folder are found.

Both forms run the user's own code with the user's rights, like any import. `file_of` finds the file without running it.
Installed packages offer theirs as entry points: `installed`.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from .errors import SageflError, UsageError, said
from .reading import watched

SELECTORS, METHODS, MODELS = "sagefl.selectors", "sagefl.methods", "sagefl.models"
DATASETS, METRICS, ENGINES = "sagefl.datasets", "sagefl.metrics", "sagefl.engines"
"""The groups in which packages offer entry points."""

_loaded: set[str] = set()  # folders that hold what references name
_added: set[str] = set()  # folders that references have put on `sys.path`


def is_reference(text: str) -> bool:
    """Whether this can be meant as `module:name` or `file.py:name`."""
    place, colon, name = text.partition(":")
    return bool(colon and place and name and all(part.isidentifier() for part in name.split(".")))


def installed(group: str) -> EntryPoints:
    """What installed packages offer in an entry-point group."""
    found: EntryPoints = _offered(tuple(sys.path)).select(group=group)
    return found


@cache
def _offered(path: tuple[str, ...]) -> Any:
    """Every entry point on `sys.path`: to look through all packages takes long, so it is done once."""
    return entry_points()


def load(what: str, reference: str, mistake: type[SageflError] = UsageError, hint: str = "") -> Any:
    """What the reference of a user's `what` names; whatever its module raises while it is imported is a `mistake`."""
    try:
        return _named(reference)
    except Exception as error:
        raise mistake(f"cannot load {what} {reference!r}: {said(error)}{hint}") from error


def _named(reference: str) -> Any:
    if not is_reference(reference):
        raise UsageError(f"{reference!r} is not of the form module:name or file.py:name")
    place, _, name = reference.partition(":")
    folder, module = _split(place)
    if not place.endswith(".py"):
        importlib.invalidate_caches()  # the file may be younger than the last look at its folder
    elif not Path(place).is_file():
        raise UsageError(f"{place}: no such file")
    _loaded.add(folder + os.sep)
    if folder not in sys.path:
        _added.add(folder)
        sys.path.insert(0, folder)  # and stays: worker processes import the module from there
    with watched(f"module {module} in {folder}"):  # it may be imported already: for the first of several that are in it
        imported = importlib.import_module(module)
    if place.endswith(".py") and not _is_file_of(imported, Path(place)):
        raise UsageError(f"a module {module} is loaded from elsewhere already: give {place} another name")
    return reduce(getattr, name.split("."), imported)


def place(error: BaseException) -> str | None:
    """File and line of the user's code that an error comes from; None if it comes from elsewhere.

    The innermost call counts that is not in a library: where we called the library, the error is ours.
    """
    own, paths = str(Path(__file__).parent), sysconfig.get_paths()
    libraries = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if not file.startswith(("<", *libraries)):
            users = file.startswith(tuple(_loaded)) and not file.startswith(own)
            return f"{Path(file).name}, line {line}" if users else None
    return None


def search_path(reference: str = "") -> list[str]:
    """The folders that a user's module may import from, whatever other references were loaded in this process."""
    own = [_split(reference.partition(":")[0])[0], str(Path.cwd())] if reference else []
    return [*own, *(entry for entry in sys.path if entry not in _added)]


def file_of(reference: str) -> Path | None:
    """The file that a reference's module comes from, found without importing anything; None if there is none."""
    place = reference.partition(":")[0]
    if place.endswith(".py"):
        return Path(place) if Path(place).is_file() else None
    return find_module(place, [str(Path.cwd()), *sys.path])


def find_module(name: str, path: list[str]) -> Path | None:
    """The file of a module, looked for in some folders and by the finders of packages that are installed editable."""
    importlib.invalidate_caches()
    parts, found, places = name.split("."), None, path
    for depth in range(1, len(parts) + 1):
        found = _spec(".".join(parts[:depth]), places, top=depth == 1)
        if found is None:
            return None
        places = list(found.submodule_search_locations or ())
    return Path(found.origin) if found is not None and found.origin and Path(found.origin).is_file() else None


def _spec(name: str, places: list[str], *, top: bool) -> ModuleSpec | None:
    """What Python would find under a full name, without the import of parents that `importlib.util` does."""
    return PathFinder.find_spec(name, places) or found_otherwise(name, None if top else places)


def found_otherwise(name: str, places: list[str] | None = None) -> ModuleSpec | None:
    """What finders beside the path know under a name, such as those of packages that are installed editable."""
    finders = [f for f in sys.meta_path if f is not PathFinder and hasattr(f, "find_spec")]
    return next((spec for finder in finders if (spec := finder.find_spec(name, places)) is not None), None)


def _split(place: str) -> tuple[str, str]:
    """The folder to search and the module's name."""
    if place.endswith(".py"):
        path = Path(place).expanduser().resolve()
        return str(path.parent), path.stem
    return str(Path.cwd()), place


def _is_file_of(module: Any, path: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve() == path.expanduser().resolve()


@contextmanager
def script_hidden() -> Iterator[None]:
    """Start processes that do not run the user's script again from its top: they need nothing that is defined in it."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
