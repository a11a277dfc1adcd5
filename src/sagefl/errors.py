"""The root of the errors that are meant for people: the command line prints them without a traceback."""

from __future__ import annotations

__all__ = ["SageflError"]


class SageflError(Exception):
    """Something a user can mend; the message says what was wrong, what was expected and what to do."""
