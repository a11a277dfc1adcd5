"""The errors a user can do something about: the command line prints them in one line, without a traceback."""

from __future__ import annotations


class SageflError(Exception):
    """Something a user can fix; the message says what was wrong, what was expected and what to do."""


class UsageError(SageflError, ValueError):
    """A value the user gave that does not fit: an option, a flag, a file."""


def said(error: BaseException) -> str:
    """What an error says, for a sentence around it: ours as they are, of others the kind as well."""
    return str(error) if isinstance(error, SageflError) else f"{type(error).__name__}: {error}"
