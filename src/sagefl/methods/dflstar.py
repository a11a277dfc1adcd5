"""DFLStar-lite: pull from the peers with the most informative last layer; distil from the aggregated model.

B. Soltani et al. DFLStar: A Decentralized Federated Learning Framework with Self-Knowledge Distillation and Participant
Selection. CIKM 2024. Read: the abstract; no more is public.

Established (abstract). Clients select only the most informative neighbours, judged by the similarity of last layers,
and add self-knowledge distillation: local training also follows the aggregated model, so that it does not run off
towards local data.

Ours. Similarity is the cosine of the flattened weights of the head's last layer. "Most informative" is read as least
similar (`prefer="dissimilar"`); `"similar"` is the other reading. k = 2. Last layers are read from all neighbours
every round and counted as control bytes. The distillation term is mu T^2 KL(teacher || student) of the class
probabilities at temperature T; the teacher is a frozen copy of the client's row as mixing left it, own head included,
taken before the first batch. There is none in the first round, when nothing has been aggregated. mu = .5 and T = 2 are
ours; `mu=0` trains plainly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ..learning.targets import batch_loss
from ..learning.training import Local, LocalTraining
from ..selection import ME, Deciding, Draws, Exchange, Hood, Read, Reason, Selector, State, option
from ..selection.ranking import best, cosines
from .base import Method

TEACHER = "dflstar.teacher"


@dataclass(frozen=True)
class DFLStarRule(Selector):
    """The k neighbours whose last layer is least (or most) similar to one's own."""

    k: int = option(2, "peers merged a round", ge=1)
    prefer: Literal["dissimilar", "similar"] = option("dissimilar", "which last layers are informative")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Read the last layers, rank by cosine similarity."""
        if not hood.peers:
            return Exchange.none()
        mine, *theirs = yield Read((ME, *hood.peers), "last-layer")
        similar = cosines(mine, theirs)
        scores = similar if self.prefer == "similar" else -similar
        return Exchange.merge(best(hood.peers, scores, self.k, rng), Reason.COMMITTED)


class SelfDistillation(LocalTraining):
    """Plain training plus mu T^2 KL between the aggregated model and the one that trains."""

    def __init__(self, mu: float, temperature: float) -> None:
        self.mu, self.temperature = mu, temperature

    def begin(self, local: Local, model: nn.Module) -> None:
        """Keep what mixing left as the teacher; later epochs of the same round keep it too."""
        if local.round > 0 and TEACHER not in local.extras:
            local.extras[TEACHER] = local.row.clone()

    def loss(self, local: Local, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The model's own loss and the distillation term."""
        own = super().loss(local, model, x, y)
        if (teacher := local.extras.get(TEACHER)) is None:
            return own
        model.eval()
        with torch.no_grad():
            target = functional_call(model, local.layout.views(teacher), (x,))
        model.train()
        if y.is_floating_point():  # values have no temperature: the teacher's are targets
            return own + self.mu * batch_loss(model(x), target)
        soft, hard = model(x) / self.temperature, target / self.temperature
        divergence = F.kl_div(soft.log_softmax(1), hard.log_softmax(1), reduction="batchmean", log_target=True)
        return own + self.mu * self.temperature**2 * divergence


class DFLStar(Method):
    """Pull from the k neighbours whose last layer differs most; distil from the aggregate."""

    id: ClassVar[str] = "dflstar-lite"
    rule = DFLStarRule
    evidence: ClassVar[str] = "all neighbours' last layers"
    communication: ClassVar[str] = "k / k"
    fidelity: ClassVar[str] = "inspired by: only the abstract is public, and its sign is our reading"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """What DFLStar adds to its rule."""

        mu: float = option(0.5, "weight of the distillation term, 0 to leave it out", ge=0)
        temperature: float = option(2.0, "temperature of the distilled probabilities", gt=0)

    options: Options

    def make_training(self) -> LocalTraining:
        """Distillation, unless switched off."""
        mu, temperature = self.options.mu, self.options.temperature
        return SelfDistillation(mu, temperature) if mu else LocalTraining()
