"""Which of the runs' methods are not quite their papers', and why; `sagefl.methods` knows it at the price of torch.

The rules of `sagefl.selection` are asked first, so that a page without methods of another kind starts as fast as ever.
"""

from __future__ import annotations

from typing import Any

from ..selection.fidelity import ADAPTED, INSPIRED
from ..selection.registry import selectors


def marked(label: str) -> dict[str, Any]:
    """What a method's entry says of itself if it is adapted or only inspired by its paper; nothing otherwise."""
    said = _said(label.partition(":")[0])
    return {"fidelity": said} if said.partition(":")[0] in (ADAPTED, INSPIRED) else {}


def _said(id: str) -> str:
    rule = selectors().get(id)
    if rule is not None:
        return rule.fidelity
    from ..methods.fidelity import fidelity_of

    return fidelity_of(id)
