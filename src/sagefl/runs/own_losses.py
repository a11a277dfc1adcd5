"""A user's own loss by name: `file.py:function`, or a function of this session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UsageError
from ..reading import watched
from ..references import load
from ..selection.own_loss import OwnLoss

LOSSES: dict[str, Callable[[Any, Any], Any]] = {}
"""Functions that a notebook or script has handed over, by name and digest."""


def own_loss(name: str, most: float) -> OwnLoss:
    """The loss of this name, whose values are at most `most`."""
    with watched(f"loss {name}"):
        found = LOSSES[name] if name in LOSSES else load("data.loss", name)
    if not callable(found):
        raise UsageError(f"data.loss {name} is a {type(found).__name__}; expected a function (predictions, targets)")
    return OwnLoss(name, found, most)
