"""A decision in words."""

from __future__ import annotations

import numpy as np
import pytest

from sagefl import (
    AnchorQuery,
    Exchange,
    LocalOnly,
    Outcome,
    RandomGossip,
    Reason,
    SageNF,
    SageOS,
    Stage,
    VanillaSage,
    explain,
    replay,
)
from sagefl.selection.explain import conclusion, stage_sentence

CLEAR = np.ones((6, 128))
CLEAR[2] = 0
ALIKE = np.ones((6, 128))
NAMES = ["ada", "bob", "cyd", "dan", "eve", "fay"]


def words(rule, losses: np.ndarray) -> list[str]:  # type: ignore[no-untyped-def]
    return explain(replay(rule, losses, 1, peers=NAMES), NAMES)


def test_certified() -> None:
    assert words(SageOS(), CLEAR) == [
        "16 anchors: cyd lowest at risk 0.000; advantage over gossip 0.833 <= 0.878 needed; "
        "the next stage costs 0.192 < 1.712 it could gain; ask on.",
        "32 anchors: cyd lowest at risk 0.000; advantage over gossip 0.833 > 0.621 needed; certified.",
        "Pull cyd: certified by the evidence (192 evaluations).",
    ]


def test_cost() -> None:
    lines = words(SageOS(), ALIKE)
    assert lines[2].startswith("64 anchors: 6 peers (ada, bob, cyd, …) lowest at risk 1.000; ")
    assert lines[2].endswith("the next stage costs 0.768 >= 0.439 it could gain; more evidence cannot pay, so gossip.")
    assert "because the next anchors cost more than they could gain (384 evaluations)" in lines[3]


def test_the_other_rules() -> None:
    assert "gap to the runner-up 1.000 > 0.878 needed; certified." in words(VanillaSage(), CLEAR)[0]
    assert words(VanillaSage(), ALIKE)[3].endswith("no anchors left, so gossip.")
    assert words(SageNF(), ALIKE)[3].endswith("commit.")
    assert words(AnchorQuery(), CLEAR) == [
        "128 anchors: cyd lowest at risk 0.000; commit.",
        "Pull cyd: the rule commits, certified or not (768 evaluations).",
    ]
    assert words(RandomGossip(), CLEAR)[0].endswith(": a random draw is the rule (no evidence bought).")
    assert words(LocalOnly(), CLEAR) == ["Pull nobody: no exchange (no evidence bought)."]
    assert "smaller than the first stage" in words(SageOS(), ALIKE[:, :5])[0]
    assert "no gap to the runner-up" in explain(replay(VanillaSage(), ALIKE[:1]), [0])[0]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words(reason: Reason) -> None:
    assert conclusion(Outcome(("a",), False, reason)).startswith("Pull a: ")


def test_other_rules_traces_are_told_as_far_as_they_go() -> None:
    assert stage_sentence(Stage(8, Reason.UNIFORM), ["a"]) == "8 anchors: uniform."
    betting = Stage(8, "continue", "wealth", wealth=(1.0, 2.5), threshold=3.0)
    assert stage_sentence(betting, ["a", "b"]).startswith("8 anchors: log-wealth 2.50 ")
    pushed = Outcome(("a", "b"), True, Reason.COMMITTED, direction="push", inspected=("a",), evaluations=3)
    assert conclusion(pushed) == "Send to a, b: the rule commits, certified or not (3 evaluations, 1 model inspected)."
    assert Exchange.push(["a"], Reason.COMMITTED).direction == "push"
