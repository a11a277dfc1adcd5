"""What can go wrong with data: two exceptions that the command line prints without a traceback."""

from __future__ import annotations

from ..errors import SageflError


class DataError(SageflError, ValueError):
    """Data that cannot be used; the message says what was found, what was expected and what to do."""


class DataMissing(DataError):  # noqa: N818 (reads better where it is raised)
    """A known dataset whose files are not on this machine; the message names every way to get them."""
