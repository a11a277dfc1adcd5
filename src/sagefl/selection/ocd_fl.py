"""OCD-FL: every node sends its model to the neighbours that gain most from it for the energy it costs.

N. Masmoudi, W. Jaafar. OCD-FL: A Novel Communication-Efficient Peer Selection-based Decentralized Federated Learning.
2025. arXiv:2403.04037.

Established. Selection is the sender's. Nodes tell each other their losses; the knowledge a neighbour gains grows with
how much worse than the sender it does and saturates, sending costs energy that grows with distance, and a node serves
the neighbours for which gain outweighs energy. Receivers average what arrives with their own model.

Ours. gain(i -> j) = 1 - exp(-2 delta) with delta = loss_j - loss_i where positive, else 0; j is served if gain / energy
exceeds theta = .1, one threshold for all nodes. The loss is the training loss of the round. A link costs 1; with
`energy=distance` nodes stand at random places of the unit square, publish their coordinates, and a link costs
(distance / mean distance)^2, a free-space law in place of the paper's radio model. Only the shared block is sent. A
lower loss says who has learnt more (or has the easier data), not who is compatible: the method does not claim that.
Traffic is counted in the sender's row: models and bytes it sends, losses it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .options import option
from .outcome import Exchange, Reason, Stage, State
from .requests import ME, Array, Read
from .selector import Deciding, Draws, Hood, Selector

__all__ = ["OcdFL", "gain"]

TYPICAL = 0.5214  # mean distance of two points of the unit square: a link of this length costs 1
NEAREST = 0.05  # closer nodes cost as much as nodes at this distance


def gain(losses: Array, own: float) -> Array:
    """What each neighbour gains from a model of loss `own`: in [0, 1), 0 for those who do better already."""
    return np.asarray(-np.expm1(-2.0 * np.maximum(losses - own, 0.0)))


@dataclass(frozen=True)
class OcdFL(Selector):
    """Opportunistic, sender-side push by gain per energy."""

    id: ClassVar[str] = "ocd-fl"
    summary: ClassVar[str] = "Push to neighbours whose gain per energy exceeds a threshold."
    citation: ClassVar[str] = (
        "N. Masmoudi, W. Jaafar. OCD-FL: A Novel Communication-Efficient Peer Selection-based Decentralized Federated "
        "Learning. 2025. arXiv:2403.04037"
    )
    evidence: ClassVar[str] = "neighbours' training losses (energy=distance: and their positions)"
    communication: ClassVar[str] = "0..d / 0..d, pushed"

    theta: float = option(0.1, "push to neighbours with gain / energy above this", ge=0)
    energy: Literal["unit", "distance"] = option(
        "unit", "cost of a link: 1 (unit), or growing with the distance of two nodes (distance)"
    )
    exponent: float = option(2.0, "path-loss exponent (energy = distance)")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Compare losses, price the links, push where it pays."""
        state = self._place(state, rng)
        if not hood.peers:
            return Exchange.none(state=state)
        losses = yield Read((*hood.peers, ME), "loss")
        energies = np.ones(len(hood.peers))
        if self.energy == "distance":
            x = yield Read(hood.peers, "x")
            y = yield Read(hood.peers, "y")
            energies = self._energies(np.ravel(x) - state["x"], np.ravel(y) - state["y"], hood)
        worth = gain(np.ravel(losses[:-1]), float(losses[-1])) / energies
        served = tuple(p for p, w in zip(hood.peers, worth, strict=True) if w > self.theta)
        look = Stage(0, Reason.COMMITTED, scores=tuple(map(float, worth)))
        return Exchange.push(served, Reason.COMMITTED if served else Reason.NONE, (look,), state)

    def _place(self, state: State, rng: Draws) -> Any:
        """A node's place in the unit square, drawn once and published; nothing to keep where links cost the same."""
        if self.energy == "unit" or "x" in state:
            return state or None
        x, y = rng("position").random(2)
        return {"x": float(x), "y": float(y)}

    def _energies(self, dx: Array, dy: Array, hood: Hood) -> Array:
        """Energy by distance, 1 for a link of typical length; in round 0 nobody has published a place yet."""
        if hood.round == 0:
            return np.ones(len(hood.peers))
        distance = np.maximum(np.hypot(dx, dy), NEAREST)
        return np.asarray((distance / TYPICAL) ** self.exponent)
