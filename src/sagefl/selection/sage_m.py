"""SAGE-M: remember. One rule for every world, and one guarantee for the whole run.

Peers persist from round to round, so evidence about them can: a few fresh anchors a round are bet on
(`sagefl.selection.pool`), and the capital of every peer is carried on until it proves that the peer is better or worse
than a random draw, or useless: with a risk on one's own pool that lies more than `useless` of the way from the lowest
that one's own model has had to always wrong. Then the rule draws among the peers proven better; if there are none,
among those proven neither worse nor useless; if nothing is proven, among all, which is gossip. Where *all* are proven
useless, there is nobody to pull and one's own model stays. It asks everybody at first, then those who are not useless,
so that these are compared with each other, and once in a while everybody again.

What is promised: a peer that was no better than a random draw on the receiver's own pool in every round in which it was
bet on is *ever* certified better, in the whole run, with probability at most delta/3 for all such peers of a receiver
together; likewise "worse" and "useless". Only the receiver's own shuffle is random in this: nothing is assumed about
anchors or models. It is about the pool, not about new data, and about peers that were *never* better. docs/proof.md has
the proof.

Leaving never helps: whether to ask, whom, and at what price goes by the neighbourhood with which the decision began.
Whoever leaves before it ends, be it without an answer, after some answers or all, or when its model is fetched or
tried, counts as silent on every anchor that it was to be asked about; also where nobody is left.

Three things are no proofs but ways to use them; they can cost power, not validity. A proof counts as long as the peer's
recent answers agree with it: "useless" by the line of this round, "worse" by at least `margin` to the neighbourhood,
"better" by at least `margin` to those who are left. Among peers proven better, those within `margin` of the best are
drawn from. And with `outside="home"` a model is tried before it is kept: if mixed with one's own it raises the error on
one's own pool, one stays at home, and if it raises it by more than `margin`, that peer waits for a recheck. That costs
no bytes beyond the model, and tells what no answer before the download can: whether all neighbours harm, however well
they answer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from .options import option
from .outcome import Exchange, Reason, Stage, State
from .pool import Capital, differences, excess, log_e_value
from .requests import ME, Array, Inspect, Peer, Probe, Request
from .scoring import Scoring, kinds, scoring
from .selector import Deciding, Draws, Hood, ProbingSelector
from .theory import DELTA

KEEP = 0.7  # share of what was remembered of a peer's advantage that a new look leaves
HORIZON = 60  # rounds over which the first evidence may be paid off
GRADED_CLIP = 0.1  # graded losses differ by little: differences are cut here and scaled up


@dataclass(frozen=True)
class Memory:
    """What a receiver remembers besides its capital. Nothing is changed in place."""

    ahead: Mapping[Peer, float] = field(default_factory=dict)  # each peer's recent advantage over the neighbourhood
    risk: Mapping[Peer, float] = field(default_factory=dict)  # ... and its recent risk
    mine: float = 1.0  # the lowest risk that one's own model has had: pulling useless models spoils it
    refused: tuple[Peer, ...] = ()  # peers whose model did much harm when last tried
    spent: float = 0.0  # bytes of probes so far, in models

    @classmethod
    def of(cls, state: State) -> Memory:
        """Read it from a client's state."""
        ahead, risk, refused = state.get("ahead", {}), state.get("risk", {}), tuple(state.get("refused", ()))
        return cls(ahead, risk, state.get("mine", 1.0), refused, state.get("spent", 0.0))

    def to_state(self) -> State:
        """As part of a client's state."""
        known = {"ahead": dict(self.ahead), "risk": dict(self.risk), "mine": self.mine}
        return {**known, "refused": list(self.refused), "spent": self.spent}

    def with_own(self, risk: float | None) -> Memory:
        """At the beginning of a round, when it is known how the own model does."""
        return self if risk is None else replace(self, mine=min(self.mine, risk))

    def seen(self, peers: Sequence[Peer], losses: Array, spent: float) -> Memory:
        """After a look: each peer's advantage and risk on these anchors, and a share of what was known of them."""
        if not peers:
            return replace(self, spent=self.spent + spent)
        now = (losses.mean(axis=0) - losses).mean(axis=1), losses.mean(axis=1)
        ahead, risk = (
            {**old, **{p: KEEP * old.get(p, x) + (1 - KEEP) * x for p, x in zip(peers, new.tolist(), strict=True)}}
            for old, new in zip((self.ahead, self.risk), now, strict=True)
        )
        return replace(self, ahead=ahead, risk=risk, spent=self.spent + spent)

    def tried(self, peer: Peer, harmful: bool) -> Memory:
        """After a trial of a peer's model."""
        others = tuple(p for p in self.refused if p != peer)
        return replace(self, refused=(*others, peer) if harmful else others)


