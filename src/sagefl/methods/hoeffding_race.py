"""Hoeffding race: successive elimination of neighbours on a growing number of anchors.

O. Maron, A. W. Moore. Hoeffding Races: Accelerating Model Selection Search for Classification and Function
Approximation. NIPS 1993. E. Even-Dar, S. Mannor, Y. Mansour. Action Elimination and Stopping Conditions for the
Multi-Armed Bandit and Reinforcement Learning Problems. JMLR 7, 2006.

Established. Every candidate's mean loss has a Hoeffding interval; a candidate whose interval lies wholly above that of
the best one drops out, and evaluations are spent on the others only. Since d shrinks, so does the price of a stage.

Ours. Candidates are the active neighbours, evaluations are probes on the nested anchor schedule. Radius: with d
neighbours at the start, L stages and losses in [0, M], r(m) = M sqrt(log(2 d L / delta) / (2 m)), the SAGE paper's
eq:radius: a union bound over all d that started, not over those still racing, and over L looks, in place of
Even-Dar's sum over all sample sizes. A peer drops out when its risk exceeds the lowest by more than 2r. Certificate:
with probability at least 1 - delta all d L intervals hold; then the best neighbour never drops out, every one that
does is truly worse, and a sole survivor is the best. That is Vanilla SAGE's certificate at a lower price, and it says
nothing about gossip. With several left when the anchors are used up, ``finish="gossip"`` draws one of the survivors
(RG's own draw if nobody dropped out) and ``finish="commit"`` takes the lowest risk; neither carries the certificate.
A single neighbour is taken unasked. Anchors are reused over rounds, so like every guarantee per round it is
approximate after the first.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.hoeffding_race import HoeffdingRaceRule
from .base import Method

__all__ = ["HoeffdingRace"]


class HoeffdingRace(Method):
    """Drop peers that are certainly not the best, probe only the rest."""

    id: ClassVar[str] = "hoeffding-race"
    rule = HoeffdingRaceRule
    citation: ClassVar[str] = (
        "O. Maron, A. W. Moore. Hoeffding Races. NIPS 1993; E. Even-Dar, S. Mannor, Y. Mansour. Action Elimination and "
        "Stopping Conditions for the Multi-Armed Bandit and Reinforcement Learning Problems. JMLR 2006"
    )
    evidence: ClassVar[str] = "answers to anchor inputs, from the neighbours still racing"
    communication: ClassVar[str] = "1 / 1"
