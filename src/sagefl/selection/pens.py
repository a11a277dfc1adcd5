"""PENS: find peers with similar data by trying their models on your own, then gossip among them.

N. Onoszko, G. Karlsson, O. Mogren, E. Listo Zec. Decentralized federated learning of deep neural networks on non-iid
data. ICML 2021 workshop on federated learning for user privacy and data confidentiality. arXiv:2107.08517. Read: the
abstract, and the authors' code (guskarls/dfl-pens).

Established. Phase one: sample n_sampled neighbours, evaluate their full models on one's own training data, average
one's own model with the best m, and count who was chosen. Then keep the neighbours that were chosen more often than
chance would have it. Phase two: ordinary gossip among those kept.

Ours. Neighbours are those of a fixed graph instead of everybody, so every count is capped at the degree:
n' = min(n_sampled, d), m' = min(m, n'). Chance is m'/d in every round in which a neighbour is active, T1 m'/d when
everybody always is. A client that keeps nobody, or none of whose kept neighbours is active, draws from all of its
active ones. The draw of phase two is the one RG would make where all are kept. Clients pull, in synchronous rounds,
and merge the shared block only; the evaluation is of the peer's full predictor, its own head included.
The defaults n_sampled = 3, m = 2, T1 = 40 % of the rounds give the transfers the SAGE paper reports (CommOH 1.784 at
T = 250); `pens-original` has 10, 2 and 80 %.

The authors' code tries one's own model on the peers' data, which has to move for it, by accuracy unless told otherwise,
and keeps whoever was chosen more than T1 m / d - 1 times; its second phase averages with up to twenty of those kept.
Here, as in their text, models move, losses are compared, chance is the cut-off and a round merges one. A port that
never merges where there are fewer than n_sampled neighbours is not followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import UsageError
from .options import option
from .outcome import Exchange, Reason, State
from .ranking import best, sample
from .requests import Inspect, Peer
from .selector import Deciding, Draws, Hood, Selector

ROUNDING = 1e-9  # expected counts are summed round by round; equality must not pass for more


@dataclass(frozen=True)
class Pens(Selector):
    """Phase one: merge the best m of n_sampled. Phase two: gossip among those chosen more often than by chance."""

    id: ClassVar[str] = "pens"
    summary: ClassVar[str] = "Merge the best of a few sampled models, then gossip among those that were often best."
    evidence: ClassVar[str] = "n_sampled full models on one's own training data, in phase one"
    communication: ClassVar[str] = "m / n_sampled in phase one, then 1 / 1"
    fidelity: ClassVar[str] = "adapted: heads stay local, models move and not data; the budget is the SAGE paper's"

    n_sampled: int = option(3, "models downloaded and evaluated a round in phase one", ge=1)
    m: int = option(2, "how many of them are merged", ge=1)
    first_phase: float = option(
        0.4, "length of phase one, as a share of the run (below 1) or in rounds", symbol="T1", ge=0
    )

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Both phases; `state` counts how often each neighbour was chosen, and how often chance would have."""
        if not hood.peers:
            return Exchange.none(state=state)
        if hood.round >= self.turn(hood):
            kept = self.kept(hood, state)
            return Exchange.merge([rng.pick(kept, "gossip")], Reason.UNIFORM, selected=False, state=state)
        sampled = sample(hood.peers, self.n_sampled, rng)
        losses = yield Inspect(sampled, split="train", metric="ce")
        chosen = best(sampled, -losses, self.m, rng)
        return Exchange.merge(chosen, Reason.COMMITTED, state=_count(state, hood.peers, chosen))

    def turn(self, hood: Hood) -> int:
        """T1, the first round of phase two."""
        if self.first_phase >= 1:
            return int(self.first_phase)
        if hood.rounds is None:
            raise UsageError("PENS has two phases: say how long the run is (rounds=...), or give first_phase in rounds")
        return round(self.first_phase * hood.rounds)

    def kept(self, hood: Hood, state: State) -> tuple[Peer, ...]:
        """The active neighbours that were chosen more often than by chance; all of them, if there is none."""
        chosen, expected = state.get("chosen", {}), state.get("expected", {})
        often = [p for p in hood.peers if chosen.get(p, 0) > expected.get(p, 0.0) + ROUNDING]
        return tuple(often) or hood.peers


@dataclass(frozen=True)
class PensOriginal(Pens):
    """PENS as in its own paper: ten models sampled, for four fifths of the run."""

    id: ClassVar[str] = "pens-original"
    summary: ClassVar[str] = "PENS with the budget of its own paper: ten models sampled, for four fifths of the run."
    fidelity: ClassVar[str] = "adapted: heads stay local, models move and not data"

    n_sampled: int = Pens.preset("n_sampled", 10)
    first_phase: float = Pens.preset("first_phase", 0.8)


def _count(state: State, peers: tuple[Peer, ...], chosen: tuple[Peer, ...]) -> State:
    """The counts after one more round: sampling n' of d and keeping m' of them takes each with probability m'/d."""
    before, expected = state.get("chosen", {}), state.get("expected", {})
    share = len(chosen) / len(peers)
    return {
        "chosen": before | {p: before.get(p, 0) + 1 for p in chosen},
        "expected": expected | {p: expected.get(p, 0.0) + share for p in peers},
    }
