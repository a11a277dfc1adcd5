"""Whole runs of a real selector through real decisions, in the worlds of run_nulls.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from run_nulls import Null, Play

from sagefl import Draws, Exchange, Hood, Outcome, Probe, Reason, Selector
from sagefl.selection.outcome import State
from sagefl.selection.pool import Capital, differences, log_e_value
from sagefl.selection.selector import Deciding

SelectorFor = Callable[[Null], Selector]


def certified(outcome: Outcome) -> bool:
    """Whether somebody was taken or dropped by proof, or all were; false in every world in which all are null."""
    return outcome.reason in (Reason.CERTIFIED, Reason.HOME)


def proven(null: Null, delta: float = 0.1, directions: int = 3) -> Callable[[Outcome], bool]:
    """Whether any certificate is held, acted upon or not; of a rule that keeps its capital as `Capital` does."""
    needed = Capital(delta, null.degree, directions=directions).needed

    def held(outcome: Outcome) -> bool:
        capital = Capital.of(outcome.state or {}, round=0, delta=delta, peers_ever=null.degree).held
        return any(max(h.better, h.worse, h.useless) >= needed for h in capital.values())

    return held


def false_runs(
    rule: SelectorFor,
    null: Null,
    runs: int,
    rounds: int,
    is_false: Callable[[Outcome], bool] = certified,
    seed: int = 0,
) -> np.ndarray:
    """Runs x rounds: whether the decision of that round was certified, though nobody is better or worse.

    The order of the anchors is drawn anew for every decision and the outcome's state handed to the next one, as the
    simulator does. A world that adapts is shown the capital in the state, if the rule keeps it as `Capital` does.
    """
    play = Play(runs, null, np.random.default_rng(7))
    selector, states = rule(null), [None] * runs
    false = np.zeros((runs, rounds), dtype=bool)
    for play.round in range(rounds):
        if play.round == 0 or not null.frozen:
            losses = null.losses(play)
        order = play.orders()
        answers, _ = null.seen(play, np.take_along_axis(losses, order[:, None, :], axis=-1))
        for run in range(runs):
            outcome = decide(
                selector,
                answers[run],
                (play.round, run),
                state=states[run],
                round=play.round,
                rounds=rounds,
                me=run,
                ever=null.degree,
                mine=None if null.line is None else 2 * null.line(play.round) - 1,  # half of the way to always wrong
            )
            false[run, play.round] = is_false(outcome)
            states[run] = outcome.state if outcome.state is not None else states[run]
            for peer, holding in (states[run] or {}).get("capital", {}).items():
                play.capital[:2, run, peer] = holding[:2]
            play.asked[run, order[run, : outcome.anchors]] += 1
    return false


def decide(selector: Selector, answers: np.ndarray, seed: tuple[int, ...], **world: Any) -> Outcome:
    """The outcome on these answers, started over without whoever is silent, as a node does it; all NaN is not there."""
    there = np.flatnonzero(~np.isnan(answers).all(axis=1)).tolist()
    decision = selector.begin(there, answers.shape[1], seed, **world)
    while (probe := decision.request) is not None:
        told = answers[list(probe.peers), probe.start : probe.stop]
        silent = {p for p, row in zip(probe.peers, told, strict=True) if np.isnan(row).any()}
        if silent:
            decision = decision.restart([p for p in decision.hood.peers if p not in silent])
        else:
            decision.answer(told)
    return decision.outcome


@dataclass(frozen=True)
class Remembering(Selector):
    """The smallest rule on the certificate: eight anchors of everybody, a draw among those certified better."""

    id: ClassVar[str] = ""

    peers_ever: int = 2
    delta: float = 0.1

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        losses = yield Probe(hood.peers, 0, 8)
        capital = Capital.of(state, round=hood.round, delta=self.delta, peers_ever=self.peers_ever)
        bets = (log_e_value(differences(losses, worse=worse)) for worse in (False, True))
        capital = capital.bet(hood.peers, *bets)
        better = [p for p in capital.certified_better() if p in hood.peers]
        if better:
            return Exchange.select(rng.pick(better, "better"), Reason.CERTIFIED, state=capital.to_state())
        worse = capital.certified_worse()
        rest = [p for p in hood.peers if p not in worse] or list(hood.peers)
        reason = Reason.CERTIFIED if worse else Reason.EXHAUSTED
        return Exchange.gossip(rng.pick(rest, "gossip"), reason, state=capital.to_state())


@dataclass(frozen=True)
class Argmin(Selector):
    """A control: calls the empirically best peer certified once it has led by two errors."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        losses = yield Probe(hood.peers, 0, 8)
        totals = np.sort(losses.sum(axis=1))
        best = hood.peers[int(losses.sum(axis=1).argmin())]
        return Exchange.select(best, Reason.CERTIFIED if totals[1] - totals[0] >= 2 else Reason.COMMITTED)
