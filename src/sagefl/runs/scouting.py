"""Will choosing pay here? From what a short pilot saw to a verdict in one sentence, with the figures behind it.

A pilot measures, after a few rounds, what clients get at home, after mixing with kin, and under random gossip. What a
whole run brings is another number; how far apart the two are was measured on worlds made for it
(`results/worlds/calibration.csv`), and the intervals have room for it. Four verdicts: *choose* (some neighbours help
and others harm), *gossip* (nothing to choose), *home* (all neighbours harm), *unsure* (with what would help).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..selection import Selector, make
from ..selection.registry import RECOMMENDED
from ..selection.sage_m import HORIZON
from ..selection.theory import SCHEDULE, certificate_width, radius
from ..settings import parse_method
from .intervals import estimate
from .kinship import Kinship, find_kin, nanmean

Floats = npt.NDArray[np.float64]
ScoutVerdict = Literal["choose", "gossip", "home", "unsure"]

PAYS = 0.015  # a difference from which on it is worth acting
OPEN = 0.05  # a difference that must be ruled out before there is nothing to choose
CRISP = 0.75  # agreement of the two halves of the samples from which on groups count as found
Z = 1.645  # intervals are of 90 %
NOISE = 0.012  # so far apart may two runs end that only draw differently
TOLD_APART = 0.1  # kin's and strangers' answers differ by at least so much
LATE = 15  # a round from which on skewed labels no longer look like groups
FEW = 20  # below so many samples a client nothing is told apart
SHORT = 1.2  # that many times fewer than needed are too few
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def recommended() -> Selector:
    """The rule that a verdict names where choosing pays."""
    id, options = parse_method(RECOMMENDED)
    return make(id, **options)


class Cost(NamedTuple):
    """What it took to find out."""

    seconds: float
    bytes: int  # of models and answers that would have moved
    samples: int  # trained on


class Range(NamedTuple):
    """An expected value with its interval, as shares of 1."""

    expected: float
    low: float
    high: float

    @property
    def points(self) -> str:
        """As in `+9 to +14`."""
        return f"{100 * self.low:+.0f} to {100 * self.high:+.0f}"


class Calibration(NamedTuple):
    """How a difference after a pilot grows or shrinks until the end of a run: it times `slope`, give or take."""

    slope: float
    relative: float  # standard deviation as a share of what is expected
    absolute: float  # and as accuracy, whatever is expected

    def project(self, now: float, error: float) -> Range:
        """The difference at the end, from the one now with its standard error."""
        expected = self.slope * now
        spread = sqrt((self.slope * error) ** 2 + (self.relative * expected) ** 2 + self.absolute**2)
        return Range(expected, expected - Z * spread, expected + Z * spread)


CALIBRATION = {  # by what is compared with gossip, and what is exchanged; a head of one's own gets used to mixes
    ("kin", "whole"): Calibration(1.05, 0.42, 0.01),
    ("kin", "part"): Calibration(0.55, 0.5, 0.01),
    ("home", "whole"): Calibration(0.38, 0.35, 0.01),
    ("home", "part"): Calibration(0.05, 0.1, 0.01),
}


@dataclass(frozen=True, eq=False)
class Pilot:
    """What a pilot saw. Accuracy of each client on samples nobody trained on: of its group, or its own in one group."""

    rounds: int
    answers: Floats  # [receiver, peer, sample]: everybody's errors on everybody's samples, NaN beyond the last
    neighbours: npt.NDArray[np.bool_]  # [receiver, peer]
    kinship: Kinship
    local: Floats
    within: Floats
    gossip: Floats
    cost: Cost
    price: float = 0.0  # bytes of one question and a label as its answer, as a share of a model's
    whole: bool = True  # whether whole models are exchanged
    asked: float = 0.0  # the same for the answers that the recommended rule asks for
    names: tuple[str, ...] | None = None  # what clients are called; None if they have numbers only

    @property
    def samples(self) -> int:
        """How many samples a client has to try models on, in the median."""
        return int(np.median((~np.isnan(self.answers[:, 0])).sum(1)))


class Need(NamedTuple):
    """What a rule needs here, per client."""

    rule: str
    anchors: int | None  # that it asks each neighbour about in a round, at most; None: it could not certify with any
    bytes: float  # of questions and answers, as a share of the models'


@dataclass(frozen=True)
class Scouted:
    """A verdict, and the figures behind it."""

    verdict: ScoutVerdict
    sentence: str
    kinship: Kinship
    headroom: Range | None = None  # of the better of kin and home over gossip, at the end of a run; None: unknown
    home: Range | None = None  # of home over the better of the others
    advice: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()

    def document(self) -> dict[str, Any]:
        """Everything by name, in plain values."""
        k = self.kinship
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "method": {"choose": RECOMMENDED, "gossip": "rg", "home": "local"}.get(self.verdict),
            "headroom": None if self.headroom is None else self.headroom._asdict(),
            "home_over_others": None if self.home is None else self.home._asdict(),
            "groups": list(k.groups),
            "group_sizes": list(k.sizes),
            "groups_agree": k.agreement,
            "gap": {"kin": k.within, "strangers": k.between},
            "contrast": {"low": k.contrast[0], "high": k.contrast[1]},
            "advice": list(self.advice),
            "needs": [need._asdict() for need in self.needs],
        }


# The verdict on a pilot -----------------------------------------------------------------------------------------------


def judge(pilot: Pilot, rounds: int) -> Scouted:
    """What a pilot says about a run of so many rounds."""
    kinship, needs = pilot.kinship, what_rules_need(pilot, rounds)
    if not pilot.neighbours.any():
        said = "Nobody has a neighbour in these rounds: everybody stays at home whatever the rule."
        return Scouted("home", said, kinship)
    if crisp(pilot):
        better = pilot.within if pilot.within.mean() >= pilot.local.mean() else pilot.local
        gain = _projected("kin", pilot, better - pilot.gossip)
        home = _projected("kin", pilot, pilot.local - pilot.within)
    else:
        gain = home = _projected("home", pilot, pilot.local - pilot.gossip)
        if home.low <= 0:  # what one draw gains over another is noise
            gain = Range(max(0.0, home.expected), -NOISE, max(home.high, NOISE))
    verdict = _verdict(crisp(pilot), gain if crisp(pilot) else home)
    if verdict == "gossip" and not crisp(pilot) and pilot.samples * SHORT < FEW:
        verdict = "unsure"  # no groups were found, and with so few samples none could be
    found = Scouted(verdict, "", kinship, gain, home, _advice(pilot, verdict), needs)
    return replace(found, sentence=_sentence(found, pilot))


def crisp(pilot: Pilot) -> bool:
    """Whether the groups found are groups: both halves of the samples show them."""
    return pilot.kinship.between is not None and pilot.kinship.agreement >= CRISP


def _projected(which: str, pilot: Pilot, differences: Floats) -> Range:
    """What a difference between clients' accuracies will have become at the end."""
    seen = estimate(differences.tolist())
    how = CALIBRATION[which, "whole" if pilot.whole else "part"]
    return how.project(seen.mean, seen.standard_error or abs(seen.mean))


