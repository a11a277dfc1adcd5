"""The base of all errors that a user can fix; the command line prints them without a traceback."""

from __future__ import annotations

__all__ = ["SageflError"]


class SageflError(Exception):
    """Something a user can fix; the message says what was wrong, what was expected and what to do."""
