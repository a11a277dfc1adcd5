"""OCD-FL: every node sends its model to the neighbours that gain most from it for the energy it costs.

N. Masmoudi, W. Jaafar. OCD-FL: A Novel Communication-Efficient Peer Selection-based Decentralized Federated Learning.
2025. arXiv:2403.04037. Read: the abstract, and the authors' code (nizar-masmoudi/decentralized-federated-learning).

Established. Selection is the sender's. Nodes tell each other their losses on one test set that all have; the knowledge
that neighbour k gains from node n is 1 - exp(-2 delta) with delta = loss_k - loss_n where positive, else 0. Node n
chooses the set at once: it maximises sum_k sigma(w_k) gain_k / sum_k sigma(w_k) energy_k + theta |w| over w, by Adam
(rate .1, at most 1,000 steps, until the objective has changed by less than 1e-4 four times), from w uniform in [0, 1],
and serves those with sigma(w_k) > 1/2. theta = .02 in the selector; the main script hands it 1 where a number of the
node seems meant, and then nearly everybody is served. Energies are scaled by that of the longest possible link.
Receivers average what arrives with their own model.

Ours. No test set is common here: the loss is that of the round's own training, which is low also where data are easy.
A link costs 1; with `energy=distance` nodes stand at random places of the unit square (theirs move every round),
publish their coordinates, and a link costs (distance / largest distance)^2, a free-space law in place of the authors'
radio model. Only the shared block is sent. A lower loss says who has learnt more (or has the easier data), not who is
compatible: the method does not claim that. Traffic is counted in the sender's row: models and bytes it sends, losses it
reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .options import option
from .outcome import Exchange, Reason, Stage, State
from .requests import ME, Array, Read
from .selector import Deciding, Draws, Hood, Selector

LONGEST = 2**0.5  # the largest distance of two points of the unit square: a link of this length costs 1
RATE, STEPS, PATIENCE, SETTLED = 0.1, 1000, 3, 1e-4  # of the authors' optimiser
NEAREST = 0.05  # closer nodes cost as much as nodes at this distance


def gain(losses: Array, own: float) -> Array:
    """What each neighbour gains from a model of loss `own`: in [0, 1), 0 for those who do better already."""
    return np.asarray(-np.expm1(-2.0 * np.maximum(losses - own, 0.0)))


@dataclass(frozen=True)
class OcdFL(Selector):
    """Opportunistic, sender-side push by gain per energy."""

    id: ClassVar[str] = "ocd-fl"
    summary: ClassVar[str] = "Push to the set of neighbours that gains most for the energy it costs."
    fidelity: ClassVar[str] = (
        "adapted: losses are of training, not of a test set that all have; heads stay local, no radio model"
    )
    evidence: ClassVar[str] = "neighbours' training losses (energy=distance: and their positions)"
    communication: ClassVar[str] = "0..d / 0..d, pushed"
    pushes: ClassVar[bool] = True

    theta: float = option(0.02, "weight of |w|, which drives choices to a side", ge=0)
    energy: Literal["unit", "distance"] = option(
        "unit", "cost of a link: 1 (unit), or growing with the distance of two nodes (distance)"
    )
    exponent: float = option(2.0, "path-loss exponent (energy = distance)")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Compare losses, price the links, push to the set where it pays."""
        state = self._place(state, rng)
        if not hood.peers:
            return Exchange.none(state=state)
        losses = yield Read((*hood.peers, ME), "loss")
        energies = np.ones(len(hood.peers))
        if self.energy == "distance":
            x = yield Read(hood.peers, "x")
            y = yield Read(hood.peers, "y")
            energies = self._energies(np.ravel(x) - state["x"], np.ravel(y) - state["y"], hood)
        gains = gain(np.ravel(losses[:-1]), float(losses[-1]))
        betas = chosen(gains, energies, self.theta, rng("weights").random(len(gains)))
        served = tuple(p for p, beta in zip(hood.peers, betas, strict=True) if beta > 0.5)
        look = Stage(0, Reason.COMMITTED, scores=tuple(map(float, betas)))
        return Exchange.push(served, Reason.COMMITTED if served else Reason.NONE, (look,), state)

    def _place(self, state: State, rng: Draws) -> Any:
        """A node's place in the unit square, drawn once and published; nothing to keep where links cost the same."""
        if self.energy == "unit" or "x" in state:
            return state or None
        x, y = rng("position").random(2)
        return {"x": float(x), "y": float(y)}

    def _energies(self, dx: Array, dy: Array, hood: Hood) -> Array:
        """Energy by distance, 1 for the longest link; in round 0 nobody has published a place yet."""
        if hood.round == 0:
            return np.ones(len(hood.peers))
        distance = np.maximum(np.hypot(dx, dy), NEAREST)
        return np.asarray((distance / LONGEST) ** self.exponent)


def chosen(gains: Array, energies: Array, theta: float, w: Array) -> Array:
    """sigma(w) after Adam has climbed sum sigma(w) gain / sum sigma(w) energy + theta |w| from the given start."""
    first, second, before, quiet = np.zeros_like(w), np.zeros_like(w), np.inf, 0
    for step in range(1, STEPS + 1):
        s, length = 1.0 / (1.0 + np.exp(-w)), float(np.linalg.norm(w))
        gained, spent = float(s @ gains), float(s @ energies)
        value = gained / spent + theta * length
        slope = s * (1 - s) * (gains * spent - gained * energies) / spent**2
        slope += theta * w / length if length else 0.0
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        w = w + RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        if abs(value - before) < SETTLED:
            if quiet == PATIENCE:
                break
            quiet += 1
        before = value
    return np.asarray(1.0 / (1.0 + np.exp(-w)))
