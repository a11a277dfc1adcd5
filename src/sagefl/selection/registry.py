"""Selectors by id.

A class with an `id` registers itself when its module is imported. Built-in selectors are the modules of this package;
third parties name theirs in the entry-point group `sagefl.selectors`, so a new selector is one file anywhere.
"""

from __future__ import annotations

import difflib
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from ..errors import UsageError
from ..reading import watched
from ..references import SELECTORS, installed, is_reference, load
from .selector import Selector

RECOMMENDED = "sage-m:outside=home"  # where choosing may pay; nodes try models anyhow, so theirs is plain sage-m
READS_AS = {"selector": "method", "dataset": "data"}  # what a run's config calls these kinds
Entry = TypeVar("Entry")
Built = TypeVar("Built")


def discover(package: str, base: type[Any], registered: dict[str, type[Any]], group: str) -> None:
    """Import every module of a package, whose classes register themselves, then other people's entry points."""

    def check(name: str, offered: Any) -> type[Any]:
        if not (isinstance(offered, type) and issubclass(offered, base)):
            raise TypeError(f"{offered!r} is not a {base.__name__} class")
        return offered

    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    add_entry_points(group, base.__name__.lower(), registered, check)


def add_entry_points(group: str, kind: str, registered: dict[str, Entry], check: Callable[[str, Any], Entry]) -> None:
    """Add what installed packages offer under the names of an entry-point group; what is broken only warns."""
    for point in installed(group):
        try:
            with watched(f"{READS_AS.get(kind, kind)} {point.name}", alone=True):
                offered = check(point.name, point.load())
            if (taken := registered.setdefault(point.name, offered)) is not offered:
                raise ValueError(f"the name is taken by {getattr(taken, '__qualname__', type(taken).__name__)}")
        except Exception as error:  # somebody else's broken package must not take the built-in ones away
            warnings.warn(f"{kind} {point.name!r} of {point.value} is left out: {error}", stacklevel=4)


@cache
def _discover() -> None:
    discover(__package__, Selector, Selector.registered, SELECTORS)


def selectors() -> dict[str, type[Selector]]:
    """Every known selector class by id, sorted."""
    _discover()
    return dict(sorted(Selector.registered.items()))


def selector(id: str) -> type[Selector]:
    """The selector class of an id."""
    known = selectors()
    if id not in known:
        raise UsageError(
            f"unknown selector {id!r}{nearest(id, known)}; known: {', '.join(known)}; a method that is more than a "
            "selector (`sagefl methods` lists them) is run by `sagefl run --method`"
        )
    return known[id]


def make(id: str, /, **options: Any) -> Selector:
    """A selector by id with options; unknown options name the nearest one."""
    return _with_options(id, selector(id), options)


def typed(id: str, options: Mapping[str, Any]) -> Selector:
    """The selector that somebody typed: an id, or `file.py:Class`, whose code is run: never for what a run recorded."""
    return _with_options(id, selector(id) if id in selectors() or not is_reference(id) else _referred(id), options)


def _referred(reference: str) -> type[Selector]:
    found = load("method", reference)
    if not (isinstance(found, type) and issubclass(found, Selector)):
        raise UsageError(f"{reference} is no Selector class; a whole method is run by `sagefl run --method`")
    return found


def _with_options(id: str, cls: type[Selector], options: Mapping[str, Any]) -> Selector:
    for name in options:
        if name not in cls.options():
            choices = ", ".join(cls.options()) or "none"
            raise UsageError(f"{id} has no option {name!r}{nearest(name, cls.options())}; options: {choices}")
    return build(cls, options)


def build(cls: Callable[..., Built], options: Mapping[str, Any]) -> Built:
    """`cls` with a user's options; a value that it refuses is the user's mistake, any other error is ours."""
    try:
        return cls(**options)
    except ValueError as error:
        if not options or isinstance(error, UsageError):
            raise
        raise UsageError(str(error)) from error


def nearest(word: str, words: Any) -> str:
    """`, did you mean X?` where something close exists, else nothing."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
