"""CFNS-lite: merge the neighbours whose data look most alike, judged by several noisy factors.

Guo et al. The method of "comprehensive factors for neighbor selection (CFNS)" for decentralised federated learning.
ACM 2024, pages 21-28 of its proceedings.

Established, from the abstract alone (the paper is not public, hence "-lite"). A client selects neighbours with similar
data distributions by considering several factors, helped by the graph; local differential privacy protects what
clients communicate.

Ours. Everything else. Factors: similarity of last layers, closeness of training losses, degree; weights 1, .1 and .1;
a neighbour's score is averaged over rounds (memory .8), which also averages the noise; the best k = 2 are merged. What
is read is perturbed by the analytic Gaussian mechanism at epsilon = 10, delta = 1e-5 per release (last layers scaled
to unit length, losses clipped at 5), degrees are public. Epsilon is per release and adds up: two releases per
neighbour and round. In the simulation the receiver adds the noise to what it reads; a real peer must do so before it
answers. The models that are merged are *not* perturbed, so this protects the selection only.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.cfns_lite import CfnsLiteRule
from .base import Method

__all__ = ["CfnsLite"]


class CfnsLite(Method):
    """Merge the neighbours most alike by privately released factors; read from the abstract."""

    id: ClassVar[str] = "cfns-lite"
    rule = CfnsLiteRule
    citation: ClassVar[str] = (
        "Guo et al. Comprehensive factors for neighbor selection (CFNS) for decentralised federated learning. "
        "ACM 2024 (abstract)"
    )
    evidence: ClassVar[str] = "neighbours' last layers and training losses with Gaussian noise, degrees"
    communication: ClassVar[str] = "k / k"
