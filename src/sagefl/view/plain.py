"""Values as compact JSON for a browser: no NaN, limited digits, safe inside a script element."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np


def plain(value: Any, digits: int | None = None) -> Any:
    """NumPy values and tuples as JSON values, NaN and infinity as None, floats with `digits` significant digits."""
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
    """A column of numbers for a chart."""
    return [plain(v, digits) for v in values]


def text(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def embedded(value: Any) -> str:
    """JSON for the inside of a script element, which it can neither end nor nest."""
    return text(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
