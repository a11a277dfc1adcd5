"""Whole runs in which a certificate is false: no peer is better, worse or (where there is a line) useless in any round.

Thousands of receivers play at once, each with its own coin. A `Null` says what the peers would answer on the whole
pool in a round, knowing everything up to that round; then the receivers draw their orders and ask. The bets are those
of `sagefl.selection.pool` in a form that plays 20,000 runs in seconds; test_whole_run.py compares the two.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import beta

from sagefl.selection.betting import BETS
from sagefl.selection.pool import Capital, differences, draw_asked, excess

NAN = float("nan")
CHUNK = 1000


@dataclass
class Play:
    """Where all runs stand before a round: what an adversary knows."""

    runs: int
    null: Null
    rng: np.random.Generator
    round: int = 0
    kept: dict[str, np.ndarray] = field(default_factory=dict)  # what a world keeps from round to round

    def __post_init__(self) -> None:
        self.capital = np.zeros((self.null.bets, self.runs, self.null.degree))  # log-capital: better, worse, useless
        self.asked = np.zeros((self.runs, self.null.anchors))  # how often each anchor has been asked about

    def orders(self) -> np.ndarray:
        return self.rng.random((self.runs, self.null.anchors)).argsort(axis=-1)


Losses = Callable[[Play], np.ndarray]  # runs x peers x anchors of the whole pool
Seen = Callable[[Play, np.ndarray], tuple[np.ndarray, np.ndarray | None]]  # answers to what was asked, who was silent


def everything(play: Play, asked: np.ndarray) -> tuple[np.ndarray, None]:
    return asked, None


@dataclass(frozen=True)
class Null:
    """A world in which `peers` (None: all) are neither better nor worse than a random draw in any round."""

    degree: int
    anchors: int
    losses: Losses
    seen: Seen = everything
    peers: tuple[int, ...] | None = None
    clip: float = 1.0
    each: int = 8  # anchors asked a round
    frozen: bool = True  # the same models in all rounds
    line: Callable[[int], float] | None = None  # round -> the risk above which a peer is useless: that of all peers

    @property
    def bets(self) -> int:
        return 2 if self.line is None else 3

    @property
    def checked(self) -> list[int]:
        return list(range(self.degree)) if self.peers is None else list(self.peers)


# What peers answer ----------------------------------------------------------------------------------------------------


def tied(share: float = 0.5) -> Losses:
    """Every peer is wrong on the same number of anchors, drawn for each peer by itself."""

    def draw(play: Play) -> np.ndarray:
        d, n = play.null.degree, play.null.anchors
        ranks = play.rng.random((play.runs, d, n)).argsort(axis=-1)
        return (ranks < round(share * n)).astype(float)

    return draw


def falling(round: int) -> float:
    """A line that falls while one's own model learns, and stays at a half."""
    return max(28 - round, 20) / 40


def on_the_line(play: Play) -> np.ndarray:
    """Peers that learn as fast as one's own model: always just not useless."""
    assert play.null.line is not None
    return tied(play.null.line(play.round))(play)


