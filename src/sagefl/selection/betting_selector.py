"""What the betting rules share: where they look, what they have seen, when they give up.

SAGE-E bets that peers are better than a random draw, SAGE-E-trim that they are worse. Everything else is the same:
look every few anchors, let the wealth of every bet run, end when the claims settle the decision or when more evidence
is not worth its price. What follows then stands in each rule's own file.

Losses are divided by M on arrival, so inside a rule risks, prices and margins are in units of M; the trace is not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from .betting import Wealth, margin_shift, paired_differences, shifted, threshold, worth_stopping
from .options import option
from .outcome import CONTINUE, Exchange, Fired, Reason, Stage, State
from .predictive import Bet, future_looks, more_evidence_pays
from .requests import Array, Probe
from .selector import Deciding, Draws, Hood, ProbingSelector
from .staged import halved
from .theory import DELTA, PROBE_COST, SCHEDULE

ALIKE = 1e-9  # log-wealths this close are equal but for rounding


class Evidence:
    """What one decision has seen, and the bets on it. `sign` -1 bets that peers are worse than a random draw."""

    def __init__(self, degree: int, delta: float, margin: float = 0.0, sign: int = 1) -> None:
        self.degree, self.sign = degree, sign
        self.shift = margin_shift(margin, degree)
        self.needed = threshold(degree, delta)
        self.wealth = Wealth(degree)
        self.differences: Array = np.zeros((degree, 0))  # Y by peer and anchor; NaN where there is none (screening)
        self.sums: Array = np.zeros(degree)  # losses by peer
        self.asked = np.zeros(degree, dtype=np.int64)  # anchors by peer
        self.leader: int | None = None  # frozen by screening: the only peer that is still bet on

    @property
    def anchors(self) -> int:
        """Anchors seen so far."""
        return int(self.differences.shape[1])

    @property
    def spent(self) -> int:
        """Evaluations paid for so far."""
        return int(self.asked.sum())

    def take(self, losses: Array) -> None:
        """New anchors that everybody answered."""
        differences = paired_differences(losses)
        self.wealth.bet(shifted(self.sign * differences, self.shift))
        self.differences = np.concatenate([self.differences, differences], axis=1)
        self.sums += losses.sum(axis=1)
        self.asked += losses.shape[1]

    def take_screened(self, losses: Array) -> None:
        """New anchors that the leader answered and, drawn for each anchor, a few others; NaN where nobody was asked."""
        assert self.leader is not None
        row = slice(self.leader, self.leader + 1)
        differences = np.full(losses.shape, np.nan)
        differences[row] = np.nanmean(np.delete(losses, self.leader, axis=0), axis=0) - losses[row]
        self.wealth.bet(shifted(self.sign * differences[row], self.shift), row)
        self.differences = np.concatenate([self.differences, differences], axis=1)
        self.sums += np.nansum(losses, axis=1)
        self.asked += np.count_nonzero(~np.isnan(losses), axis=1)

    def proven(self) -> list[int]:
        """Peers whose claim has ever reached the threshold."""
        return [int(j) for j in np.flatnonzero(self.wealth.highest >= self.needed)]

    def strongest(self, among: Sequence[int], rng: Draws) -> int:
        """The peer with the largest wealth now; equal ones are drawn, or clients would herd onto low indices."""
        now = self.wealth.now[list(among)]
        return int(rng.pick([j for j, w in zip(among, now, strict=True) if w >= now.max() - ALIKE], "ties"))

    def advantage(self, peer: int) -> float:
        """The estimated advantage of one peer over a random draw."""
        return (self.degree - 1) / self.degree * float(self.differences[peer].mean())

    def claim(self, peer: int, gain: float) -> Bet:
        """The bet on one peer, for the predictive stop; certifying it gains `gain * E Y`."""
        y = self.sign * self.differences[peer]
        return Bet(y, self.wealth.stakes[:, peer], self.needed, gain, self.shift)


@dataclass(frozen=True)
class BettingSelector(ProbingSelector):
    """Options and steps of a rule that bets."""

    citation: ClassVar[str] = "This project (beyond the SAGE paper)."
    fidelity: ClassVar[str] = "ours: there is no paper to be true to"
    evidence: ClassVar[str] = "answers to anchor inputs"
    test: ClassVar[str]  # what the trace calls the claim

    delta: float = option(DELTA, "failure probability of one client-round decision", gt=0, lt=1)
    probe_cost: float = option(PROBE_COST, "price of one anchor-peer evaluation in risk units", symbol="lambda", ge=0)
    looks: Literal["fine", "stages"] = option(
        "fine", f"where to look: every `step` anchors (fine), or at {', '.join(map(str, SCHEDULE))} only (stages)"
    )
    first: int = option(8, "the first look", ge=1)
    step: int = option(4, "anchors between fine looks", ge=1)
    largest: int = option(SCHEDULE[-1], "the most anchors ever asked", ge=1)
    stop: Literal["predictive", "voi", "none"] = option(
        "predictive",
        "when to give up: more evidence is not expected to pay (predictive), cannot pay at confidence delta (voi), "
        "or never (none)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        least = max(self.first, SCHEDULE[0]) if self.looks == "stages" else self.first
        if self.largest < least:
            raise ValueError(f"largest must reach the first look, {least}, got {self.largest}")

    @property
    def reach(self) -> int:
        """The anchors of the last look."""
        return self.largest

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Look, settle, weigh, look again."""
        if (exchange := self.without_probing(hood, state, rng)) is not None:
            return exchange
        seen = self.no_evidence(len(hood.peers))
        trace: list[Stage] = []
        schedule = self.schedule(hood.anchors)
        for i, look in enumerate(schedule):
            yield from self.gather(hood, seen, look, rng)
            ahead = schedule[i + 1 :]
            fired = self.weigh(seen, ahead, rng)
            trace.append(self.stage(seen, ahead, fired))
            if isinstance(fired, Reason):
                return self.conclude(hood, seen, fired, trace, state, rng)
        raise AssertionError("the last look always ends the decision")

    def restarted(self) -> BettingSelector:
        """The same rule at half of delta."""
        return halved(self)

    # What each rule says for itself -------------------------------------------------------------------------------

    @abstractmethod
    def no_evidence(self, degree: int) -> Evidence:
        """The start: no anchors yet, and what is bet on."""

    @abstractmethod
    def settled(self, seen: Evidence) -> bool:
        """Whether the claims proven so far end the decision."""

    @abstractmethod
    def candidate(self, seen: Evidence, rng: Draws) -> Bet:
        """The claim that the predictive stop asks about."""

    @abstractmethod
    def conclude(
        self, hood: Hood, seen: Evidence, why: Reason, trace: Sequence[Stage], state: State, rng: Draws
    ) -> Exchange:
        """The exchange that a decision ends with."""

    # Steps --------------------------------------------------------------------------------------------------------

    def schedule(self, anchors: int) -> list[int]:
        """Where to look in a pool; fine looks end at the pool's end even if the last block is partial."""
        last = min(anchors, self.largest)
        if self.looks == "stages":
            return [m for m in SCHEDULE if m <= last]
        return [*range(self.first, last, self.step), last] if last >= self.first else []

    def without_probing(self, hood: Hood, state: State, rng: Draws) -> Exchange | None:
        """The exchange where there is nothing to ask: no neighbour, a single one, or too few anchors."""
        if not hood.peers:
            return Exchange.none()
        if len(hood.peers) == 1:
            return Exchange.gossip(hood.peers[0], Reason.ONLY)
        if not self.schedule(hood.anchors):
            return Exchange.gossip(rng.gossip(hood), Reason.NO_ANCHORS)
        return None

    def gather(self, hood: Hood, seen: Evidence, upto: int, rng: Draws) -> Generator[Probe, Array, None]:
        """Buy the anchors up to the next look and bet on them."""
        losses = yield Probe(hood.peers, seen.anchors, upto, self.scoring)
        seen.take(losses / self.loss_bound)

    def price(self, seen: Evidence) -> float:
        """Price of one more anchor."""
        return self.probe_cost * self.asked_per_anchor(seen) / self.loss_bound

    def asked_per_anchor(self, seen: Evidence) -> int:
        """Evaluations that one more anchor takes."""
        return seen.degree

    def weigh(self, seen: Evidence, ahead: Sequence[int], rng: Draws) -> Fired:
        """What the look leads to; `ahead` are the looks that are left."""
        if self.settled(seen):
            return Reason.CERTIFIED
        if not ahead:
            return Reason.EXHAUSTED
        return CONTINUE if self.pays(seen, ahead, rng) else Reason.COST

    def pays(self, seen: Evidence, ahead: Sequence[int], rng: Draws) -> bool:
        """Whether more evidence may be worth its price (rules B0 and B); free evidence always is.

        Without a price V(n') cannot be negative, and it is 0 as soon as no sampled future certifies (eight concordant
        anchors are enough), so that "gossip iff max V <= 0" would give up over a cost that does not exist.
        """
        if (price := self.price(seen)) == 0:
            return True
        if self.stop == "voi":
            # No rule can gain more than the best peer that it may still take has on a random draw.
            open_to_us = seen.differences if seen.leader is None else seen.differences[[seen.leader]]
            return not worth_stopping(open_to_us, seen.degree, self.delta, price * (ahead[0] - seen.anchors))
        if self.stop == "predictive":
            claim = self.candidate(seen, rng)
            return more_evidence_pays(claim, price, future_looks(tuple(ahead)), rng("predict"))
        return True

    def stage(self, seen: Evidence, ahead: Sequence[int], fired: Fired) -> Stage:
        """One line of the trace: wealth against its threshold; after screening the advantage is the leader's."""
        risks = seen.sums / seen.asked
        advantage = risks.mean() - risks.min() if seen.leader is None else seen.advantage(seen.leader)
        price = self.loss_bound * self.price(seen)
        return Stage(
            anchors=seen.anchors,
            fired=fired,
            test=self.test,
            risks=tuple((self.loss_bound * risks).tolist()),
            advantage=self.loss_bound * float(advantage),
            next_cost=price * (ahead[0] - seen.anchors) if ahead else None,
            wealth=tuple(seen.wealth.highest.tolist()),
            threshold=seen.needed,
        )
