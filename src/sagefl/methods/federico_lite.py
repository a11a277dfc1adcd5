"""FedeRiCo-lite: weigh models by how many of one's own samples each explains best (the E-step of FedeRiCo).

Y. Sui, J. Wen, Y. Lau, B. L. Ross, J. C. Cresswell. Find Your Friends: Personalized Federated Learning with the Right
Collaborators. FL-NeurIPS 2022. arXiv:2210.06597.

Established. Expectation-maximisation over clients' models: the E-step gives model j the responsibility r_n(j),
proportional to pi_i(j) exp(-loss_j(x_n)), for sample n of client i; pi_i is the mean responsibility. Only some models
are asked a round, epsilon-greedily. The M-step sends weighted gradients back to the owners of the models, and
predictions are ensembles weighed by pi.

Lite: the E-step only. Nobody trains for others and nobody predicts as an ensemble; instead the client averages its own
and the pulled shared blocks with weights pi, normalised over them.

Ours. pi is a moving average (half old, half new); the models asked keep together the share they had, so that those not
asked keep theirs, and no share falls below 1e-6. Neighbours never asked start with an even share, as oneself does. The
samples are the anchor pool: on its own training samples a client's own model explains everything (``split="train"``).
M = 3 and epsilon = .3 are ours.
"""

from __future__ import annotations

from typing import ClassVar

from ..selection.federico_lite import FedericoLiteRule
from .base import Method

__all__ = ["FedericoLite"]


class FedericoLite(Method):
    """Average models in proportion to the samples they explain (E-step of FedeRiCo only)."""

    id: ClassVar[str] = "federico-lite"
    rule = FedericoLiteRule
    citation: ClassVar[str] = (
        "Y. Sui, J. Wen, Y. Lau, B. L. Ross, J. C. Cresswell. Find Your Friends: Personalized Federated Learning with "
        "the Right Collaborators. FL-NeurIPS 2022. arXiv:2210.06597"
    )
    evidence: ClassVar[str] = "per-sample losses of M full models on the anchor pool"
    communication: ClassVar[str] = "M / M"
