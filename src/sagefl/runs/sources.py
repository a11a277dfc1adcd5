"""What a user's code and files consist of, as digests by file: a module, and what it imports of the user's.

Nothing is imported or run for it. Of an installed package its own files count, of a module in a folder also its
neighbours there; other people's packages are known by their versions. A class from a notebook has no file: its source
is what IPython remembers, with the functions, classes and constants of the notebook that it uses.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import linecache
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

from ..data.places import cache_dir
from ..errors import UsageError
from .files import write_text

Digests = dict[str, str]
LENGTH = 16
SETTLED = 2.0  # seconds; a file that was changed a moment ago may change again within one tick of its clock
INSTALLED = ("site-packages", "dist-packages")
PLAIN = (int, float, str, bool, bytes, tuple, frozenset, type(None))


# Modules --------------------------------------------------------------------------------------------------------------


def sources_of_file(file: Path) -> Digests:
    """The digests of a module's file and of all that it imports from its own package or folder, by name."""
    file = file.resolve()
    root = _root(file)
    own = root / file.relative_to(root).parts[0] if root.name in INSTALLED else root
    found: Digests = {}
    todo = [file]
    while todo:
        path = todo.pop()
        name = path.relative_to(root).as_posix()
        if name not in found:
            content = path.read_bytes()
            found[name] = _digest(content)
            todo += [each for each in _imported(content, path, root) if each == own or own in each.parents]
    return dict(sorted(found.items()))


def _root(file: Path) -> Path:
    """The folder that the module's absolute name starts from."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _imported(content: bytes, file: Path, root: Path) -> Iterator[Path]:
    """Files below `root` that a module may import."""
    here = file.relative_to(root).parent.parts
    for name in _names(content, here):
        for depth in range(1, len(name) + 1):
            path = root.joinpath(*name[:depth])
            yield from (each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file())


def _names(content: bytes, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Dotted names in the import statements of a module, relative ones made absolute."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return  # whoever imports it will say so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            base = (*above, *(node.module.split(".") if node.module else ()))
            yield from ((*base, alias.name) for alias in node.names)


# Files ----------------------------------------------------------------------------------------------------------------


def digest_of_file(path: Path) -> str:
    """The digest of a file's bytes; remembered by path, size and time, so that an unchanged file is not read again."""
    try:
        path = path.expanduser().resolve()
        stat = path.stat()
        known = _remembered().get(str(path))
        if known is not None and known[:2] == [stat.st_size, stat.st_mtime_ns]:
            return str(known[2])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:LENGTH]
    except OSError:
        return "missing"
    if time.time() - stat.st_mtime > SETTLED:
        _remember(str(path), [stat.st_size, stat.st_mtime_ns, digest])
    return digest


def _remembered() -> dict[str, list[Any]]:
    try:
        held = json.loads((cache_dir() / "digests.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in held.items() if isinstance(v, list) and len(v) == 3} if isinstance(held, dict) else {}


def _remember(path: str, entry: list[Any]) -> None:
    with suppress(OSError):  # then it is read again next time
        cache_dir().mkdir(parents=True, exist_ok=True)
        write_text(cache_dir() / "digests.json", json.dumps(_remembered() | {path: entry}))


# Objects --------------------------------------------------------------------------------------------------------------


def source_of_object(thing: Any) -> Digests:
    """The digests behind a class or function: its file with what that imports, or its part of a notebook or script."""
    thing = getattr(thing, "made_from", thing)
    module = sys.modules.get(getattr(thing, "__module__", ""))
    file = getattr(module, "__file__", None)
    if file is not None and thing.__module__ != "__main__":
        return sources_of_file(Path(file))
    found: Digests = {}
    _collect(thing, vars(module) if module else {}, found)
    return dict(sorted(found.items()))


def _collect(thing: Any, names: dict[str, Any], found: Digests) -> None:
    """A notebook's class or function, and what it uses of the notebook."""
    name = thing.__qualname__
    if name in found:
        return
    try:
        text = _text(thing)
    except (OSError, TypeError, SyntaxError):
        raise UsageError(
            f"the source of {name} is not to be had, so nobody could tell later which code made the run: define it in "
            "a file and import it"
        ) from None
    found[name] = _digest(text.encode())
    for used in sorted({node.id for node in ast.walk(ast.parse(dedent(text))) if isinstance(node, ast.Name)}):
        value = names.get(used)
        if isinstance(value, ModuleType):
            file = getattr(value, "__file__", None)
            if file and _is_own(Path(file)):
                found |= sources_of_file(Path(file))
        elif isinstance(value, type | FunctionType):
            if value.__module__ == thing.__module__:
                _collect(value, names, found)
            elif _is_own_module(value.__module__):
                found |= source_of_object(value)
        elif used in names and isinstance(value, PLAIN):
            found[used] = _digest(repr(value).encode())


def _text(thing: Any) -> str:
    """The source of a class or function; before Python 3.13, a notebook's classes are found by their methods."""
    if not isinstance(thing, type) or thing.__module__ != "__main__":
        return inspect.getsource(thing)
    own = [f.__code__ for f in vars(thing).values() if isinstance(f, FunctionType)]
    for code in own:
        lines = linecache.getlines(code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == thing.__name__ and node.end_lineno is not None:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if first <= code.co_firstlineno <= node.end_lineno:
                    return "".join(lines[first - 1 : node.end_lineno])
    return inspect.getsource(thing)


def _is_own_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and _is_own(Path(file))


def _is_own(file: Path) -> bool:
    """Whether a file is the user's, not of Python, of an installed package or of this one."""
    strangers = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1])
    return not any(part in INSTALLED for part in file.parts) and not any(place in file.parents for place in strangers)


def stale(things: Iterable[Any]) -> list[str]:
    """Files that were changed after this process had imported these classes from them: what runs is the old code."""
    found = []
    for thing in things:
        file = getattr(sys.modules.get(thing.__module__), "__file__", None)
        if file is None or thing.__module__ == "__main__" or not Path(file).is_file():
            continue
        try:
            now = set(_codes(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)))
        except (SyntaxError, ValueError):
            found.append(file)
            continue
        functions = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
        own = [f.__code__ for f in functions if isinstance(f, FunctionType) and f.__code__.co_filename == file]
        if any(code not in now for code in own):
            found.append(file)
    return found


def _codes(code: Any) -> Iterator[Any]:
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_consts"):
            yield from _codes(constant)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]