@dataclass(frozen=True)
class SageM(ProbingSelector):
    """A draw among peers proven better than a random draw, else among those not proven worse or useless.

    `certified` means that somebody was taken or dropped by proof, `home` that there was nobody to pull. How many peers
    can ever be neighbours decides the threshold, and the caller says it (`begin(..., ever=...)`); if not said, those
    met so far are counted, and delta is only as true as that. The caller also says which share of the pool its own
    model gets wrong (`mine=...`); if not said, or with noisy answers, nobody is proven useless, and as with `useless=1`
    somebody is pulled in every round (the paper's B = 1).
    """

    id: ClassVar[str] = "sage-m"
    summary: ClassVar[str] = "remember: bet on a few anchors a round until peers are proven better or worse than a draw"
    citation: ClassVar[str] = "This project (beyond the SAGE paper)."
    fidelity: ClassVar[str] = "ours: there is no paper to be true to"
    evidence: ClassVar[str] = "answers to a few anchor inputs, remembered over rounds"
    remembers: ClassVar[bool] = True

    kind: str = option(
        "auto",
        "what peers answer; auto: latents where the model has them, else labels",
        choices=lambda: ("auto", *kinds()),
    )
    delta: float = option(DELTA, "chance of ever certifying a peer falsely in the whole run, per receiver", gt=0, lt=1)
    outside: Literal["gossip", "home"] = option(
        "gossip",
        "gossip: pull whoever is of use; home: try a model before it is kept, and stay at home if it harms",
    )
    block: int = option(8, "anchors a round, when it asks", ge=1)
    patience: int = option(12, "rounds in which a peer is asked at first, unless it is settled before", ge=1)
    recheck: float = option(0.1, "chance of asking in a later round", ge=0, le=1)
    margin: float = option(0.1, "differences in risk below this are not acted upon", ge=0)
    budget: float = option(0.05, f"most bytes of probes as a share of the models', over {HORIZON} rounds or more", gt=0)
    useless: float = option(
        0.5,
        "drop peers proven to be beyond this share of the way from one's own risk to always wrong; 1: none, and "
        "pull in every round",
        ge=0.1,
        le=1,
    )
    forget: float = option(1.0, "power of the capital before each bet; below 1 delta holds per round", gt=0, le=1)
    window: int = option(0, "rounds after which capital begins anew, 0 for never", ge=0)

    noisy: bool = option(
        False, "answers are perturbed, as with privacy: peers are compared with each other, not with one's own model"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        Capital(self.delta, peers_ever=1, forget=self.forget, window=self.window)  # whether the two fit together

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        """The one form that its options name; `auto` is labels until `suited` knows better."""
        return (scoring("labels" if self.kind == "auto" else self.kind, self.loss),)

    @property
    def reach(self) -> int:
        """A block."""
        return self.block

    @property
    def wants_mine(self) -> bool:
        """To prove peers useless, which is worked out for 0-1 losses only."""
        return self.useless < 1 and self.loss == "error"

    def suited(self, *, latents: bool, graded: bool = False) -> SageM:
        """The rule for models that have latents, or that have none."""
        return self if self.kind != "auto" else replace(self, kind="latents" if latents else "labels")

    # The rule -----------------------------------------------------------------------------------------------------

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Ask if it is time to, bet, and draw by what is proven."""
        whole = self.whole(hood)
        if not whole.peers:
            return Exchange.none()
        capital, memory = self.capital(hood, state), Memory.of(state).with_own(hood.mine)
        again = bool(rng("recheck").random() < self.recheck)
        whom = whole.peers if again else self.useful(whole, capital, memory)  # whom the others are compared with, too
        asked = self.anchors(whole, whom, capital, memory, again)
        if asked:
            told = tuple(p for p in whom if p not in hood.silent)
            losses = (yield Probe(told, 0, asked, self.scoring)) / self.loss_bound if told else np.empty((0, asked))
            gone = tuple(p for p in whom if p in hood.silent)
            capital = self.bet(told, gone, capital, losses, self.line(hood, memory))
            memory = memory.seen(told, losses, spent=self.price(hood, whom, asked))
        if not hood.peers:
            return Exchange.none(Reason.FAILED, state=self._state(capital, memory))
        names, reason = self.standing(hood, capital, memory, bool(asked))
        stage = self.stage(hood, capital, memory, asked, reason)
        open_to = [p for p in names if again or p not in memory.refused]
        if not open_to:
            return self.stay(stage, capital, memory)
        peer = rng.pick(open_to, "gossip")
        if self.outside == "home":
            return (yield from self.after_trial(peer, reason, stage, capital, memory))
        return self.take(peer, reason, stage, capital, memory)

    def standing(self, hood: Hood, capital: Capital, memory: Memory, asked: bool) -> tuple[tuple[Peer, ...], Reason]:
        """Whom the evidence leaves to draw from, and why; nobody if everybody is useless."""
        proven_better, proven_worse = set(capital.certified_better()), set(capital.certified_worse())
        ahead = {p: memory.ahead.get(p, 0.0) for p in hood.peers}
        useful = self.useful(hood, capital, memory)
        if not useful:
            return (), Reason.HOME
        kept = tuple(p for p in useful if p not in proven_worse or ahead[p] > -self._margin) or useful
        usual = sum(ahead[p] for p in kept) / len(kept)  # whoever only beats those who are dropped anyway is not better
        better = [p for p in kept if p in proven_better and ahead[p] >= usual + self._margin]
        if better:
            best = max(ahead[p] for p in better)
            return tuple(p for p in better if ahead[p] >= best - self._margin), Reason.CERTIFIED
        if len(kept) < len(hood.peers):
            return kept, Reason.CERTIFIED
        if len(hood.peers) == 1:
            return kept, Reason.ONLY
        if not hood.anchors:
            return kept, Reason.NO_ANCHORS
        return kept, Reason.OPEN if asked else Reason.GATED

    def after_trial(
        self, peer: Peer, reason: Reason, stage: Stage, capital: Capital, memory: Memory
    ) -> Generator[Request, Any, Exchange]:
        """Pull, try the mix on one's own pool, keep it or stay at home; whoever did much harm waits for a recheck."""
        mine, mixed = yield Inspect((peer,), "anchor", "error", groups=((ME,), (ME, peer)))
        memory = memory.tried(peer, harmful=bool(mixed - mine > self.margin))
        stage = replace(stage, trial=(float(mine), float(mixed)))
        if mixed <= mine:
            return self.take(peer, reason, stage, capital, memory)
        return self.stay(stage, capital, memory)

    # Its parts ----------------------------------------------------------------------------------------------------

    def whole(self, hood: Hood) -> Hood:
        """The neighbourhood with which the decision began: by it goes whether to ask, whom, and at what price."""
        return replace(hood, peers=(*hood.peers, *hood.silent), silent=()) if hood.silent else hood

    def useful(self, hood: Hood, capital: Capital, memory: Memory) -> tuple[Peer, ...]:
        """All but those proven useless, as long as their recent answers agree."""
        line, proven = self.line(hood, memory), set(capital.certified_useless())
        return tuple(p for p in hood.peers if line is None or p not in proven or memory.risk.get(p, 0.0) <= line)

    def line(self, hood: Hood, memory: Memory) -> float | None:
        """The risk above which a peer is useless in this round; None where nothing is known of one's own model."""
        if hood.mine is None or self.noisy or not self.wants_mine:
            return None
        return memory.mine + self.useless * (1 - memory.mine)

    def capital(self, hood: Hood, state: State) -> Capital:
        """What is held at the beginning of the round."""
        met = len({*state.get("capital", {}), *hood.peers, *hood.silent})
        return Capital.of(
            state,
            round=hood.round,
            delta=self.delta,
            peers_ever=met if hood.ever is None else hood.ever,
            forget=self.forget,
            window=self.window,
            rounds=hood.rounds,
            directions=3 if self.wants_mine else 2,
        )

    def anchors(self, hood: Hood, whom: Sequence[Peer], capital: Capital, memory: Memory, again: bool) -> int:
        """How many anchors to ask about now: a block while somebody is new and unsettled, later once in a while."""
        if not whom or (len(hood.peers) < 2 and self.line(hood, memory) is None):
            return 0
        settled = {*capital.certified_better(), *capital.certified_worse(), *capital.certified_useless()}
        held = capital.held
        young = any(p not in settled and (p not in held or held[p].bets < self.patience) for p in whom)
        asked = min(self.block, hood.anchors)
        rounds = max(HORIZON, hood.round + 1)
        affordable = memory.spent + self.price(hood, whom, asked) <= self.budget * rounds
        return asked if (young or again) and affordable else 0

    def price(self, hood: Hood, whom: Sequence[Peer], anchors: int) -> float:
        """What asking these peers about so many anchors costs, in models; nothing where nobody knows the bytes."""
        return (hood.price or 0.0) * anchors * len(whom)

    def bet(
        self, told: Sequence[Peer], gone: Sequence[Peer], capital: Capital, losses: Array, line: float | None
    ) -> Capital:
        """One bet in each direction on everybody asked; silence is held against those who are gone in all of them."""
        names = (*told, *gone)
        losses = np.vstack([losses, np.full((len(gone), losses.shape[1]), np.nan)])
        silent = np.isnan(losses) if gone else None
        clip = 1.0 if self.loss == "error" else GRADED_CLIP
        better = worse = useless = np.zeros(len(names))
        if len(names) > 1:
            better, worse = (log_e_value(differences(losses, worse=w, silent=silent, clip=clip)) for w in (False, True))
        if line is not None:
            useless = log_e_value(excess(losses, line, silent=silent))
        return capital.bet(names, better, worse, useless)

    def take(self, peer: Peer, reason: Reason, stage: Stage, capital: Capital, memory: Memory) -> Exchange:
        """The exchange with this peer."""
        make = Exchange.select if reason is Reason.CERTIFIED else Exchange.gossip
        return make(peer, reason, [stage], self._state(capital, memory))

    def stay(self, stage: Stage, capital: Capital, memory: Memory) -> Exchange:
        """No exchange: one's own model stays."""
        return Exchange.none(Reason.HOME, [replace(stage, fired=Reason.HOME)], self._state(capital, memory))

    def stage(self, hood: Hood, capital: Capital, memory: Memory, asked: int, reason: Reason) -> Stage:
        """The look of this round: recent risks, capital for and against every peer, and since when."""
        held = [capital.held.get(p) for p in hood.peers]
        risks = tuple(self.loss_bound * memory.risk.get(p, 1.0) for p in hood.peers) if asked else None
        return Stage(
            anchors=asked,
            fired=reason,
            test="memory",
            risks=risks,
            advantage=None if risks is None else sum(risks) / len(risks) - min(risks),
            wealth=tuple(h.better if h else 0.0 for h in held),
            against=tuple(max(h.worse, h.useless) if h else 0.0 for h in held),
            width=self.line(hood, memory),
            since=tuple(float(h.since) if h else float(hood.round) for h in held),
            threshold=capital.needed,
        )

    @property
    def _margin(self) -> float:
        return self.margin / self.loss_bound

    def _state(self, capital: Capital, memory: Memory) -> State:
        return {**capital.to_state(), **memory.to_state()}
