"""Local training in two phases: one part of the model moves while the other is frozen, then the other way round.

PFedDST (Fan et al. 2025) trains the shared body first, the head after it; others start with the head.
"""

from __future__ import annotations

from typing import Literal

from .training import Local, LocalTraining

__all__ = ["Alternating"]


class Alternating(LocalTraining):
    """The first half of an epoch's batches moves one part, the second half the other; moments stay with their part.

    With an odd number of batches the first part gets the one in the middle. A client whose epoch is a single batch
    trains one part in even rounds and the other in odd ones, or one of them would never train.
    """

    def __init__(self, first: Literal["body", "head"] = "body") -> None:
        self.first = first

    def columns(self, local: Local) -> slice:
        """The part whose turn it is."""
        opening = local.round % 2 == 0 if local.batches == 1 else 2 * local.batch < local.batches
        body = opening == (self.first == "body")
        return local.layout.shared if body else slice(local.layout.shared_stop, None)
