"""Options written as text: `name=value`, on the command line and in method specs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import UsageError

ALIASES = {"lambda": "probe_cost"}  # the paper's letter is a keyword in Python, so no option can have that name


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """`["delta=.05", "ties=lowest-index"]` as keyword options."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"options are written name=value, got {pair!r}")
        options[option_name(name)] = parse_value(text.strip())
    return options


def parse_method(spec: str) -> tuple[str, dict[str, Any]]:
    """`sage-os:probe_cost=0:radius=tight` as an id and its options; an id may be `file.py:Class`."""
    id, *options = spec.split(":")
    if options and options[0].strip().isidentifier():  # an option has a value
        id = f"{id.strip()}:{options.pop(0).strip()}"
    return id.strip(), parse_options(options)


def option_name(text: str) -> str:
    """The name of an option, however people write it: `anchor-order`, `lambda`, `method.options.lambda`."""
    section, dot, name = text.strip().replace("-", "_").rpartition(".")
    return f"{section}{dot}{ALIASES.get(name, name)}"


def parse_value(text: str) -> Any:
    """A number, tuple, boolean or, failing that, the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def split_list(text: str) -> list[str]:
    """`"a,b:schedule=(16,32)"` split at its commas, except those inside brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


MOST = 10_000  # numbers in a range: beyond it is a slip of the hand


def number_list(flag: str, text: str) -> list[int]:
    """`1-5` or `1,4,9` as whole numbers."""
    first, dash, last = text.partition("-")
    if dash and first.strip().isdigit() and last.strip().isdigit() and int(first) <= int(last):
        if (many := int(last) - int(first) + 1) > MOST:
            raise UsageError(f"{flag} {text} are {many:,} numbers, more than {MOST:,}")
        return list(range(int(first), int(last) + 1))
    try:
        found = [int(part) for part in split_list(text)]
    except ValueError:
        found = []
    if not found:
        raise UsageError(f"{flag} takes whole numbers as 1-5 or 1,4,9, got {text!r}")
    return found


def nested(options: dict[str, Any]) -> dict[str, Any]:
    """`{"training.max_batches": 8}` as `{"training": {"max_batches": 8}}`."""
    result: dict[str, Any] = {}
    for path, value in options.items():
        *sections, name = path.split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise UsageError(
                    f"{section!r} has a value already, so {path!r} cannot be set as well: drop one of them"
                )
        inner[name] = value
    return result


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The inverse of `nested`: every value of nested sections under its dotted name."""
    found: dict[str, Any] = {}
    for name, inner in document.items():
        found |= flat(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else {f"{prefix}{name}": inner}
    return found
