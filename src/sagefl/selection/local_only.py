"""Local: no exchange at all. What a client reaches alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, State
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class LocalOnly(Selector):
    """Never exchanges."""

    id: ClassVar[str] = "local"
    summary: ClassVar[str] = "never exchanges: local training alone"
    fidelity: ClassVar[str] = "as published: the SAGE paper's baseline"
    evidence: ClassVar[str] = "none"
    communication: ClassVar[str] = "0 / 0"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Nothing to ask, nothing to take."""
        yield from ()
        return Exchange.none()
