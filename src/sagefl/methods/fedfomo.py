"""FedFomo: first-order weights, how much a peer's model lowers my validation loss per step towards it.

M. Zhang, K. Sapra, S. Fidler, S. Yeung, J. M. Alvarez. Personalized Federated Learning with First Order Model
Optimization. ICLR 2021. arXiv:2012.08565.

Established. Download M models, chosen epsilon-greedily by a running affinity (epsilon .3, shrinking by .05 a round, one
draw per download, in the authors' code); w_j = max(0, (L_val(theta_i) - L_val(theta_j)) / |theta_j - theta_i|),
normalised to sum to one; theta_i <- theta_i + sum_j w_j (theta_j - theta_i). The affinity adds up the weights before
clipping, so a harmful model sinks below one never tried.

Ours. There is no server: downloads come from neighbours. Validation is the anchor pool. The baseline L_val(theta_i) is
one's own model after local training (the authors' code also offers the one before, with the trained one as a
candidate). Losses are of full predictors, as published; distance and update concern the shared block, since heads
stay local. Models with weight zero are transferred but not merged; where all are zero the client keeps its own.
M = 3 is ours.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.fedfomo import FedFomoRule
from .base import Method

__all__ = ["FedFomo"]


class FedFomo(Method):
    """Merge models in proportion to the loss they would gain per distance."""

    id: ClassVar[str] = "fedfomo"
    rule = FedFomoRule
    citation: ClassVar[str] = (
        "M. Zhang, K. Sapra, S. Fidler, S. Yeung, J. M. Alvarez. Personalized Federated Learning with First Order "
        "Model Optimization. ICLR 2021. arXiv:2012.08565"
    )
    evidence: ClassVar[str] = "M full models on the anchor pool"
    communication: ClassVar[str] = "up to M / M"
