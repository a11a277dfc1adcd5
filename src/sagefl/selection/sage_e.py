"""SAGE-E: certify by betting on paired differences, stop when more evidence is not expected to pay.

Beyond the SAGE paper: the same promise (a certified peer is no better than a random draw with probability at most
delta, per decision; `E[R] <= R_RG + delta M`) on a fraction of the evidence, because all neighbours answer the same
anchors and the wealth process may be looked at as often as one likes (`sagefl.selection.betting`). It assumes anchors
that are independent of each other and of the models; a pool with copies, or one that shaped the models, is neither.

Stops: `predictive` (rule B, a heuristic), `voi` (rule B0: stopping is right at confidence delta), `none`.
Options: looks every few anchors or at the paper's stages; a margin; a uniform draw from the certified set instead of
its best; screening (after some anchors only the leader and two random others are asked); a history gate that skips
probing where it has not paid lately. A single neighbour is taken without a probe.

Screening costs no delta: the wealth of the frozen leader goes on with differences of the same mean and range, that of
everybody else stands still, and both leave every W(j) a supermartingale. Its leader is the only peer it can certify.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from .betting_selector import BettingSelector, Evidence
from .options import option
from .outcome import Exchange, Reason, Stage, State
from .pool import draw_asked
from .predictive import Bet
from .requests import Array, Probe
from .selector import Draws, Hood

OTHERS = 2  # peers that screening asks beside the leader


@dataclass(frozen=True)
class SageE(BettingSelector):
    """The betting certificate against gossip."""

    id: ClassVar[str] = "sage-e"
    summary: ClassVar[str] = (
        "certify against gossip by betting on paired differences; stop when it is not expected to pay"
    )
    test: ClassVar[str] = "wealth"

    margin: float = option(0.0, "certify an advantage of at least this much, in risk units", ge=0)
    pick: Literal["best", "uniform"] = option("best", "from the certified set: its best, or a uniform draw")
    screen: int = option(0, "after this many anchors ask only the leader and two random others, 0 for never", ge=0)
    gate: bool = option(False, "skip probing where it has not paid lately")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin >= self.loss_bound:
            raise ValueError(f"margin must be below M = {self.loss_bound:g}, got {self.margin!r}")

    def without_probing(self, hood: Hood, state: State, rng: Draws) -> Exchange | None:
        """As for every betting rule; and where the gate is shut, gossip."""
        exchange = super().without_probing(hood, state, rng)
        if exchange is None and self.gate and Payoff.of(state).shut(rng):
            return Exchange.gossip(rng.gossip(hood), Reason.GATED)
        return exchange

    def no_evidence(self, degree: int) -> Evidence:
        """Bets that peers beat a random draw, by the margin if there is one."""
        return Evidence(degree, self.delta, self.margin / self.loss_bound)

    def settled(self, seen: Evidence) -> bool:
        """Whether anybody is certified."""
        return bool(seen.proven())

    def candidate(self, seen: Evidence, rng: Draws) -> Bet:
        """The leader's claim; taking it gains its advantage, (d-1)/d E Y."""
        return seen.claim(self.leader(seen, rng), (seen.degree - 1) / seen.degree)

    def leader(self, seen: Evidence, rng: Draws) -> int:
        """The peer with the largest wealth; after screening the frozen one."""
        return seen.strongest(range(seen.degree), rng) if seen.leader is None else seen.leader

    def conclude(
        self, hood: Hood, seen: Evidence, why: Reason, trace: Sequence[Stage], state: State, rng: Draws
    ) -> Exchange:
        """A certified peer, or gossip; the gate remembers what the decision was worth."""
        chosen = self.chosen(seen, rng) if why is Reason.CERTIFIED else None
        worth = (0.0 if chosen is None else self.loss_bound * seen.advantage(chosen)) - self.probe_cost * seen.spent
        memory = Payoff.of(state).after(worth).state() if self.gate else None
        if chosen is None:
            return Exchange.gossip(rng.gossip(hood), why, trace, memory)
        return Exchange.select(hood.peers[chosen], why, trace, memory)

    def chosen(self, seen: Evidence, rng: Draws) -> int:
        """From the certified set: the largest current wealth, or a uniform draw (the set is jointly safe)."""
        proven = seen.proven()
        return int(rng.pick(proven, "pick")) if self.pick == "uniform" else seen.strongest(proven, rng)

    # Screening ----------------------------------------------------------------------------------------------------

    def screens(self, seen: Evidence) -> bool:
        """Whether the next anchors go to the leader and two others; three peers are no more than that."""
        return 0 < self.screen <= seen.anchors and seen.degree > 1 + OTHERS

    def asked_per_anchor(self, seen: Evidence) -> int:
        """Evaluations that one more anchor takes."""
        return 1 + OTHERS if self.screens(seen) else seen.degree

    def gather(self, hood: Hood, seen: Evidence, upto: int, rng: Draws) -> Generator[Probe, Array, None]:
        """Buy the anchors up to the next look and bet on them."""
        if not self.screens(seen):
            yield from super().gather(hood, seen, upto, rng)
            return
        seen.leader = self.leader(seen, rng)
        mask = draw_asked(seen.degree, upto - seen.anchors, OTHERS, rng("screen"), always=(seen.leader,))
        losses = yield Probe(hood.peers, seen.anchors, upto, self.scoring, mask)
        seen.take_screened(losses / self.loss_bound)


@dataclass(frozen=True)
class Payoff:
    """Whether probing has paid at this client: the discounted sum of what its probed decisions were worth.

    Its sign is that of the discounted mean, which is all the gate looks at. Rounds that bought no evidence (gated, no
    choice, no anchors) leave it as it is.
    """

    total: float = 0.0
    probed: int = 0

    DECAY: ClassVar[float] = 0.7
    EXPLORE: ClassVar[float] = 0.05
    WARM_UP: ClassVar[int] = 2

    @classmethod
    def of(cls, state: State) -> Payoff:
        """Read it from a client's state."""
        return cls(state.get("gate_total", 0.0), state.get("gate_probed", 0))

    def state(self) -> State:
        """Write it as a client's state."""
        return {"gate_total": self.total, "gate_probed": self.probed}

    def shut(self, rng: Draws) -> bool:
        """Whether to skip probing now; once in a while it looks again."""
        if self.probed < self.WARM_UP or self.total > 0:
            return False
        return bool(rng("gate").random() >= self.EXPLORE)

    def after(self, worth: float) -> Payoff:
        """The memory after a probed round."""
        return Payoff(self.DECAY * self.total + worth, self.probed + 1)
