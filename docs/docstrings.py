"""Docstrings as Markdown: doctests and reStructuredText tables, which plain docstrings use, become code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

TABLE = re.compile(r"^=+(?: +=+)+\n.*?^=+(?: +=+)+$(?!\n\S)", re.M | re.S)
DOCTEST = re.compile(r"(?:^ *>>> .*\n?)(?:^ *\S.*\n?)*", re.M)


class Plain(griffe.Extension):
    """Applied to every object before its docstring is rendered."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fence what Markdown would take for something else."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its tables and doctests in fences."""
    text = TABLE.sub(lambda found: f"```text\n{found[0]}\n```", text)
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
