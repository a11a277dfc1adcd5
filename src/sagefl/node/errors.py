"""What can go wrong in a node: mistakes that its operator can fix, and faults of its neighbours."""

from __future__ import annotations

from ..errors import SageflError

__all__ = ["Fault", "NodeError"]


class NodeError(SageflError, RuntimeError):
    """A node cannot start or continue; the message says what to do."""


class Fault(Exception):  # noqa: N818 (a neighbour's, not ours)
    """A neighbour did not answer, or answered something that must not be used.

    `kind` is counted and logged (`no-answer`, `wrong-digest`, `not-finite` ...); faults never end a node.
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind

    @property
    def misbehaviour(self) -> bool:
        """Whether the neighbour gave a wrong answer, rather than none or a refusal."""
        return not self.kind.startswith("refused") and self.kind not in ("no-answer", "over-limit", "gone", "not-ready")
