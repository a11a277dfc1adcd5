"""Push-sum: averaging over a directed graph, with a weight per client that undoes the bias of uneven in-degrees.

A client sends its numerator u_j = w_j z_j and its weight w_j in equal parts to itself and its out-neighbours (columns
of P sum to one), and receivers add up: u_i = sum_j p_ij u_j, w_i = sum_j p_ij w_j. Clients train the de-biased
z_i = u_i / w_i; since z is what is kept as parameters, the mix has the weights p_ij w_j / w_i, which sum to one.
The w are conserved: they always sum to the number of clients (Kempe, Dobra, Gehrke 2003; Assran et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ..learning.tasks import Tasks
from ..selection.outcome import Outcome, Traffic
from ..selection.scoring import Scoring
from .accounting import SCALAR, Sizes, account
from .layer import ExchangeLayer
from .mixing import Mix, client_of


class PushSum(ExchangeLayer):
    """Pushed models merge by push-sum; `weights` are the de-biasing weights."""

    beyond: ClassVar[str] = "pushes weighted models"

    def __init__(self) -> None:
        self.weights = np.ones(0)

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Everybody starts with weight one."""
        self.weights = np.ones(clients)

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """One step of push-sum: the mixes of all receivers, and everybody's new weight."""
        parts: dict[int, dict[int, float]] = {}  # receiver -> sender -> the weight that arrives
        for sender, outcome in sorted(outcomes.items()):
            receivers = [sender, *map(client_of, outcome.peers)]
            for receiver in receivers:
                parts.setdefault(receiver, {})[sender] = float(self.weights[sender]) / len(receivers)
        mixes = {}
        for receiver, arrived in sorted(parts.items()):
            total = sum(arrived.values())
            self.weights[receiver] = total
            pulls = [(s, ages.get((receiver, s), 0), part / total) for s, part in arrived.items() if s != receiver]
            if pulls:
                mixes[receiver] = Mix(arrived[receiver] / total, tuple(pulls))
        return mixes

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """What a client sends: its block and its weight to each out-neighbour."""
        plain = account(outcome, asked, sizes)
        return replace(plain, control=plain.control + SCALAR * len(outcome.peers))

    def state(self) -> dict[str, Any]:
        """The weights."""
        return {"weights": self.weights}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.weights = np.array(state["weights"], dtype=np.float64)
