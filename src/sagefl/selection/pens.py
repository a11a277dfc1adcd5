"""PENS' choice of peers: evaluate a few neighbours' models, remember who was good, then gossip among those.

The rule alone; the paper and our deviations are in `sagefl.methods.pens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .outcome import Exchange, Reason, State
from .ranking import best, sample, whole
from .requests import Inspect, Peer
from .selector import Deciding, Draws, Hood, Selector, option

__all__ = ["PensRule"]

ROUNDING = 1e-9  # expected counts are summed round by round; equality must not pass for more


@dataclass(frozen=True)
class PensRule(Selector):
    """Phase one: merge the best m of n_sampled. Phase two: gossip among those chosen more often than by chance."""

    summary: ClassVar[str] = "merge the best of a few sampled models, later gossip among those who were often best"

    n_sampled: int = option(3, "models downloaded and evaluated a round in phase one")
    m: int = option(2, "how many of them are merged")
    first_phase: float = option(0.4, "T1: length of phase one, as a share of the run (below 1) or in rounds")

    def __post_init__(self) -> None:
        whole("n_sampled", self.n_sampled)
        whole("m", self.m)
        if self.first_phase < 0:
            raise ValueError(f"first_phase is a share of the run or a number of rounds >= 0, got {self.first_phase}")

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
        return Exchange.merge(chosen, Reason.COMMITTED, state=_counted(state, hood.peers, chosen))

    def turn(self, hood: Hood) -> int:
        """T1, the first round of phase two."""
        if self.first_phase >= 1:
            return int(self.first_phase)
        if hood.rounds is None:
            raise ValueError("PENS divides the run in two: say how long it is (rounds=...), or give first_phase rounds")
        return round(self.first_phase * hood.rounds)

    def kept(self, hood: Hood, state: State) -> tuple[Peer, ...]:
        """The active neighbours that were chosen more often than by chance; all of them, if there is none."""
        chosen, expected = state.get("chosen", {}), state.get("expected", {})
        often = [p for p in hood.peers if chosen.get(p, 0) > expected.get(p, 0.0) + ROUNDING]
        return tuple(often) or hood.peers


def _counted(state: State, peers: tuple[Peer, ...], chosen: tuple[Peer, ...]) -> State:
    """The counts after one more round: sampling n' of d and keeping m' of them takes each with probability m'/d."""
    before, expected = state.get("chosen", {}), state.get("expected", {})
    share = len(chosen) / len(peers)
    return {
        "chosen": before | {p: before.get(p, 0) + 1 for p in chosen},
        "expected": expected | {p: expected.get(p, 0.0) + share for p in peers},
    }