def _verdict(grouped: bool, seen: Range) -> ScoutVerdict:
    if seen.expected >= PAYS and (grouped or seen.low > 0):  # groups that both halves show are no chance
        return "choose" if grouped else "home"
    return "gossip" if seen.expected < PAYS and seen.high < OPEN else "unsure"


# The verdict on recorded answers --------------------------------------------------------------------------------------


def judge_answers(answers: Floats, harm: float | None, first_round: int) -> Scouted:
    """What recorded losses say, [receiver, peer, sample]; `harm`: what mixing cost in that run, where it is known.

    Answers tell groups apart, but not what choosing gains; and in the first rounds skewed labels look like groups.
    """
    kinship = find_kin(answers)
    if kinship.between is not None and kinship.agreement >= CRISP and kinship.contrast[0] >= TOLD_APART:
        if first_round < LATE:
            said = (
                f"Cannot tell: neighbours answer differently, but before round {LATE} skewed labels look like groups; "
                "record later rounds, or let a pilot try the mixes."
            )
            return Scouted("unsure", said, kinship)
        apart = kinship.between - kinship.within
        said = (
            f"Choose, with {RECOMMENDED}: {_groups(kinship)}; strangers' risk is {apart:.2f} above that of kin. "
            "What that gains, a pilot tells."
        )
        return Scouted("choose", said, kinship)
    if harm is None:
        said = "Cannot tell: neighbours answer much alike, and whether mixing harms, answers do not say; a pilot would."
        return Scouted("unsure", said, kinship)
    if harm >= PAYS:
        said = f"Neighbours harm: stay at home; in this run mixing cost {100 * harm:.1f} points in its last round."
        return Scouted("home", said, kinship)
    answered = (~np.isnan(answers)).sum(2)
    if (each := int(np.median(answered[answered > 0]))) * SHORT < FEW:
        return Scouted("unsure", f"Cannot tell: {each} answers of a neighbour are too few, {FEW} would do.", kinship)
    said = "Nothing to choose: use rg; neighbours answer much alike, and mixing does no harm."
    return Scouted("gossip", said, kinship)


