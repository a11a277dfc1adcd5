"""Docstrings as Markdown: doctests and reStructuredText tables, which plain docstrings use, become code blocks.

Fields are explained by a comment on their line, or by what they are declared with (`audited("...")`); on the page that
is their docstring.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

TABLE = re.compile(r"^=+(?: +=+)+\n.*?^=+(?: +=+)+$(?!\n\S)", re.M | re.S)
COMMENT = re.compile(r"  # (?!type:|noqa|fmt:)(?P<text>[^\n]+)$")
DECLARED = re.compile(r' = audited\("(?P<text>[^\n]+)"\)$')
DOCTEST = re.compile(r"(?:^ *>>> .*\n?)(?:^ *\S.*\n?)*", re.M)


class Plain(griffe.Extension):
    """Applied to every object before its docstring is rendered."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fence what Markdown would take for something else, and give fields their comments."""
        if obj.docstring is None and obj.is_attribute:
            obj.docstring = commented(obj)
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def commented(field: griffe.Object) -> griffe.Docstring | None:
    """What a field's line says about it, if anything; what it is declared with says that its default is None."""
    line = field.source.splitlines()[-1] if field.source else ""
    if declared := DECLARED.search(line):
        field.value = "None"  # type: ignore[attr-defined]
    found = declared or COMMENT.search(line)
    return None if found is None else griffe.Docstring(found["text"], parent=field)


def fenced(text: str) -> str:
    """The text with its tables and doctests in fences."""
    text = TABLE.sub(lambda found: f"```text\n{found[0]}\n```", text)
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
