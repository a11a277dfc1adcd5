"""How true a method is to its paper, and which paper that is."""

from __future__ import annotations

import sys

ADAPTED, INSPIRED = "adapted", "inspired by"
"""The words in which a method says so, beside "as published" and "ours", which has no paper."""


def cited_by(module: str) -> str:
    """The paper that a module's docstring names: what stands in the paragraph before `Read:`; nothing without one."""
    source = sys.modules.get(module)
    paragraphs = ((source and source.__doc__) or "").split("\n\n")
    named = next((paragraph for paragraph in paragraphs if "Read:" in paragraph), "")
    return " ".join(named.partition("Read:")[0].split()).rstrip(".")
