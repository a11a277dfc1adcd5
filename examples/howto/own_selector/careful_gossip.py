"""A selector of one's own: a frozen dataclass of options with one generator method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sagefl import Draws, Exchange, Hood, Probe, Reason, Selector, Stage, option


@dataclass(frozen=True)
class BetterHalf(Selector):
    """Ask everybody about a few anchors, then draw among the better half."""

    id: ClassVar[str] = "better-half"
    summary: ClassVar[str] = "ask about a few anchors, draw among the better half"
    evidence: ClassVar[str] = "answers to anchor inputs"

    anchors: int = option(8, "anchors to ask about", ge=1)

    @property
    def reach(self) -> int:
        """The most anchors it ever asks about; what is recorded of a run reaches as far."""
        return self.anchors

    def decide(self, hood: Hood, state, rng: Draws):
        """Yield requests for evidence, return an exchange. No files, no network, no global randomness."""
        if not hood.peers:
            return Exchange.none()
        asked = min(self.anchors, hood.anchors)
        if asked == 0:
            return Exchange.gossip(rng.gossip(hood), Reason.NO_ANCHORS)
        losses = yield Probe(hood.peers, 0, asked)  # (peers x anchors), answered by whoever drives the decision
        risks = losses.mean(axis=1)
        half = np.argsort(risks, kind="stable")[: (len(risks) + 1) // 2]
        peer = hood.peers[rng.pick(half, "better-half")]
        trace = [Stage(asked, Reason.COMMITTED, risks=tuple(risks.tolist()))]
        return Exchange.select(peer, Reason.COMMITTED, trace)