def correlated(play: Play) -> np.ndarray:
    """Errors on the same hard anchors, but for a few of each peer's own."""
    d, n = play.null.degree, play.null.anchors
    hardness = play.rng.random((play.runs, 1, n)) + 0.3 * play.rng.random((play.runs, d, n))
    return (hardness.argsort(axis=-1).argsort(axis=-1) < n // 3).astype(float)


def rotated(losses: Losses) -> Losses:
    """Any losses of n/d anchors, made a tie: each anchor d times, the peers' losses handed on by one every time."""

    def draw(play: Play) -> np.ndarray:
        d, n = play.null.degree, play.null.anchors
        base = losses(play)[:, :, : n // d]
        return np.concatenate([np.roll(base, shift, axis=1) for shift in range(d)], axis=-1)

    return draw


def one_wrong(play: Play) -> np.ndarray:
    """Peer 0 is wrong everywhere, nobody else anywhere; to be rotated."""
    x = np.zeros((play.runs, play.null.degree, play.null.anchors))
    x[:, 0] = 1
    return x


def one_right(play: Play) -> np.ndarray:
    return 1 - one_wrong(play)


def graded(play: Play) -> np.ndarray:
    """Small losses close to each other, as cross-entropies are, with a long tail."""
    shape = play.runs, play.null.degree, play.null.anchors
    return np.minimum(0.05 * play.rng.exponential(size=shape) * (1 + play.rng.exponential(size=shape)), 1)


def duplicated(losses: Losses, copies: int = 8) -> Losses:
    """Frames of one film: every anchor eight times."""

    def draw(play: Play) -> np.ndarray:
        few = Play(play.runs, Null(play.null.degree, play.null.anchors // copies, losses), play.rng)
        return losses(few).repeat(copies, axis=-1)

    return draw


def adaptive(play: Play) -> np.ndarray:
    """Models fitted to all past questions: the peer with most capital is right on those asked most, nobody else is.

    On the other half of the pool it is reversed, so all are tied; all variance goes to the peer closest to success.
    """
    n, runs = play.null.anchors, np.arange(play.runs)
    ranks = (-play.asked - play.rng.random(play.asked.shape)).argsort(axis=-1).argsort(axis=-1)
    known = ranks < n // 2
    x = np.repeat(known[:, None, :], play.null.degree, axis=1).astype(float)
    leader = play.capital.swapaxes(0, 1).reshape(play.runs, -1).argmax(axis=-1) % play.null.degree
    x[runs, leader] = 1 - x[runs, leader]
    return x


def timid(play: Play) -> np.ndarray:
    """The same, with the leader's gamble shrunk as it comes closer: no capital is wasted by overshooting."""
    needed = np.log(play.null.degree / 0.05)
    gap = np.clip(needed - play.capital.max(axis=(0, 2)), 0.05, 1)
    return 0.5 + gap[:, None, None] * (adaptive(play) - 0.5)


def steps(play: Play) -> np.ndarray:
    """Losses constant at 0, .5 and 1: the middle peer is exactly a random draw."""
    return np.broadcast_to(np.array([0.0, 0.5, 1.0])[:, None], (play.runs, 3, play.null.anchors)).copy()


# What the receiver gets to see ----------------------------------------------------------------------------------------


def private(epsilon: float = 1.0, classes: int = 10) -> Seen:
    """Randomised response of a new snapshot every round: fresh noise on every answer."""
    e = np.exp(epsilon)
    p, q = e / (e + classes - 1), 1 / (e + classes - 1)

    def seen(play: Play, asked: np.ndarray) -> tuple[np.ndarray, None]:
        return (play.rng.random(asked.shape) < (1 - p) + (p - q) * asked).astype(float), None

    return seen


def private_copies(copies: int) -> Losses:
    """Tied peers of new snapshots that answer privately about a pool with so many copies of every input."""

    def draw(play: Play) -> np.ndarray:
        few = Play(play.runs, Null(play.null.degree, play.null.anchors // copies, tied()), play.rng)
        truth = play.kept.setdefault("truth", few.null.losses(few))
        return private()(play, truth)[0].repeat(copies, axis=-1)

    return draw


def partial(each: int) -> Seen:
    """`each` of the peers asked about every anchor, drawn anew."""

    def seen(play: Play, asked: np.ndarray) -> tuple[np.ndarray, None]:
        runs, d, m = asked.shape
        mask = draw_asked(d, runs * m, each, play.rng).reshape(d, runs, m).swapaxes(0, 1)
        return np.where(mask, asked, NAN), None

    return seen


def partial_once(each: int) -> Seen:
    """The trap: the same peers asked about all anchors of a round."""

    def seen(play: Play, asked: np.ndarray) -> tuple[np.ndarray, None]:
        runs, d, _ = asked.shape
        mask = draw_asked(d, runs, each, play.rng).T[:, :, None]
        return np.where(mask, asked, NAN), None

    return seen


def churn(play: Play, asked: np.ndarray) -> tuple[np.ndarray, None]:
    """About half of the peers are there in a round, two at least."""
    runs, d, _ = asked.shape
    present = play.rng.random((runs, d)) < 0.5
    present[np.arange(runs), play.round % d] = present[np.arange(runs), (play.round + 1) % d] = True
    return np.where(present[:, :, None], asked, NAN), None


def silent_where_wrong(play: Play, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Peers that prefer not to answer what they get wrong."""
    silent = (asked == 1) & (play.rng.random(asked.shape) < 0.5)
    return np.where(silent, NAN, asked), silent


def rarely_leaving(play: Play, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Now and then a peer leaves in the middle of a round."""
    runs, d, m = asked.shape
    at = np.where(play.rng.random((runs, d)) < 0.01, play.rng.integers(0, m, (runs, d)), m)
    silent = np.arange(m) >= at[:, :, None]
    return np.where(silent, NAN, asked), silent


def leaving(play: Play, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Peers that leave the round as soon as they have been wrong more often than right."""
    behind = np.cumsum(2 * asked - 1, axis=-1) - (2 * asked - 1) > 0
    silent = np.logical_or.accumulate(behind, axis=-1)
    return np.where(silent, NAN, asked), silent


# The run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """How capital is kept and bets are looked at."""

    looks: bool = False
    forget: float = 1.0
    window: int = 0
    rounds: int = 150
    directions: int = 2  # that count, and that delta is split for
    delta: float = 0.1
    union: int | None = None  # another number of peers in the threshold, for a control
    fresh: bool = True  # another order every round; False: a control

    def needed(self, null: Null) -> float:
        peers = null.degree if self.union is None else self.union
        rounds = self.rounds if self.window else None
        return Capital(self.delta, peers, self.forget, self.window, rounds, self.directions).needed


def wealth(y: np.ndarray, pool: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Wealth on Y (..., anchors) at the end, and the largest seen by looking after every anchor (`pool` None: once)."""
    w, total, best = np.ones((len(BETS), *y.shape[:-1])), np.zeros(y.shape[:-1]), np.zeros(y.shape[:-1])
    g = BETS.reshape(-1, *[1] * total.ndim)
    for i in range(y.shape[-1]):
        new = np.ascontiguousarray(y[..., i])
        if pool is None:
            w *= 1 + g * new
            continue
        mean = total / (i - pool)
        w *= 1 + np.minimum(g, BETS[-1] / (1 + np.maximum(mean, 0))) * (new - mean)
        total += new
        np.maximum(best, w.mean(axis=0), out=best)
    now = w.mean(axis=0)
    return now, now if pool is None else best


def evidence(null: Null, play: Play, order: np.ndarray) -> np.ndarray:
    """Y of what is asked this round: bets x runs x peers x anchors, 0 where nothing is bet."""
    asked = order[:, None, : null.each]
    if null.frozen and "losses" not in play.kept:
        play.kept["losses"] = null.losses(play)
        play.kept["y"] = differences(play.kept["losses"], clip=null.clip)
    if null.frozen and null.seen is everything and null.line is None:
        y = np.take_along_axis(play.kept["y"], asked, axis=-1)
        return np.stack([y, -y])
    losses = play.kept["losses"] if null.frozen else null.losses(play)
    answers, silent = null.seen(play, np.take_along_axis(losses, asked, axis=-1))
    y = differences(answers, silent=silent, clip=null.clip)
    down = -y if silent is None else differences(answers, silent=silent, clip=null.clip, worse=True)
    useless = [] if null.line is None else [excess(answers, null.line(play.round), silent=silent)]
    return np.nan_to_num(np.stack([y, down, *useless]))


def false_by_round(null: Null, runs: int, terms: Terms, seed: int = 0) -> np.ndarray:
    """Runs x rounds: whether some peer was certified falsely in that round."""
    found = []
    for start in range(0, runs, CHUNK):
        play = Play(min(CHUNK, runs - start), null, np.random.default_rng([seed, start]))
        order, false = play.orders(), []
        needed, checked = terms.needed(null), null.checked
        for play.round in range(terms.rounds):
            if terms.window and play.round % terms.window == 0:
                play.capital[:] = 0
            order = play.orders() if terms.fresh else order
            y = evidence(null, play, order)
            last, best = map(np.log, wealth(y, null.anchors if terms.looks else None))
            before = terms.forget * play.capital
            reached = (before + best)[: terms.directions, :, checked] >= needed
            false.append(reached.any(axis=(0, 2)))
            play.capital = before + last
            np.put_along_axis(
                play.asked, order[:, : null.each], np.take_along_axis(play.asked, order[:, : null.each], -1) + 1, -1
            )
        found.append(np.array(false).T)
    return np.concatenate(found)


def limits(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson limits, two-sided."""
    tail = (1 - level) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, total - count + 1))
    high = 1.0 if count == total else float(beta.ppf(1 - tail, count + 1, total - count))
    return low, high


def largest_advantage(null: Null, rounds: int, runs: int = 20) -> float:
    """The largest |D| of a peer that is said to be null, over some runs and rounds: that they are nulls indeed."""
    play, most = Play(runs, null, np.random.default_rng(9)), 0.0
    for play.round in range(rounds):
        losses = null.losses(play)
        y = differences(losses, clip=null.clip).mean(axis=-1)
        if null.line is not None:
            y = np.maximum(np.abs(y), np.abs(losses.mean(axis=-1) - null.line(play.round)))
        most = max(most, float(np.abs(y[:, null.checked]).max()))
        play.capital = play.rng.normal(size=play.capital.shape)
        play.asked += play.rng.integers(0, 2, play.asked.shape)
    return most


TIES = {f"tied {d}": Null(d, 40, tied()) for d in (2, 3, 7, 15)}
NULLS: dict[str, Null] = TIES | {
    "one wrong 2": Null(2, 40, rotated(one_wrong)),
    "one wrong 7": Null(7, 42, rotated(one_wrong)),
    "one right 7": Null(7, 42, rotated(one_right)),
    "correlated 7": Null(7, 40, correlated),
    "duplicates of 8": Null(6, 128, duplicated(tied())),
    "pool of 8": Null(3, 8, tied(), each=4),
    "pool of 16": Null(3, 16, tied()),
    "pool of 128": Null(7, 128, tied()),
    "churn": Null(7, 40, tied(), churn),
    "drifting": Null(7, 40, tied(0.3), frozen=False),
    "adaptive 2": Null(2, 40, adaptive, frozen=False),
    "adaptive 7": Null(7, 40, adaptive, frozen=False),
    "adaptive, no overshooting 3": Null(3, 128, timid, frozen=False),
    "graded": Null(6, 48, rotated(graded), clip=0.1),
    "graded, drifting": Null(3, 48, rotated(graded), clip=0.1, frozen=False),
}
BY_ONE_BET: dict[str, Null] = {  # not everybody's answer is there, or it is noisy: no looks within a round
    "private, tied": Null(3, 40, tied(), private()),
    "private, the same answers": Null(2, 40, lambda play: np.zeros((play.runs, 2, 40)), private(4.0)),
    "partial, tied": Null(7, 40, tied(), partial(3)),
    "partial, the trap": Null(3, 40, steps, partial(2), peers=(1,)),
}
DROP_OUTS: dict[str, Null] = {
    "rare drop-outs": Null(5, 40, tied(), rarely_leaving),
    "silent where wrong": Null(5, 40, tied(), silent_where_wrong),
    "leaving when behind": Null(5, 40, tied(), leaving),
}
HALF = {"line": lambda round: 0.5}
ON_THE_LINE: dict[str, Null] = {  # three bets at once, as sage-m makes them
    **{f"useless? tied {d}": Null(d, 40, tied(), **HALF) for d in (2, 7, 15)},
    "useless? duplicates of 8": Null(6, 128, duplicated(tied()), **HALF),
    "useless? adaptive 7": Null(7, 40, adaptive, frozen=False, **HALF),
    "useless? learning": Null(7, 40, on_the_line, frozen=False, line=falling),
    "useless? churn": Null(7, 40, tied(), churn, **HALF),
    "useless? silent where wrong": Null(5, 40, tied(), silent_where_wrong, **HALF),
}
ONE_BET, LOOKS = Terms(), Terms(looks=True)
WINDOWS, FORGETTING = Terms(looks=True, window=30), Terms(looks=True, forget=0.9)
THREE_BETS = Terms(directions=3)
ALL = NULLS | BY_ONE_BET | DROP_OUTS | ON_THE_LINE
SIMPLE = (*TIES, "one wrong 2", "one wrong 7", "one right 7", "correlated 7", "duplicates of 8", "pool of 128")
CASES: dict[tuple[str, str], Terms] = (
    {(name, "looks"): LOOKS for name in NULLS | DROP_OUTS}
    | {(name, "one bet"): ONE_BET for name in (*SIMPLE, *BY_ONE_BET)}
    | {(name, "three bets"): THREE_BETS for name in ON_THE_LINE}
    | {(name, "windows"): WINDOWS for name in ("tied 3", "one wrong 7", "adaptive 7")}
    | {(name, "forgetting"): FORGETTING for name in ("tied 3", "one wrong 7", "adaptive 7")}
)


def count_false(null: Null, runs: int, terms: Terms) -> int:
    """Runs that ever certify falsely; with forgetting, where the promise is one per round, those of the worst round."""
    false = false_by_round(null, runs, terms)
    return int(false.any(axis=1).sum() if terms.forget == 1 else false.sum(axis=0).max())


def record(path: Path, runs: int = 20_000) -> None:
    """Write down what a file does not hold yet: `python tests/selection/run_nulls.py results/level.csv`."""
    names = ("null", "form", "peers", "pool", "rounds", "runs", "false", "share", "low", "high")
    rows = list(csv.DictReader(path.open(encoding="utf-8", newline=""))) if path.exists() else []
    held = {(row["null"], row["form"]): row for row in rows}
    for (name, form), terms in CASES.items():
        if (name, form) not in held:
            null, count = ALL[name], count_false(ALL[name], runs, terms)
            share = (f"{value:.4f}" for value in (count / runs, *limits(count, runs)))
            values = (name, form, null.degree, null.anchors, terms.rounds, runs, count, *share)
            held[name, form] = dict(zip(names, values, strict=True))
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows(held[case] for case in CASES if case in held)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