# In words -------------------------------------------------------------------------------------------------------------


def _sentence(found: Scouted, pilot: Pilot) -> str:
    gain, home = found.headroom, found.home
    assert gain is not None
    assert home is not None
    if found.verdict == "choose":
        more = next(need.bytes for need in found.needs if need.rule == RECOMMENDED)
        return (
            f"Choose, with {RECOMMENDED}: {_groups(found.kinship)}; expect {gain.points} points over gossip for "
            f"{more:.0%} more bytes."
        )
    if found.verdict == "gossip":
        most = max(1, round(100 * gain.high))
        return f"Nothing to choose: use rg; choosing would gain {most} point{'s' * (most > 1)} at most."
    if found.verdict == "home":
        return f"Neighbours harm: stay at home; expect {home.points} points over gossip, for no bytes at all."
    enough = _enough(pilot, gain if found.kinship.between is not None else home)
    if enough is None:
        longer = f"a longer pilot would tell (--pilot {2 * pilot.rounds})"
        return f"Cannot tell: choosing may gain {gain.points} points; {longer}."
    return f"Cannot tell: {pilot.samples} samples a client are too few, {enough} would do."


def _enough(pilot: Pilot, seen: Range) -> int | None:
    """With how many samples a client the same difference would be clear; None where their number is not what lacks."""
    lacking = max(FEW / max(pilot.samples, 1), (seen.expected - seen.low) / max(abs(seen.expected), PAYS))
    return ceil(pilot.samples * lacking**2 / 10) * 10 if lacking > SHORT and pilot.samples < 5 * FEW else None


def _groups(kinship: Kinship) -> str:
    """As in `three groups and two clients on their own`."""
    alone, count = sum(size == 1 for size in kinship.sizes), kinship.count
    groups = f"{_word(count)} group{'s' * (count != 1)}"
    return groups if not alone else f"{groups} and {_word(alone)} client{'s' * (alone != 1)} alone"


def _word(number: int) -> str:
    return WORDS[number] if number < len(WORDS) else str(number)


def _advice(pilot: Pilot, verdict: ScoutVerdict) -> tuple[str, ...]:
    """Whom to connect: clients that have kin somewhere, but none among their neighbours."""
    if verdict not in ("choose", "home") or pilot.kinship.between is None:
        return ()
    lonely = {
        client: kin
        for client in range(len(pilot.local))
        if (kin := pilot.kinship.kin(client)) and not pilot.neighbours[client, kin].any()
    }
    called = pilot.names or tuple(map(str, range(len(pilot.local))))
    shown = [
        f"{called[client]} to one of {_listed([called[k] for k in kin])}" for client, kin in list(lonely.items())[:5]
    ]
    more = f", and {len(lonely) - 5} more" if len(lonely) > 5 else ""
    return (f"Without kin among their neighbours: connect client {'; client '.join(shown)}{more}.",) if lonely else ()


def _listed(clients: Sequence[str]) -> str:
    return ", ".join(clients[:4]) + (" ..." if len(clients) > 4 else "")


# What rules need ------------------------------------------------------------------------------------------------------


def what_rules_need(pilot: Pilot, rounds: int) -> tuple[Need, ...]:
    """Anchors and bytes of a few rules at this degree and price, and whether SAGE-OS could certify at all."""
    degree = float(pilot.neighbours.sum(1).mean())
    if degree == 0:
        return ()
    memory: Any = recommended()
    asks = memory.block * (min(memory.patience, rounds) + memory.recheck * max(rounds - memory.patience, 0)) / rounds
    spent = min(asks * degree * pilot.asked, memory.budget * max(1.0, HORIZON / rounds))
    last, peers = SCHEDULE[-1], max(2, round(degree))
    risks = nanmean(pilot.answers, 2)
    ahead = [
        row[seen].mean() - row[seen].min() for row, seen in zip(risks, pilot.neighbours, strict=True) if seen.any()
    ]
    able = [m for m in SCHEDULE if certificate_width(radius(m, peers), peers) < np.median(ahead)]
    anchors = min(able, default=None)
    return (
        Need("rg", 0, 0.0),
        Need(RECOMMENDED, memory.block, spent),
        Need("sage-os", anchors, (anchors or last) * degree * pilot.price),
        Need("aq-128", last, last * degree * pilot.price),
    )
