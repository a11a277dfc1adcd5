"""SAGE-E: certify by betting on paired differences, stop when more evidence is not expected to pay.

Beyond the SAGE paper: the same promise (a certified peer is worse than a random draw with probability at most delta,
``E[R] <= R_RG + delta M``) on a fraction of the evidence, because all neighbours answer the same anchors and the
wealth process may be looked at as often as one likes (`sagefl.selection.betting`).

Stops: ``predictive`` (rule B, a heuristic), ``voi`` (rule B0: stopping is right at confidence delta), ``none``.
Options: looks every few anchors or at the paper's stages; a margin; a uniform draw from the certified set instead of
its best; screening (after some anchors only the leader and two random others are asked); a history gate that skips
probing where it has not paid lately. A single neighbour is taken without a probe.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from .betting import Wealth, paired_differences, threshold, worth_stopping
from .outcome import Exchange, Reason, Stage, State
from .predictive import future_looks, more_evidence_pays
from .requests import Array, Loss, Probe, ProbeKind
from .selector import Deciding, Draws, Hood, Selector, option
from .staged import one_of

__all__ = ["BettingSelector", "Evidence", "SageE"]

STAGES = (16, 32, 64, 128)


@dataclass
class Evidence:
    """What the bets have seen so far."""

    wealth: Wealth
    differences: Array  # peers x anchors; after screening only the leader's row goes on
    sums: Array  # losses, for the trace
    leader: int | None = None  # frozen by screening
    leader_differences: Array | None = None

    def current(self) -> int:
        """The peer with the largest wealth."""
        return self.leader if self.leader is not None else int(self.wealth.now.argmax())

    def of_current(self) -> Array:
        """The differences of that peer."""
        if self.leader_differences is not None:
            return self.leader_differences
        current: Array = self.differences[self.current()]
        return current


@dataclass(frozen=True)
class BettingSelector(Selector):
    """Options and steps that the betting rules share."""

    delta: float = option(0.1, "failure probability of one client-round decision")
    probe_cost: float = option(2e-3, "lambda: price of one anchor-peer evaluation in risk units")
    looks: Literal["fine", "stages"] = option("fine", "look every `step` anchors, or at 16, 32, 64, 128 only")
    first: int = option(8, "the first look")
    step: int = option(4, "anchors between fine looks")
    largest: int = option(128, "the most anchors ever asked")
    stop: Literal["predictive", "voi", "none"] = option("predictive", "when to give up: rule B | rule B0 | never")
    loss_bound: float = option(1.0, "M: probe losses lie in [0, M]")
    kind: ProbeKind = option("labels", "what peers answer: labels | latents | probs")
    loss: Loss = option("error", "how answers are scored: error (0-1) | ce (clipped, scaled to [0, M])")

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {self.delta}")
        if not self.probe_cost >= 0:
            raise ValueError(f"probe_cost (lambda) must not be negative, got {self.probe_cost}")
        if not (self.loss_bound > 0 and np.isfinite(self.loss_bound)):
            raise ValueError(f"loss_bound M must be positive and finite, got {self.loss_bound}")
        if self.first < 1 or self.step < 1 or self.largest < self.first:
            raise ValueError(
                f"looks need 1 <= first <= largest and step >= 1, got {self.first}, {self.step}, {self.largest}"
            )
        one_of("looks", self.looks, ("fine", "stages"))
        one_of("stop", self.stop, ("predictive", "voi", "none"))
        one_of("kind", self.kind, ("labels", "latents", "probs"))
        one_of("loss", self.loss, ("error", "ce"))
        if self.kind == "labels" and self.loss == "ce":
            raise ValueError('a top-1 label has no cross-entropy: use kind="latents" or kind="probs" with loss="ce"')

    def schedule(self, hood: Hood) -> list[int]:
        """Where to look; fine looks end at the pool's end even if the last block is partial."""
        if self.looks == "stages":
            return hood.stages([m for m in STAGES if m <= self.largest])
        last = min(hood.anchors, self.largest)
        return [*range(self.first, last, self.step), last] if last >= self.first else []

    def unprobed(self, hood: Hood, rng: Draws) -> Exchange | None:
        """Cases in which there is nothing to ask: nobody, a single neighbour, too few anchors."""
        if not hood.peers:
            return Exchange.none()
        if len(hood.peers) == 1:
            return Exchange.gossip(hood.peers[0], Reason.ONLY)
        if not self.schedule(hood):
            return Exchange.gossip(rng.gossip(hood), Reason.NO_ANCHORS)
        return None

    def steps(self, hood: Hood) -> Iterator[tuple[int, int, int | None]]:
        """(from, to, next look or None) for every look."""
        looks = self.schedule(hood)
        for i, look in enumerate(looks):
            yield (looks[i - 1] if i else 0), look, (looks[i + 1] if i + 1 < len(looks) else None)

    def ask(self, hood: Hood, start: int, stop: int) -> Generator[Probe, Array, Array]:
        """Losses of everybody on new anchors, scaled to [0, 1]."""
        losses = yield Probe(hood.peers, start, stop, self.kind, self.loss)
        return losses if self.loss_bound == 1.0 else losses / self.loss_bound


