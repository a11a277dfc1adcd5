"""Options written as text: ``name=value``, on the command line and in method specs."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

__all__ = ["nested", "parse_options", "parse_value"]


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """``["delta=.05", "ties=lowest-index"]`` as keyword options."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"options are written name=value, got {pair!r}")
        options[name.strip().replace("-", "_")] = parse_value(text.strip())
    return options


def parse_value(text: str) -> Any:
    """A number, tuple, boolean or, failing that, the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def nested(options: dict[str, Any]) -> dict[str, Any]:
    """``{"training.max_batches": 8}`` as ``{"training": {"max_batches": 8}}``."""
    result: dict[str, Any] = {}
    for path, value in options.items():
        *sections, name = path.split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return result
