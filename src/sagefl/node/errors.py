"""What can go wrong in a node: mistakes that its operator can fix, and faults of its neighbours."""

from __future__ import annotations

import logging
import os

from ..errors import SageflError

logger = logging.getLogger(__name__)


class NodeError(SageflError, RuntimeError):
    """A node cannot start or continue; the message says what to do."""


def need_posix() -> None:
    """Refuse to go on where a node's signals and its key's file permissions mean something else, or nothing."""
    if os.name != "posix":
        raise NodeError(
            f"nodes need signals and file permissions as Linux and macOS have them, not as this system ({os.name}): "
            "run nodes in a container or in WSL; decisions, the simulator and the page work here"
        )


class Fault(Exception):  # noqa: N818 (a neighbour's, not ours)
    """A neighbour did not answer, or answered something that must not be used.

    `kind` is counted and logged (`no-answer`, `wrong-digest`, `not-finite` ...); faults never end a node.
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """What went wrong with a neighbour, as its fault: it costs the neighbour its place, not this node its life.

        What nobody foresaw may also be a mistake of ours: its traceback is logged.
        """
        if isinstance(error, Fault):
            return error
        logger.info("not foreseen of a neighbour", exc_info=error)
        return cls("unexpected", f"{type(error).__name__}: {error}")

    @property
    def slow(self) -> bool:
        """Whether it cost this node time."""
        return self.kind in ("no-answer", "too-slow")