@dataclass(frozen=True)
class SageE(BettingSelector):
    """The betting certificate against gossip."""

    id: ClassVar[str] = "sage-e"
    summary: ClassVar[str] = (
        "certify against gossip by betting on paired differences; stop when it is not expected to pay"
    )
    citation: ClassVar[str] = "This project (beyond the SAGE paper)."
    evidence: ClassVar[str] = "answers to anchor inputs"

    margin: float = option(0.0, "certify an advantage of at least this much")
    pick: Literal["best", "uniform"] = option("best", "from the certified set: its best, or a uniform draw")
    screen: int = option(0, "after this many anchors ask only the leader and two random others; 0: never")
    gate: bool = option(False, "skip probing where it has not paid lately")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("pick", self.pick, ("best", "uniform"))
        if not 0 <= self.margin < 1:
            raise ValueError(f"margin must lie in [0, 1), got {self.margin}")
        if self.screen < 0:
            raise ValueError(f"screen must not be negative, got {self.screen}")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Look, certify, weigh, look again."""
        if (exchange := self.unprobed(hood, rng)) is not None:
            return exchange
        gate = Gate.of(state) if self.gate else None
        if gate is not None and gate.shut(rng):
            return Exchange.gossip(rng.gossip(hood), Reason.GATED, state=gate.state())
        degree = len(hood.peers)
        needed = threshold(degree, self.delta, self.margin)
        evidence = Evidence(Wealth(degree), np.zeros((degree, 0)), np.zeros(degree))
        spent = 0
        trace: list[Stage] = []
        for start, stop, ahead in self.steps(hood):
            spent += yield from self.gather(hood, evidence, start, stop, rng)
            price = self.probe_cost * self.asked_per_anchor(hood, evidence)
            fired = self.fired(hood, evidence, needed, price, stop, ahead, rng)
            trace.append(self.stage(evidence, needed, stop, ahead, price, fired))
            if fired == "continue":
                continue
            remembered = None if gate is None else gate.after(self.worth(evidence, fired, spent)).state()
            if fired == "certified":
                peer = hood.peers[self.chosen(evidence, needed, rng)]
                return Exchange.select(peer, Reason.CERTIFIED, trace, remembered)
            reason = Reason.COST if fired == "cost" else Reason.EXHAUSTED
            return Exchange.gossip(rng.gossip(hood), reason, trace, remembered)
        raise AssertionError("the last look always ends the decision")

    # Steps --------------------------------------------------------------------------------------------------------

    def gather(self, hood: Hood, evidence: Evidence, start: int, stop: int, rng: Draws) -> Generator[Probe, Array, int]:
        """Buy the anchors start..stop and bet on them; returns the evaluations spent."""
        degree = len(hood.peers)
        if self.screen and start >= self.screen and degree > 3:
            return (yield from self._gather_screened(hood, evidence, start, stop, rng))
        losses = yield from self.ask(hood, start, stop)
        moved = self.shifted(paired_differences(losses), degree)
        evidence.wealth.bet(moved)
        evidence.differences = np.concatenate([evidence.differences, moved], axis=1)
        evidence.sums = evidence.sums + losses.sum(axis=1)
        return losses.size

    def _gather_screened(
        self, hood: Hood, evidence: Evidence, start: int, stop: int, rng: Draws
    ) -> Generator[Probe, Array, int]:
        """Ask the leader and, fresh for every anchor, two uniformly drawn others."""
        degree, width = len(hood.peers), stop - start
        if evidence.leader is None:
            evidence.leader = int(evidence.wealth.now.argmax())
            evidence.leader_differences = evidence.differences[evidence.leader]
        others = np.delete(np.arange(degree), evidence.leader)
        mask = np.zeros((degree, width), dtype=bool)
        mask[evidence.leader] = True
        for column in range(width):
            mask[rng("screen").choice(others, 2, replace=False), column] = True
        losses = (yield Probe(hood.peers, start, stop, self.kind, self.loss, mask)) / self.loss_bound
        own = losses[evidence.leader]
        rest = np.nansum(np.where(np.arange(degree)[:, None] == evidence.leader, 0.0, losses), axis=0) / 2
        moved = self.shifted(rest - own, degree)
        evidence.wealth.bet_on(evidence.leader, moved)
        evidence.leader_differences = np.concatenate([evidence.of_current(), moved])
        return int(mask.sum())

    def shifted(self, differences: Array, degree: int) -> Array:
        """Differences against the margin: (Y - g')/(1 + g') with g' = gamma d/(d-1)."""
        if self.margin == 0:
            return differences
        g = self.margin * degree / (degree - 1)
        return (differences - g) / (1 + g)

    def asked_per_anchor(self, hood: Hood, evidence: Evidence) -> int:
        """Evaluations that one more anchor costs."""
        screened = self.screen and evidence.differences.shape[1] >= self.screen and len(hood.peers) > 3
        return 3 if screened else len(hood.peers)

    def certified(self, evidence: Evidence, needed: float) -> list[int]:
        """Peers whose wealth has ever reached the threshold; after screening only the leader can."""
        found = np.flatnonzero(evidence.wealth.highest >= needed)
        return [int(j) for j in found if evidence.leader is None or j == evidence.leader]

    def chosen(self, evidence: Evidence, needed: float, rng: Draws) -> int:
        """From the certified set: the largest current wealth, or a uniform draw (the set is jointly safe)."""
        found = self.certified(evidence, needed)
        if self.pick == "uniform":
            return int(rng.pick(found, "pick"))
        now = evidence.wealth.now[found]
        return int(rng.pick([j for j, w in zip(found, now, strict=True) if w == now.max()], "ties"))

    def fired(
        self, hood: Hood, evidence: Evidence, needed: float, price: float, anchors: int, ahead: int | None, rng: Draws
    ) -> str:
        """Which test ends the look."""
        if self.certified(evidence, needed):
            return "certified"
        if ahead is None:
            return "exhausted"
        degree = len(hood.peers)
        if self.stop == "voi" and evidence.leader is None:
            pays = not worth_stopping(evidence.differences, self.delta, price * (ahead - anchors))
        elif self.stop == "predictive":
            pays = more_evidence_pays(
                evidence.of_current(),
                evidence.wealth.stakes[:, evidence.current()],
                needed,
                (degree - 1) / degree,
                price,
                future_looks(anchors, self.step, self.schedule(hood)[-1]),
                rng("predict"),
            )
        else:
            pays = True
        return "continue" if pays else "cost"

    def worth(self, evidence: Evidence, fired: str, spent: int) -> float:
        """What this decision was worth: estimated advantage if certified, minus its price."""
        degree = len(evidence.sums)
        gain = (degree - 1) / degree * float(evidence.of_current().mean()) if fired == "certified" else 0.0
        return gain - self.probe_cost * spent

    def stage(
        self, evidence: Evidence, needed: float, anchors: int, ahead: int | None, price: float, fired: str
    ) -> Stage:
        """One line of the trace: wealth against its threshold."""
        seen = evidence.differences.shape[1]
        risks = evidence.sums / seen
        return Stage(
            anchors=anchors,
            fired=fired,
            test="wealth",
            risks=tuple(risks.tolist()),
            advantage=float(risks.mean() - risks.min()),
            next_cost=None if ahead is None else price * (ahead - anchors),
            wealth=tuple(evidence.wealth.now.tolist()),
            threshold=needed,
        )


@dataclass(frozen=True)
class Gate:
    """Whether probing has paid at this client: the discounted sum of what its past decisions were worth.

    Its sign is that of the discounted mean, which is all the gate looks at.
    """

    total: float = 0.0
    probed: int = 0

    DECAY: ClassVar[float] = 0.7
    EXPLORE: ClassVar[float] = 0.05
    WARM_UP: ClassVar[int] = 2

    @classmethod
    def of(cls, state: State) -> Gate:
        """From a client's state."""
        return cls(state.get("gate_total", 0.0), state.get("gate_probed", 0))

    def state(self) -> State:
        """As a client's state."""
        return {"gate_total": self.total, "gate_probed": self.probed}

    def shut(self, rng: Draws) -> bool:
        """Whether to skip probing now."""
        if self.probed < self.WARM_UP or self.total > 0:
            return False
        return bool(rng("gate").random() >= self.EXPLORE)

    def after(self, worth: float) -> Gate:
        """The memory after a probed round."""
        return Gate(self.DECAY * self.total + worth, self.probed + 1)
