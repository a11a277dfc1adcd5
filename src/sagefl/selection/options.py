"""Options of rules and methods: dataclass fields that say what they are, checked in one place.

The annotation says which values there are: `int` (a whole number), `float` (a finite number), `bool`, a `Literal` of a
few words, or `tuple[int, ...]`. `option` adds the help text and the bounds. `check_options` holds a dataclass to both;
an annotation it does not know is left to the class itself.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import Any, Literal, TypedDict, Unpack, cast, get_args, get_origin, get_type_hints

import numpy as np

from ..errors import UsageError


class Bounds(TypedDict, total=False):
    """What a number must be: greater than, greater or equal, less than, less or equal."""

    gt: float
    ge: float
    lt: float
    le: float


Words = Callable[[], Iterable[str]]
PHRASES = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def option(default: Any, help: str, *, symbol: str = "", choices: Words | None = None, **bounds: Unpack[Bounds]) -> Any:
    """A documented option: a dataclass field with a default, a help text and bounds (`gt`, `ge`, `lt`, `le`).

    The command line, `sagefl methods` and the documentation add the bounds to the help text, or the words of a
    `Literal`, and begin it with the `symbol` that the paper uses. `choices` gives the words of an option whose words
    are not all known here, because packages may add some.
    """
    declared = {"help": help, "symbol": symbol, "choices": choices, "bounds": bounds}
    return dataclasses.field(default=default, metadata=declared)


def check_options(options: Any) -> None:
    """Refuse a dataclass in which an option is not what it was declared to be."""
    kinds = _kinds(type(options))
    for f in dataclasses.fields(options):
        if f.name in kinds:
            name = f"{f.name} ({symbol})" if (symbol := f.metadata.get("symbol")) else f.name
            value = check(name, getattr(options, f.name), kinds[f.name], **f.metadata.get("bounds", {}))
            object.__setattr__(options, f.name, value)


def check(name: str, value: Any, kind: Any, **bounds: Unpack[Bounds]) -> Any:
    """The value as an option of this kind holds it; if it cannot be one, an error says what was expected."""
    limits = cast(Mapping[str, float], bounds)
    if get_origin(kind) is Literal:
        words = get_args(kind)
        value = "none" if value is None and "none" in words else value  # command lines and TOML read it as None
        fits, expected = type(value) in map(type, words) and value in words, f"one of {_listed(words)}"
    elif kind is bool:
        fits, expected = isinstance(value, bool), "true or false"
    elif kind is int:
        fits, expected = _is_whole(value, limits), f"a whole number{_range(limits, ' of')}"
    elif kind is float:
        noun = "number" if len(limits) > 1 else "finite number"
        fits, expected = _is_number(value, limits), f"a {noun}{_range(limits, ' of')}"
    elif kind == tuple[int, ...]:
        items = tuple(value) if isinstance(value, Iterable) else (value,)
        fits = bool(items) and all(_is_whole(item, limits) for item in items)
        expected = f"one or more whole numbers{_range(limits, ' of')}"
        value = tuple(map(int, items)) if fits else value
    else:
        return value
    if not fits:
        raise UsageError(f"{name} must be {expected}, got {value!r}")
    return value


def choices(options: type[Any]) -> dict[str, tuple[Any, ...]]:
    """The values of those options that have a fixed few, by name."""
    return {name: get_args(kind) for name, kind in _kinds(options).items() if get_origin(kind) is Literal}


def help_texts(options: type[Any]) -> dict[str, str]:
    """The help of every option by name: its symbol, its help text, then its choices or bounds."""
    few, texts = choices(options), {}
    for f in dataclasses.fields(options):
        symbol, bounds = f.metadata.get("symbol"), f.metadata.get("bounds", {})
        text = f"{symbol}: " if symbol else ""
        text += f.metadata.get("help", "")
        if f.name in few:
            text += f"; one of {_listed(few[f.name])}"
        if bounds:
            text += f";{' each' if isinstance(f.default, tuple) else ''}{_range(bounds)}"
        texts[f.name] = text
    return texts


def _kinds(options: type[Any]) -> dict[str, Any]:
    """What every option of a class is: its annotation, or a `Literal` of its present choices."""
    try:
        hints = get_type_hints(options)
    except NameError:  # somebody else's annotation that only a type checker can read
        return {}
    open_words = {f.name: f.metadata.get("choices") for f in dataclasses.fields(options)}
    return {name: Literal[tuple(words())] if words else hints[name] for name, words in open_words.items()}


def _is_number(value: Any, bounds: Mapping[str, float]) -> bool:
    return not isinstance(value, bool | np.bool_) and isinstance(value, Real) and isfinite(value) and _in(value, bounds)


def _is_whole(value: Any, bounds: Mapping[str, float]) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | np.integer) and _in(value, bounds)


def _in(value: Any, bounds: Mapping[str, float]) -> bool:
    return all(getattr(operator, name)(value, bound) for name, bound in bounds.items())


def _range(bounds: Mapping[str, float], of: str = "") -> str:
    """The bounds in words, after a space: ` from 0 to 1`, ` at least 1` (within a sentence ` of at least 1`)."""
    if bounds.keys() == {"gt", "lt"}:
        return f" strictly between {bounds['gt']:g} and {bounds['lt']:g}"
    if bounds.keys() == {"ge", "le"}:
        return f" from {bounds['ge']:g} to {bounds['le']:g}"
    text = " and".join(f" {PHRASES[name]} {bound:g}" for name, bound in bounds.items())
    return f"{of}{text}" if text.startswith(" at") else text


def _listed(words: Iterable[Any]) -> str:
    return ", ".join(map(str, words))
