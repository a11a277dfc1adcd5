"""Selectors by id.

A class with an `id` registers itself when its module is imported. Built-in selectors are the modules of this package;
third parties name theirs in the entry-point group ``sagefl.selectors``, so a new selector is one file anywhere.
"""

from __future__ import annotations

import difflib
import pkgutil
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .selector import Selector

__all__ = ["ENTRY_POINTS", "discover", "make", "nearest", "selector", "selectors"]

ENTRY_POINTS = "sagefl.selectors"


def discover(package: str, base: type[Any], registered: dict[str, type[Any]], group: str) -> None:
    """Import every module of a package, whose classes register themselves, then other people's entry points."""
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    for point in entry_points(group=group):
        try:
            _load(point, base, registered)
        except Exception as error:  # somebody else's broken package must not take the built-in ones away
            kind = base.__name__.lower()
            warnings.warn(f"{kind} {point.name!r} of {point.value} is left out: {error}", stacklevel=3)


def _load(point: EntryPoint, base: type[Any], registered: dict[str, type[Any]]) -> None:
    found = point.load()
    if not (isinstance(found, type) and issubclass(found, base)):
        raise TypeError(f"{found!r} is not a {base.__name__} class")
    if registered.setdefault(point.name, found) is not found:
        raise ValueError(f"the id is taken by {registered[point.name].__qualname__}")


@cache
def _discover() -> None:
    discover(__package__, Selector, Selector.registered, ENTRY_POINTS)


def selectors() -> dict[str, type[Selector]]:
    """Every known selector class by id, sorted."""
    _discover()
    return dict(sorted(Selector.registered.items()))


def selector(id: str) -> type[Selector]:
    """The selector class of an id."""
    known = selectors()
    if id not in known:
        raise ValueError(
            f"unknown selector {id!r}{nearest(id, known)}; known: {', '.join(known)}; a method that is more than a "
            "selector (`sagefl methods` lists them) is run by `sagefl run --method`"
        )
    return known[id]


def make(id: str, **options: Any) -> Selector:
    """A selector by id with options; unknown options name the nearest one."""
    cls = selector(id)
    for name in options:
        if name not in cls.options():
            choices = ", ".join(cls.options()) or "none"
            raise ValueError(f"{id} has no option {name!r}{nearest(name, cls.options())}; options: {choices}")
    return cls(**options)


def nearest(word: str, words: Any) -> str:
    """``, did you mean X?`` where something close exists, else nothing."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
