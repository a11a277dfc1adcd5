"""The certificate by design: who is better than a random draw *on the receiver's own pool*, over a whole run.

Every round the peers have published, so what each of them answers on each of the receiver's n anchors is fixed. Then
the receiver draws a fresh, uniformly random order of its pool and asks along it. With Y_i(j) in [-1, 1] the paired
difference of peer j to the mean of the others on anchor i (`differences`) and D(j) its mean over the whole pool, a bet
against "D(j) <= 0" is fair because of that draw alone: anchors may repeat each other, and models may have been fitted
to the pool or chosen in the knowledge of every earlier question.

* `log_e_value`: one bet a round on anchors fixed in number beforehand. It also bears partial asking and noisy answers.
* `Looks`: the same bet looked at after every anchor, sharper towards the end of the pool. Only if everybody answers.
* `Capital`: what the bets of all rounds came to, by peer, and who is certified by it.

A certificate says: in some round since the capital began this peer was better (or worse) on my pool than a random
draw from the others. It says nothing about other data. docs/proof.md has the statement and its proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from .betting import BETS, mean_of_exp
from .options import check
from .outcome import State
from .requests import Array, Mask, Peer

ROUNDING = 1e-9  # sums of differences this close to a whole number are that number


# The evidence of one round --------------------------------------------------------------------------------------------


def differences(
    losses: Array, *, worse: bool = False, silent: Mask | None = None, always: Sequence[int] = (), clip: float = 1.0
) -> Array:
    """Y of every peer on every anchor, from losses in [0, 1] of shape (..., peers, anchors).

    Positive speaks for "better", or for "worse" if that is what is bet on. NaN in the losses means not asked: peers are
    compared with those who were, and Y is NaN (no bet) where a peer was not asked or nobody is there to compare with.
    That is fair if the peers asked were drawn by `draw_asked`, with the same `always`.

    `silent` marks who was asked and did not answer. That counts as the full loss in a peer's own bet on being better
    and as none in the bets of the others; the other way round in bets on being worse. So silence never pays.

    `clip` is for graded losses, whose differences are small: those between two peers are cut at +-clip and divided by
    it. Then "better" means better in clipped differences. Cutting pair by pair keeps comparisons unbiased when only
    some are asked, and lets Y add up to zero over the peers.
    """
    degree = losses.shape[-2]
    if degree < 2:
        raise ValueError(f"a comparison needs at least two peers, got losses of shape {losses.shape}")
    if not 0 < clip <= 1:
        raise ValueError(f"clip must be above 0 and at most 1, got {clip}: losses lie in [0, 1]")
    steady = np.isin(np.arange(degree), always)
    asked: Mask = ~np.isnan(losses) if silent is None else ~np.isnan(losses) | silent
    if not asked[..., steady, :].all():
        raise ValueError("a peer listed in `always` was not asked about every anchor: leave it out of `always`")
    own, seen = (losses, losses) if silent is None else _without_answers(losses, silent, worse)
    drawn = asked & ~steady[:, None]
    # The drawn peers stand for all that might have been drawn; a peer is not compared with itself.
    stand_for = (degree - steady.sum() - ~steady)[:, None]
    there = drawn.sum(axis=-2, keepdims=True) - drawn
    total = _against(own, seen, drawn, clip) * (stand_for / np.maximum(there, 1))
    if steady.any():
        total += _against(own, seen, asked & steady[:, None], clip)
    mean = total / (1 - degree if worse else degree - 1)
    result: Array = np.where(asked & ((there > 0) | (stand_for == 0)), mean, np.nan)
    return result


def _against(own: Array, seen: Array, there: Mask, clip: float) -> Array:
    """Sums of the differences to all others who are there, each cut at +-clip and divided by it.

    Added peer by peer: NumPy's own sum may add in another order, and the size of a batch would change the last bit.
    """
    seen = np.where(there, seen, 0)
    if clip == 1:
        others = np.add.accumulate(seen, axis=-2)[..., -1:, :] - seen
        uncut: Array = others - (there.sum(axis=-2, keepdims=True) - there) * own
        return uncut
    sums = np.zeros(own.shape)
    for other in range(own.shape[-2]):
        pair = np.where(
            there[..., other : other + 1, :], np.clip(seen[..., other : other + 1, :] - own, -clip, clip), 0
        )
        pair[..., other, :] = 0
        sums += pair
    return sums / clip


def _without_answers(losses: Array, silent: Mask, worse: bool) -> tuple[Array, Array]:
    """Losses as they count for the peer itself and in comparisons of others, with silence held against each peer."""
    return np.where(silent, 0.0 if worse else 1.0, losses), np.where(silent, 1.0 if worse else 0.0, losses)


def excess(losses: Array, line: float, *, silent: Mask | None = None) -> Array:
    """Y of every peer against a fixed risk instead of the others': positive speaks for a risk above `line`.

    For losses in [0, 1], scaled so that Y stays in [-1, 1]. `silent` marks who was asked and did not answer: that
    counts as no loss, so silence never pays.
    """
    told = losses if silent is None else np.where(silent, 0.0, losses)
    result: Array = (told - line) / max(line, 1 - line)
    return result


def draw_asked(degree: int, anchors: int, each: int, rng: np.random.Generator, always: Sequence[int] = ()) -> Mask:
    """Who is asked about which anchor (peers x anchors): `always`, and `each` of the others, drawn anew every anchor.

    One draw for the whole round would be a trap: a peer of middling risk, compared with the one peer drawn, looks
    better than a random draw in every round that draws a bad one.
    """
    rest = np.setdiff1d(np.arange(degree), always)
    mask = np.isin(np.arange(degree), always)[:, None].repeat(anchors, axis=1)
    drawn = rng.permuted(np.tile(rest, (anchors, 1)), axis=1)[:, :each]
    mask[drawn.T, np.arange(anchors)] = True
    return mask


def log_e_value(differences: Array) -> Array:
    """One bet on the anchors of a round (last axis), in logs: the mean over stakes g of prod (1 + g Y_i). NaN: no bet.

    Under D <= 0 its mean is at most 1 (Maclaurin's inequality for draws without replacement), if how many anchors are
    asked about was fixed before their order was drawn. It may be looked at once, at the end.
    """
    return mean_of_exp(np.log1p(np.multiply.outer(BETS, np.nan_to_num(differences))).sum(axis=-1))


class Looks:
    """The bet of one round, open to a look after every anchor and to any stop. Batches of any size give the same bits.

    After i - 1 anchors with sum S, "D <= 0" leaves a mean of at most m_i = -S/(n - i + 1) to the rest of the pool, so
    the product of 1 + g_i (Y_i - m_i) with stakes g_i = min(g, c/(1 + max(m_i, 0))), c < 1, is a non-negative
    supermartingale. `certain` needs no level: whatever the rest of the pool holds, D > 0.
    """

    __slots__ = ("anchors", "highest", "now", "pool", "stakes", "sums")

    def __init__(self, shape: int | tuple[int, ...], pool: int) -> None:
        self.pool = pool
        self.anchors = 0
        self.sums: Array = np.zeros(shape)  # S of every peer
        self.stakes: Array = np.zeros((len(BETS), *self.sums.shape))  # log of each stake's product
        self.now: Array = np.zeros(shape)  # log-wealth of every peer
        self.highest: Array = np.zeros(shape)  # the largest so far

    def bet(self, differences: Array) -> None:
        """Take in Y of new anchors (..., peers, new anchors) that everybody was asked about."""
        new = differences.shape[-1]
        if self.anchors + new > self.pool:
            raise ValueError(f"{self.anchors + new} anchors of a pool of {self.pool}: no anchor may be asked twice")
        if np.isnan(differences).any():
            raise ValueError("looks within a round need everybody's answer to every anchor: use log_e_value instead")
        if new == 0:
            return
        sums = np.add.accumulate(np.concatenate([self.sums[..., None], differences], axis=-1), axis=-1)
        left = self.pool - self.anchors - np.arange(new)  # n - i + 1
        means = -sums[..., :-1] / left
        # c is the largest stake, so a factor is never below 1 - c.
        most = BETS[-1] / (1 + np.maximum(means, 0))
        stakes = np.minimum(BETS.reshape(-1, *[1] * means.ndim), most)
        steps = np.log1p(stakes * (differences - means))
        paths = np.add.accumulate(np.concatenate([self.stakes[..., None], steps], axis=-1), axis=-1)[..., 1:]
        wealth = mean_of_exp(paths)
        self.anchors += new
        self.sums, self.stakes, self.now = sums[..., -1], paths[..., -1], wealth[..., -1]
        self.highest = np.maximum(self.highest, wealth.max(axis=-1))

    @property
    def certain(self) -> Mask:
        """Which peers have D > 0 for sure: even the least that the rest of the pool can add leaves a positive sum."""
        certain: Mask = self.sums > self.pool - self.anchors + ROUNDING
        return certain


# The evidence of all rounds -------------------------------------------------------------------------------------------


class Holding(NamedTuple):
    """What has been won and lost on one peer."""

    better: float = 0.0  # log-capital of the bets that it is better than a random draw
    worse: float = 0.0  # ... that it is worse
    since: int = 0  # the round in which this capital began
    bets: int = 0  # rounds in which something was bet
    useless: float = 0.0  # log-capital of the bets that its risk is above a line drawn from one's own


@dataclass(frozen=True)
class Capital:
    """One receiver's capital by peer. `bet` returns a new one; nothing is changed in place.

    Call a peer's certificate "better" false if D <= 0 held in every round in which it was bet on since its capital
    began, "worse" if D >= 0 did, and "useless" if its risk was never above the line of the round. The chance that this
    receiver *ever*, in the whole run, holds a false certificate on *any* peer is at most delta. With a `window` capital
    begins anew every so many rounds, and the levels of all windows add up to delta. With `forget` < 1 the capital is
    raised to that power before each bet, and delta holds for every single round instead of for the run.
    """

    delta: float  # chance of ever certifying a peer falsely
    peers_ever: int  # all peers that can ever be neighbours: the degree in the whole graph
    forget: float = 1.0  # the power; 1: nothing is forgotten
    window: int = 0  # rounds after which capital begins anew; 0: never
    rounds: int | None = None  # the length of the run, if known: how many windows share delta
    directions: int = 2  # better, worse, useless: as many as are acted upon share delta
    round: int = 0  # the present one, from 0
    held: Mapping[Peer, Holding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check("delta", self.delta, float, gt=0, lt=1)
        check("peers_ever", self.peers_ever, int, ge=1)
        check("forget", self.forget, float, gt=0, le=1)
        check("window", self.window, int, ge=0)
        check("directions", self.directions, int, ge=1, le=3)
        if self.window and self.forget < 1:
            raise UsageError("a window and forgetting exclude each other: set window=0 or forget=1")
        if self.window and self.rounds is not None and self.round >= self.rounds:
            raise UsageError(f"round {self.round} is beyond a run of {self.rounds}: say rounds=None if it has no end")
        if len(self.held) > self.peers_ever:
            raise UsageError(
                f"capital is held on {len(self.held)} peers, but peers_ever is {self.peers_ever}: "
                "count everybody who can ever be a neighbour, the threshold depends on it"
            )

    @classmethod
    def of(
        cls,
        state: State,
        *,
        round: int,
        delta: float,
        peers_ever: int,
        forget: float = 1.0,
        window: int = 0,
        rounds: int | None = None,
        directions: int = 2,
    ) -> Capital:
        """From a client's state, at the beginning of a round; capital of an earlier window is gone."""
        held = {peer: Holding(*values) for peer, values in state.get("capital", {}).items()}
        if window:
            held = {peer: holding for peer, holding in held.items() if holding.since // window == round // window}
        return cls(delta, peers_ever, forget, window, rounds, directions, round, held)

    def to_state(self) -> State:
        """As part of a client's state."""
        return {"capital": {peer: list(holding) for peer, holding in self.held.items()}}

    def bet(self, peers: Sequence[Peer], better: Array, worse: Array, useless: Array | None = None) -> Capital:
        """The capital after this round's bets on these peers, given in logs.

        With `Looks`, call it at every look on the capital from before the round.
        """
        new = dict(self.held)
        won = (better, worse, np.zeros(len(peers)) if useless is None else useless)
        for peer, up, down, beyond in zip(peers, *(logs.tolist() for logs in won), strict=True):
            old = new.get(peer, Holding(since=self.round))
            capital = self.forget * old.better + up, self.forget * old.worse + down
            new[peer] = Holding(*capital, old.since, old.bets + 1, self.forget * old.useless + beyond)
        return replace(self, held=new)

    @property
    def level(self) -> float:
        """The share of delta for one direction in the present window; over endless windows k = 1, 2, ... 1/(k(k+1))."""
        shares = 1.0
        if self.window and self.rounds is not None:
            shares = -(-self.rounds // self.window)
        elif self.window:
            k = self.round // self.window + 1
            shares = k * (k + 1)
        return self.delta / (self.directions * shares)

    @property
    def needed(self) -> float:
        """Log-capital that certifies: log(d/level) for all d peers that can ever be neighbours, all of whom may tie."""
        return log(self.peers_ever / self.level)

    def certified_better(self) -> tuple[Peer, ...]:
        """Peers proven better than a random draw, on this receiver's pool, in some round since their capital began."""
        return tuple(peer for peer, holding in self.held.items() if holding.better >= self.needed)

    def certified_worse(self) -> tuple[Peer, ...]:
        """Peers proven worse than a random draw, on this receiver's pool, in some round since their capital began."""
        return tuple(peer for peer, holding in self.held.items() if holding.worse >= self.needed)

    def certified_useless(self) -> tuple[Peer, ...]:
        """Peers whose risk on this receiver's pool is proven to have been above the line since their capital began."""
        return tuple(peer for peer, holding in self.held.items() if holding.useless >= self.needed)
