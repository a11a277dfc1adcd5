"""What can go wrong with a study, as errors that the command line prints in one line."""

from __future__ import annotations

from ..errors import SageflError, UsageError


class StudyError(UsageError):
    """A study that cannot be planned, run or read; the message says what to do about it."""


class InterruptedStudyError(SageflError, RuntimeError):
    """The study was asked to stop; everything it has done is kept."""
