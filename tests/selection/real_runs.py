"""Whole runs of a real selector through real decisions, in the worlds of run_nulls.py.

    python tests/selection/real_runs.py results/level-real.csv

400 receivers through 150 rounds of every case below; what the file already holds stays.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from run_nulls import ALL, DROP_OUTS, ON_THE_LINE, Null, Play, everything, limits

from sagefl import Draws, Exchange, Hood, Outcome, Probe, Reason, SageM, Selector
from sagefl.selection.outcome import State
from sagefl.selection.pool import Capital, differences, draw_asked, log_e_value
from sagefl.selection.selector import Deciding

SelectorFor = Callable[[Null], Selector]


def certified(outcome: Outcome) -> bool:
    """Whether somebody was taken or dropped by proof, or all were; false in every world in which all are null."""
    return outcome.reason in (Reason.CERTIFIED, Reason.HOME)


def proven(null: Null, delta: float = 0.1, directions: int = 3) -> Callable[[Outcome], bool]:
    """Whether a false certificate is held, acted upon or not; of a rule that keeps its capital as `Capital` does."""
    needed = Capital(delta, null.degree, directions=directions).needed

    def held(outcome: Outcome) -> bool:
        capital = Capital.of(outcome.state or {}, round=0, delta=delta, peers_ever=null.degree).held
        on = (capital[p] for p in null.checked if p in capital)
        return any(max(h.better, h.worse, h.useless) >= needed for h in on)

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
    """The smallest rule on the certificate: eight anchors of everybody, a draw among those certified better.

    With `some` it asks that many about each anchor, drawn anew.
    """

    id: ClassVar[str] = ""

    peers_ever: int = 2
    delta: float = 0.1
    some: int | None = None

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        mask = None if self.some is None else draw_asked(len(hood.peers), 8, self.some, rng("whom"))
        losses = yield Probe(hood.peers, 0, 8, mask=mask)
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


# The cases ------------------------------------------------------------------------------------------------------------


def as_it_comes(null: Null) -> SageM:
    """It asks for as long as its patience lasts, and then in a tenth of the rounds."""
    return SageM(block=null.each, kind="probs", loss="ce") if null.clip < 1 else SageM(block=null.each)


def smallest(null: Null) -> Remembering:
    return Remembering(peers_ever=null.degree)


def asking_some(null: Null) -> Remembering:
    return Remembering(peers_ever=null.degree, some=SOME[null.degree])


def always_asking(null: Null) -> SageM:
    """Held to no margin either, so that every proof is acted upon."""
    return SageM(recheck=1.0, margin=0.0, block=null.each)


BY_DEFAULT = "sage-m"
RULES: dict[str, SelectorFor] = {
    BY_DEFAULT: as_it_comes,
    "the smallest rule": smallest,
    "sage-m, always asking": always_asking,
    "the smallest rule, asking some": asking_some,
}
SOME = {7: 3, 3: 2}  # of so many peers, so many are asked about an anchor, as in these worlds
PARTIAL = ("partial, tied", "partial, the trap")
DECIDED = ("tied 2", "one wrong 7", "duplicates of 8", "adaptive 7", "churn", "private, tied")
MORE = {
    BY_DEFAULT: (
        *ON_THE_LINE,
        *DROP_OUTS,
        "pool of 8",
        "pool of 16",
        "pool of 128",
        "correlated 7",
        "drifting",
        "graded",
        "graded, drifting",
    ),
    "the smallest rule": (),
    "sage-m, always asking": (*ON_THE_LINE, "rare drop-outs"),
}
REAL = [(rule, name) for rule, more in MORE.items() for name in (*DECIDED, *more)] + [
    ("the smallest rule, asking some", name) for name in PARTIAL
]


def count_real(rule: str, name: str, runs: int = 400, rounds: int = 150) -> int:
    """Runs that ever decide by a false certificate; of some rules, that ever hold one, acted upon or not."""
    null = ALL[name]
    is_false = certified
    if rule == BY_DEFAULT:
        is_false = proven(null, directions=2 if null.clip < 1 else 3)
    elif name in PARTIAL:  # the rule draws whom it asks, and in the trap some certificates are true
        null = replace(null, seen=everything)
        is_false = proven(null, directions=2)
    return int(false_runs(RULES[rule], null, runs, rounds, is_false).any(axis=1).sum())


def record(path: Path, runs: int = 400) -> None:
    """Write down what a file does not hold yet."""
    names = ("rule", "null", "runs", "false", "share", "low", "high")
    rows = list(csv.DictReader(path.open(encoding="utf-8", newline=""))) if path.exists() else []
    held = {(row["rule"], row["null"]): row for row in rows}
    for case in REAL:
        if case not in held:
            count = count_real(*case, runs)
            share = (f"{value:.4f}" for value in (count / runs, *limits(count, runs)))
            held[case] = dict(zip(names, (*case, str(runs), str(count), *share), strict=True))
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows(held[case] for case in REAL if case in held)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
