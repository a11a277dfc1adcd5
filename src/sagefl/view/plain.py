"""Values as compact JSON that a browser reads: no NaN, no more digits than asked for, safe inside a script element."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np

__all__ = ["embedded", "numbers", "plain", "text"]


def plain(value: Any, digits: int | None = None) -> Any:
    """JSON values for NumPy's and tuples; None for numbers that JSON lacks; floats to `digits` significant digits."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    if isinstance(value, np.ndarray):
        return [plain(v, digits) for v in value.tolist()]
    if isinstance(value, list | tuple):
        return [plain(v, digits) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v, digits) for k, v in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def numbers(values: Iterable[Any], digits: int = 6) -> list[Any]:
    """A column for a chart."""
    return [plain(v, digits) for v in values]


def text(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def embedded(value: Any) -> str:
    """JSON to put inside a script element: nothing in it can close the element or open another."""
    return text(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
