"""Epidemic Learning: every round each node sends its model to s others drawn anew.

M. de Vos, S. Farhadkhani, R. Guerraoui, A.-M. Kermarrec, R. Pires, R. Sharma. Epidemic Learning: Boosting Decentralized
Learning with Randomized Communication. NeurIPS 2023. arXiv:2310.01972. Read: the abstract, a public review, and the
authors' code (sacs-epfl/decentralizepy, `EL_Local`).

Established. EL-Local: each round a node samples s of the n - 1 other nodes uniformly, independently of everybody else,
and sends its model; a node averages its own and all models that have arrived, however many they are, equally.
(EL-Oracle draws an s-regular graph instead, which takes somebody who draws it.)

Ours. Draws are among the active neighbours; on the complete graph (`topology.kind = complete`) that is the paper's
setting. Only the shared block is sent and averaged. s = 2. Traffic is counted in the sender's row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .options import option
from .outcome import Exchange, Reason, State
from .ranking import sample
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class EpidemicLearning(Selector):
    """Push to s uniform draws, again every round."""

    id: ClassVar[str] = "epidemic"
    summary: ClassVar[str] = "Send to s nodes drawn anew every round, average what arrives (EL-Local)."
    evidence: ClassVar[str] = "none"
    communication: ClassVar[str] = "s / s, pushed"
    pushes: ClassVar[bool] = True
    fidelity: ClassVar[str] = "adapted: draws are among neighbours (the paper: among all), heads stay local"

    s: int = option(2, "nodes that a node sends its model to each round", ge=1)

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Draw s and push."""
        yield from ()
        if not hood.peers:
            return Exchange.none()
        return Exchange(sample(hood.peers, self.s, rng), False, Reason.UNIFORM, direction="push")
