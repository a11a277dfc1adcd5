"""Gossip learning: models walk at random and are merged by age.

R. Ormandi, I. Hegedus, M. Jelasity. Gossip learning with linear models on fully distributed data. Concurrency and
Computation: Practice and Experience 25(4), 2013; the age-weighted merge from I. Hegedus, G. Danner, M. Jelasity.
Gossip Learning as a Decentralized Alternative to Federated Learning. DAIS 2019. Read: the abstract of the second.

Established. A node sends its model with its age t to a random neighbour; the receiver merges it with its own,
w <- (t_own w_own + t_other w_other) / (t_own + t_other), t <- max(t_own, t_other), and updates the result on its own
data, which makes it older.

Ours. Rounds are synchronous and models are pulled, so each node merges exactly one; the draw is RG's. The age counts
the training samples a model has seen, as in Ormandi's setting of one sample per node; counted in rounds all ages
would be equal here and the method would be RG. Ages travel as two scalars beside the model. Only the shared block is
merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .requests import ME, Read
from .selector import Deciding, Draws, Hood, Selector


@dataclass(frozen=True)
class GossipLearning(Selector):
    """One uniform draw, merged by age; `state` holds the age of one's own model, in samples."""

    id: ClassVar[str] = "gossip-learning"
    summary: ClassVar[str] = "RG with models weighed by the number of samples they have seen."
    evidence: ClassVar[str] = "none (the drawn peer's model age)"
    fidelity: ClassVar[str] = "adapted: synchronous rounds, heads stay local"

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Ages are those after this round's training: the age kept since the last merge plus the samples seen since."""
        (seen,) = yield Read((ME,), "samples")
        mine = float(state.get("age", 0.0) + seen)
        if not hood.peers:
            return Exchange.none(state={"age": mine})
        peer = rng.gossip(hood)
        (age,) = yield Read((peer,), "age")
        (theirs,) = yield Read((peer,), "samples")
        other = float(age + theirs)
        weight = other / (mine + other) if mine + other else 0.5
        merged = {"age": max(mine, other)}
        return Exchange.merge([peer], Reason.UNIFORM, {peer: weight}, selected=False, state=merged)
