"""A decision in words: one sentence per stage and one for the end. Used by the command line, the audit and the page."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from .outcome import CONTINUE, Fired, Outcome, Reason, Stage
from .requests import Peer
from .theory import information_bound


def explain(outcome: Outcome, peers: Sequence[Peer]) -> list[str]:
    """The whole decision, stage by stage; `peers` in the order the decision was begun with."""
    return [*(stage_sentence(stage, peers) for stage in outcome.trace), conclusion(outcome)]


def stage_sentence(stage: Stage, peers: Sequence[Peer]) -> str:
    """What one look showed and which test fired."""
    if stage.test == "guard":
        return f"{stage.anchors} anchors: {_guarded(stage)}." if stage.anchors else "The model is not finite: refused."
    parts = [_leaders(stage, peers), _certificate(stage, peers), _price(stage), _end(stage)]
    asked = (
        f"{stage.anchors} anchor{'s' * (stage.anchors != 1)}"
        if stage.anchors or stage.test != "memory"
        else "Nothing asked"
    )
    return f"{asked}: {'; '.join(part for part in parts if part)}."


def conclusion(outcome: Outcome) -> str:
    """Whom to pull, why, and what it cost."""
    who = ", ".join(str(p) for p in outcome.peers) or "nobody"
    verb = "Send to" if outcome.direction == "push" else "Pull"
    spent = f"{outcome.evaluations} evaluations" if outcome.evaluations else "no evidence bought"
    if outcome.inspected:
        tried = len(outcome.inspected)
        spent += f", {tried} model{'s' * (tried > 1)} inspected"
    return f"{verb} {who}: {_why(outcome)} ({spent})."


_ENDS: dict[Fired, str] = {
    Reason.CERTIFIED: "certified",
    Reason.COST: "more evidence cannot pay, so gossip",
    Reason.EXHAUSTED: "no anchors left, so gossip",
    Reason.COMMITTED: "commit",
    CONTINUE: "ask on",
    Reason.OPEN: "nothing is proven yet, so gossip",
    Reason.GATED: "nothing is proven, so gossip",
    Reason.ONLY: "a single neighbour",
    Reason.NO_ANCHORS: "no anchors to ask about",
    Reason.HOME: "pulling anybody would make one's own model worse, so stay at home",
}

_WHY = {
    Reason.CERTIFIED: "certified by the evidence",
    Reason.COST: "a random draw, because the next anchors cost more than they could gain",
    Reason.EXHAUSTED: "a random draw, because every anchor was used and nothing certified",
    Reason.NO_ANCHORS: "a random draw, because the anchor pool is smaller than the first stage",
    Reason.COMMITTED: "the rule commits, certified or not",
    Reason.UNIFORM: "a random draw is the rule",
    Reason.ONLY: "the only neighbour",
    Reason.GATED: "a random draw, because probing has not paid here lately",
    Reason.OPEN: "a random draw, because nothing is proven yet",
    Reason.HOME: "one's own model stays, because pulling anybody would make it worse",
    Reason.FAILED: "every peer stopped answering",
    Reason.NONE: "no exchange",
}


def _end(stage: Stage) -> str:
    if stage.test not in ("wealth", "trim") or stage.fired == CONTINUE:
        return _ENDS.get(stage.fired, stage.fired)
    trimmed = stage.test == "trim" and any(_reached(stage))
    then = "so draw among the others" if trimmed else "so gossip"
    ends: dict[Fired, str] = {
        Reason.COST: f"more evidence is not expected to pay, {then}",
        Reason.EXHAUSTED: f"no anchors left, {then}",
    }
    return ends.get(stage.fired, "nobody else is left to drop" if trimmed else _ENDS[stage.fired])


def _guarded(stage: Stage) -> str:
    """A received model beside the one that was accepted last."""
    (risk,) = stage.risks or (0.0,)
    if stage.advantage is None or stage.against is None or stage.threshold is None or stage.width is None:
        return f"the first model, at risk {risk:.3f}: accepted"
    (wealth,), refused = stage.against, stage.fired == Reason.HOME
    return (
        f"received at risk {risk:.3f}, accepted before at {risk + stage.advantage:.3f}; log-wealth {wealth:.2f} "
        f"{'>=' if refused else '<'} {stage.threshold:.2f} needed to prove it worse by more than {stage.width:g}: "
        f"{'refused' if refused else 'accepted'}"
    )


def _why(outcome: Outcome) -> str:
    last = outcome.trace[-1] if outcome.trace else None
    if last is not None and last.test == "guard":
        refused = "the model accepted last stays, because the one received is proven worse or is not finite"
        return "not proven worse than the model accepted last" if outcome.peers else refused
    if last is not None and last.test == "memory" and outcome.reason == Reason.CERTIFIED:
        return "drawn among those that the evidence of all rounds leaves"
    if last is not None and last.test == "memory" and outcome.reason == Reason.HOME:
        if last.trial is not None:
            alone, mixed = last.trial
            rose = f"from {alone:.3f} to {mixed:.3f}"
            return f"one's own model stays, because mixed with the other its error on one's own anchors rose {rose}"
        return "one's own model stays, because all others are proven useless or did harm when last tried"
    if last is not None and last.test == "trim" and outcome.reason == Reason.CERTIFIED:
        reached = _reached(last)
        if all(reached):
            return "the least suspicious, because every peer was certified worse than a random draw at some look"
        left = f"{reached.count(False)} of {len(reached)}"
        return f"a random draw among the {left} not certified worse than a random draw"
    if last is not None and last.test in ("wealth", "trim") and outcome.reason == Reason.COST:
        return "a random draw, because more evidence is not expected to pay"
    return _WHY[outcome.reason]


def _reached(stage: Stage) -> list[bool]:
    """Per peer, whether its wealth has ever reached the threshold."""
    return [w >= stage.threshold for w in stage.wealth or () if stage.threshold is not None]


def _bets(stage: Stage, peers: Sequence[Peer], most: float, needed: float) -> str:
    """Wealth or p-value against what is needed."""
    if stage.test == "sign":
        p, level = exp(-most), exp(-needed)
        return f"largest p-value against another peer {p:.3g} {'<=' if most >= needed else '>'} {level:.3g} needed"
    text = f"log-wealth {most:.2f} {'>=' if most >= needed else '<'} {needed:.2f} needed"
    if stage.test == "wealth":
        return f"{text} to certify a peer against a random draw"
    dropped = [str(p) for p, reached in zip(peers, _reached(stage), strict=True) if reached]
    if not dropped:
        return f"{text} to prove a peer worse than a random draw"
    return f"{text}: {len(dropped)} certified worse than a random draw ({', '.join(dropped)})"


def _leaders(stage: Stage, peers: Sequence[Peer]) -> str:
    if not stage.risks:
        return ""
    low = min(stage.risks)
    tied = [str(p) for p, risk in zip(peers, stage.risks, strict=True) if risk == low]
    names = tied[0] if len(tied) == 1 else f"{len(tied)} peers ({', '.join(tied[:3])}{', …' if len(tied) > 3 else ''})"
    return f"{names} lowest at risk {low:.3f}"


def _remembered(stage: Stage, peers: Sequence[Peer]) -> str:
    """Who is proven better or worse over the rounds, since when, and how far the others are."""
    needed, since = stage.threshold or 0.0, stage.since or ()
    useless = "" if stage.width is None else f", or useless by a risk above {stage.width:.2f}"
    parts = []
    for word, capital in (("better", stage.wealth or ()), ("worse", stage.against or ())):
        rows = zip(peers, capital, since, strict=True)
        proven = [f"{p} (asked since round {int(begun) + 1})" for p, held, begun in rows if held >= needed]
        what = f"proven {word} than a random draw{useless if word == 'worse' else ''}"
        if proven:
            parts.append(f"{what}: {', '.join(proven)}")
        else:
            parts.append(f"nobody {what} (log-capital {max(capital, default=0.0):.2f} < {needed:.2f} needed)")
    return "; ".join(parts)


def _certificate(stage: Stage, peers: Sequence[Peer]) -> str:
    if stage.test == "memory":
        return _remembered(stage, peers)
    if stage.wealth is not None and stage.threshold is not None:
        return _bets(stage, peers, max(stage.wealth), stage.threshold)
    if stage.test is None or stage.width is None:
        return ""
    value = stage.advantage if stage.test == "advantage" else stage.gap
    name = "advantage over gossip" if stage.test == "advantage" else "gap to the runner-up"
    if value is None:
        return f"no {name}"
    return f"{name} {value:.3f} {'>' if value > stage.width else '<='} {stage.width:.3f} needed"


def _price(stage: Stage) -> str:
    if stage.next_cost is None or stage.advantage is None or stage.width is None or stage.fired == Reason.CERTIFIED:
        return ""
    most = information_bound(stage.advantage, stage.width)
    sign = ">=" if stage.next_cost >= most else "<"
    return f"the next stage costs {stage.next_cost:.3f} {sign} {most:.3f} it could gain"
