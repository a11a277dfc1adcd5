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
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import resolve_name
from itertools import product
from pathlib import Path
from symtable import symtable
from types import FunctionType, ModuleType
from typing import Any

from ..data.places import cache_dir
from ..errors import UsageError
from ..references import found_otherwise, search_path
from .files import write_text

Digests = dict[str, str]
LENGTH = 16
MISSING = "missing"  # instead of a digest; never taken for equal to another
SETTLED = 2.0  # seconds; a file that was changed a moment ago may change again within one tick of its clock
INSTALLED = ("site-packages", "dist-packages")
PLAIN = (int, float, complex, str, bytes, type(None))


# Modules --------------------------------------------------------------------------------------------------------------


def sources_of_file(file: Path, places: Iterable[str]) -> Digests:
    """The digests of a module's file and of all that it imports of its package, its folder and the user's, by name.

    `places` are the folders it imports from beside its own. Where a name is found in several all of them count: which
    one is imported depends on what was imported before.
    """
    found: Digests = {}
    loaded: list[tuple[ModuleType, bytes]] = []
    for path, name, content in _modules(file, places):
        found[path.as_posix() if name in found else name] = digest = _digest(content)
        module = sys.modules.get(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        origin = getattr(module, "__file__", None)
        if module is not None and origin is not None and Path(origin).resolve() == path:
            _refuse_outdated(path, module, digest)
            loaded.append((module, content))
    for module, content in loaded if _reloaded else ():
        _refuse_old_names(module, content)
    return dict(sorted(found.items()))


_looked_at: dict[Path, tuple[Any, str]] = {}  # a loaded module's spec, which a reload replaces, and its file's digest
_reloaded: set[str] = set()  # names of modules that were loaded again since they were first looked at


def _refuse_outdated(path: Path, module: ModuleType, digest: str) -> None:
    """Refuse a file that was edited since it was looked at here, if what was imported from it is still the old code."""
    spec = getattr(module, "__spec__", None)
    held, then = _looked_at.get(path, (spec, digest))
    if held is not spec:
        _reloaded.add(module.__name__)
    elif then != digest:
        raise UsageError(outdated([str(path)]))
    _looked_at[path] = spec, digest


def _refuse_old_names(module: ModuleType, content: bytes) -> None:
    """Refuse a module that has names of another one from before that was loaded again."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.ImportFrom) and (module.__package__ or not node.level):
            name = resolve_name("." * node.level + (node.module or ""), module.__package__)
            now = vars(sys.modules[name]) if name in _reloaded & sys.modules.keys() else {}
            for alias in (each for each in node.names if each.name in now):
                there = now[alias.name]
                held = vars(module).get(alias.asname or alias.name, there)
                if held is not there and not (isinstance(held, PLAIN) and held == there):
                    raise UsageError(
                        f"{module.__file__} has {alias.name} from before {name} was loaded again, so the old one would "
                        "be used: restart Python or the kernel, or importlib.reload it, too"
                    )


def outdated(files: Iterable[str]) -> str:
    """What is said of files that are not what runs."""
    return (
        f"{', '.join(files)} was changed after it had been imported, so the old code would run: restart Python or the "
        "kernel, or importlib.reload it"
    )


def libraries_of_file(file: Path, places: Iterable[str]) -> set[str]:
    """What a module, and those of the user's that it imports, import of other people's, by up to two names."""
    folders = _folders(file.resolve(), places)
    found: set[str] = set()
    for _, _, content in _modules(file, places):
        names = {name for name, relative in _names(content, ()) if not relative}
        found |= {".".join(name[:2]) for name in names if not any(_is_there(f / name[0]) for f in folders)}
    return found


def _modules(file: Path, places: Iterable[str]) -> Iterator[tuple[Path, str, bytes]]:
    """A module's file and those it imports, each with a name that stays the same when the folder moves."""
    file = file.resolve()
    root, *beside = _folders(file, places)
    own = root / file.relative_to(root).parts[0] if root.name in INSTALLED else root
    seen: set[Path] = set()
    todo = [(file, root)]
    while todo:
        path, place = todo.pop(0)
        if path not in seen:
            seen.add(path)
            content = path.read_bytes()
            yield path, path.relative_to(root if root in path.parents else place).as_posix(), content
            for found, there in _imported(content, path, place, [root, *beside]):
                if found == own or own in found.parents or (there != root and _is_own(found)):
                    todo.append((found, there))


def _folders(file: Path, places: Iterable[str]) -> list[Path]:
    """Where a module's imports are looked for: in its own root, and of a user's module in the user's other folders."""
    root = _root(file)
    if root.name in INSTALLED:
        return [root]
    folders = dict.fromkeys(Path(place).resolve() for place in places)
    return [root, *(folder for folder in folders if folder != root and _is_own(folder / "any"))]


def _root(file: Path) -> Path:
    """The folder that the module's absolute name starts from."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _imported(content: bytes, file: Path, place: Path, places: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Files that a module found in `place` may import, each with the place it is found in."""
    here = file.relative_to(place).parent.parts
    for name, relative in _names(content, here):
        if name[:1] == ("sagefl",):
            continue  # known by its results versions
        candidates = [(root, name) for root in ((place,) if relative else places)]
        if not relative and not any(_is_there(root / name[0]) for root in places):
            candidates += _mapped(name)
        for (root, parts), depth in product(candidates, range(1, len(name) + 1)):
            path = root.joinpath(*parts[:depth])
            yield from ((each, root) for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file())


def _is_there(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def _mapped(name: tuple[str, ...]) -> list[tuple[Path, tuple[str, ...]]]:
    """Where a finder has the package of a dotted name, and the name that it has in this place."""
    if (found := found_otherwise(name[0])) is None:
        return []
    places = [Path(each) for each in found.submodule_search_locations or (found.origin or "",)]
    return [(place.parent, (place.stem, *name[1:])) for place in places]


def _names(content: bytes, here: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Dotted names in the import statements of a module, and whether they were relative; these made absolute."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return  # whoever imports it will say so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((tuple(alias.name.split(".")), False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            base = (*above, *(node.module.split(".") if node.module else ()))
            yield from (((*base, alias.name), node.level > 0) for alias in node.names)


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
        return MISSING
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
    if _noted is None:
        return _Behind(thing).digests
    if id(thing) not in _noted:
        _noted[id(thing)] = thing, _Behind(thing).digests
    return _noted[id(thing)][1]


@contextmanager
def noted_once() -> Iterator[None]:
    """Inside, what is behind a class or function is looked at once, before anything runs that may change it."""
    global _noted
    before, _noted = _noted, {} if _noted is None else _noted
    try:
        yield
    finally:
        _noted = before


_noted: dict[int, tuple[Any, Digests]] | None = None  # by id; things are held, so that no other gets theirs


class _Behind:
    """What a class or function consists of: sources, and what the names stand for now that it uses of a notebook."""

    def __init__(self, thing: Any) -> None:
        self.found: Digests = {}
        self.seen: dict[int, Any] = {}  # by id; held, so that no other gets theirs
        if isinstance(thing, partial):
            self._note("arguments", thing)
        else:
            self._source(thing)

    @property
    def digests(self) -> Digests:
        return dict(sorted(self.found.items()))

    def _source(self, thing: Any) -> None:
        if id(thing) in self.seen:
            return
        self.seen[id(thing)] = thing
        module = sys.modules.get(getattr(thing, "__module__", ""))
        file = getattr(module, "__file__", None)
        if file is not None and thing.__module__ != "__main__":
            self.found |= sources_of_file(Path(file), search_path())
            if thing.__module__ in _reloaded and stale([thing]):
                raise UsageError(
                    f"{thing.__qualname__} is from before {thing.__module__} was loaded again: import it again"
                )
            if "<locals>" in thing.__qualname__:
                self._held(thing)
            return
        try:
            text = _text(thing)
            used = _names_used(thing, text)
        except (OSError, TypeError, SyntaxError):
            raise UsageError(
                f"the source of {thing.__qualname__} cannot be found, so nobody could tell later which code made the "
                "run: define it in a file and import it"
            ) from None
        self._add(thing.__qualname__, _digest(text.encode()))
        names = vars(module) if module else {}
        for name in used:
            if name in names:
                self._note(name, names[name])
        self._held(thing)

    def _held(self, thing: Any) -> None:
        """What a class or function carries that is not in its source: variables around it, attributes set later."""
        values = vars(thing) if isinstance(thing, type) else {"": thing}
        for name, value in values.items():
            function = getattr(value, "fget", getattr(value, "__func__", value))
            if isinstance(function, FunctionType):
                if isinstance(thing, type) and not function.__qualname__.startswith(f"{thing.__qualname__}."):
                    self._note(f"{thing.__qualname__}.{name}", function)
                for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                    with suppress(ValueError):  # a cell may be empty
                        if not free.startswith("__"):
                            self._note(free, cell.cell_contents)
            elif not name.startswith("_"):
                self._note(f"{thing.__qualname__}.{name}", value)

    def _note(self, name: str, value: Any) -> None:
        if (words := self._words(value)) is not None:
            self._add(name, _digest(words.encode()))

    def _add(self, name: str, digest: str) -> None:
        self.found[name] = digest if name not in self.found else _digest(f"{self.found[name]} {digest}".encode())

    def _words(self, value: Any) -> str | None:
        """What a value is, in words that are the same in another process; None if other parts say it."""
        if isinstance(value, PLAIN):
            return repr(value)
        if isinstance(value, ModuleType):
            file = getattr(value, "__file__", None)
            if file and _is_own(Path(file)):
                self.found |= sources_of_file(Path(file), search_path())
            return None
        if isinstance(value, type | FunctionType):
            if value.__module__ == "__main__" or _is_own_module(value.__module__):
                self._source(value)
            return f"{value.__module__}.{value.__qualname__}"
        if id(value) in self.seen:
            return "seen"
        self.seen[id(value)] = value
        if isinstance(value, tuple | list):
            return f"{type(value).__name__}({', '.join(str(self._words(each)) for each in value)})"
        if isinstance(value, set | frozenset):
            return f"set({', '.join(sorted(str(self._words(each)) for each in value))})"
        if isinstance(value, dict):
            return f"dict({', '.join(f'{self._words(k)}: {self._words(v)}' for k, v in value.items())})"
        return self._object(value)

    def _object(self, value: Any) -> str:
        """Any other object by what it would be pickled as; one that cannot be, by its type."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        try:
            if hasattr(value, "detach"):  # a tensor, whose own way is not the same twice
                held = value.detach().cpu().contiguous()
                content = held.reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes()
                return f"{kind} {held.dtype} {tuple(held.shape)} {_digest(content)}"
            parts = value.__reduce_ex__(4)
            if isinstance(parts, str):
                return f"{kind} {parts}"
            self._words(type(value))
            made, given, state, *items = (*parts, *[None] * 5)[:5]
            inner = [given, state, *(None if each is None else list(each) for each in items)]
            return f"{kind} {getattr(made, '__qualname__', '')} {', '.join(str(self._words(each)) for each in inner)}"
        except Exception:  # whatever a user's object raises
            return kind


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


def _names_used(thing: Any, text: str) -> list[str]:
    """The names that a class or function looks up outside itself."""
    if getattr(thing, "__name__", "") == "<lambda>":  # its text is that of the lines it stands in
        found = {name for code in _codes(thing.__code__) for name in code.co_names}
    else:
        whole = f"if True:\n{text}" if text[:1].isspace() else text
        tables = [symtable(whole, "source", "exec")]
        for table in tables:
            tables += table.get_children()
        symbols = [each for table in tables for each in table.get_symbols()]
        found = {each.get_name() for each in symbols if each.is_global() and each.is_referenced()}
    return sorted(found)


def _is_own_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and _is_own(Path(file))


def _is_own(file: Path) -> bool:
    """Whether a file is the user's, not of Python, of an installed package or of this one."""
    return not any(part in INSTALLED for part in file.parts) and not any(
        place in file.parents for place in _strangers()
    )


@cache
def _strangers() -> tuple[Path, ...]:
    kinds = ("stdlib", "platstdlib", "scripts")
    return (Path(__file__).parents[1], *(Path(sysconfig.get_path(kind)).resolve() for kind in kinds))


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
