"""The errors a user can do something about: the command line prints them in one line, without a traceback."""

from __future__ import annotations


class SageflError(Exception):
    """Something a user can fix; the message says what was wrong, what was expected and what to do."""


class UsageError(SageflError, ValueError):
    """A value the user gave that does not fit: an option, a flag, a file."""
