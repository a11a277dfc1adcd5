"""SAGE-E-trim: trimmed gossip. Drop the peers certified worse than a random draw, draw among the rest.

Committing to the best peer erodes diversity over long runs whatever the evidence; the dual use of the same e-process
keeps the draw random. The wealth is run on -Y, so with the same threshold d/delta the probability of ever dropping a
peer that is not worse than the mean is at most delta. Its promise concerns the mean risk of the survivors, which is
then at most R_RG; it assumes of the anchors what `sagefl.selection.betting` does.

The predictive stop asks whether dropping the next candidate is expected to pay: dropping peer j from s survivors
lowers their mean risk by (R_j - their mean)/(s - 1), which is at least (R_j - R_RG)/(s - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .betting_selector import ALIKE, BettingSelector, Evidence
from .outcome import Exchange, Reason, Stage, State
from .predictive import Bet
from .selector import Draws, Hood


@dataclass(frozen=True)
class SageETrim(BettingSelector):
    """A uniform draw among the peers not certified to be worse than gossip.

    Its reason `certified` means that somebody was dropped: the certificate is about those, and on the average about
    the rest. Nothing is proven about the one that was drawn.
    """

    id: ClassVar[str] = "sage-e-trim"
    summary: ClassVar[str] = "drop peers certified worse than a random draw, draw among the rest"
    test: ClassVar[str] = "trim"

    def no_evidence(self, degree: int) -> Evidence:
        """Bets that peers are worse than a random draw."""
        return Evidence(degree, self.delta, sign=-1)

    def settled(self, seen: Evidence) -> bool:
        """Whether a single peer is left."""
        return len(seen.proven()) >= seen.degree - 1

    def survivors(self, seen: Evidence) -> list[int]:
        """Peers never certified worse. Should all be (only possible in error), the least suspicious stay."""
        dropped = set(seen.proven())
        if len(dropped) == seen.degree:
            now = seen.wealth.now
            return [int(j) for j in np.flatnonzero(now <= now.min() + ALIKE)]
        return [j for j in range(seen.degree) if j not in dropped]

    def candidate(self, seen: Evidence, rng: Draws) -> Bet:
        """The claim against the most suspicious survivor."""
        kept = self.survivors(seen)
        return seen.claim(seen.strongest(kept, rng), (seen.degree - 1) / seen.degree / (len(kept) - 1))

    def conclude(
        self, hood: Hood, seen: Evidence, why: Reason, trace: Sequence[Stage], state: State, rng: Draws
    ) -> Exchange:
        """A uniform draw among the survivors; certified if anybody was dropped."""
        kept = self.survivors(seen)
        peer = rng.pick([hood.peers[j] for j in kept], "gossip")
        if len(kept) < seen.degree:
            return Exchange.select(peer, Reason.CERTIFIED, trace)
        return Exchange.gossip(peer, Reason.COST if why is Reason.COST else Reason.EXHAUSTED, trace)
