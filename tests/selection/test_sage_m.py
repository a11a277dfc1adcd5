"""SAGE-M: what it remembers, when it asks, whom it draws from, and what it does about neighbours that harm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from math import log, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl import Inspect, Outcome, Probe, RandomGossip, Reason, SageM, explain
from sagefl.errors import UsageError
from sagefl.selection.outcome import decode, encode
from sagefl.selection.private import RandomisedResponse, priced_for

PEERS = ("ada", "bob", "cyd", "dan")
RISKS = {"ada": 0.1, "bob": 0.1, "cyd": 0.8, "dan": 0.8}
ALWAYS = {"recheck": 1.0, "patience": 1}


def answers(peers: Sequence[Any], count: int, seed: Any, risks: dict[Any, float] = RISKS) -> np.ndarray:
    """Losses of a whole pool: everybody errs on exactly its share of the anchors, in an order of its own."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(count) < round(risks[p] * count) for p in peers]
    return np.array(rows, dtype=float).reshape(len(peers), count)


def play(
    rule: SageM, rounds: int, peers: Sequence[Any] = PEERS, pool: int = 40, risks: dict[Any, float] = RISKS, **more: Any
) -> list[Outcome]:
    """The same models in every round, the pool in a new order each; probes alone."""
    outcomes: list[Outcome] = []
    state = None
    for t in range(rounds):
        decision = rule.begin(peers, pool, (7, t, 0), state=state, round=t, rounds=rounds, **more)
        order = np.random.default_rng([3, t]).permutation(pool)
        told = dict(zip(peers, answers(peers, pool, 5, risks)[:, order], strict=True))
        while (probe := decision.request) is not None:
            assert isinstance(probe, Probe)
            decision.answer([told[p][probe.start : probe.stop] for p in probe.peers])
        outcomes.append(decision.outcome)
        state = outcomes[-1].state
    return outcomes


# Whom it draws from ---------------------------------------------------------------------------------------------------


def test_it_gossips_until_something_is_proven_and_then_stays_with_the_better_peers() -> None:
    outcomes = play(SageM(), 30, ever=4)
    reasons = [o.reason for o in outcomes]
    first = reasons.index(Reason.CERTIFIED)
    assert 1 <= first <= 6
    assert set(reasons[:first]) == {Reason.OPEN}
    assert set(reasons[first:]) == {Reason.CERTIFIED}
    later = [o.peers[0] for o in outcomes[12:]]
    assert set(later) == {"ada", "bob"}  # both, not only one of them
    assert all(o.selected for o in outcomes[first:])


def test_the_first_bet_by_hand() -> None:
    """Two peers, the second wrong on both of two anchors: Y = +1 and -1, capital the mean over stakes of (1 +- g)^2."""
    decision = SageM(block=2).begin(("a", "b"), 2, ever=2)
    decision.answer([[0, 0], [1, 1]])
    (stage,) = decision.outcome.trace
    up = sum((1 + Fraction(g)) ** 2 for g in ("0.25", "0.5", "0.75", "0.95")) / 4
    down = sum((1 - Fraction(g)) ** 2 for g in ("0.25", "0.5", "0.75", "0.95")) / 4
    assert stage.wealth == pytest.approx([log(up), log(down)])
    assert stage.against == pytest.approx([0, log(up)])  # the larger of worse and useless, on which nothing was bet
    assert stage.threshold == pytest.approx(log(3 * 2 / 0.1))
    assert stage.since == (0.0, 0.0)
    assert decision.outcome.reason is Reason.OPEN


def test_without_proof_it_draws_as_gossip_does() -> None:
    alike = dict.fromkeys(PEERS, 0.5)
    drawn = [o.peers for o in play(SageM(delta=1e-9), 20, risks=alike, ever=4)]
    gossip = [RandomGossip().begin(PEERS, 40, (7, t, 0)).outcome.peers for t in range(20)]
    assert drawn == gossip


def test_a_bad_peer_among_equals_is_dropped() -> None:
    risks = {"a": 0.2, "b": 0.2, "c": 0.2, "d": 0.2, "e": 0.2, "f": 0.95}
    outcomes = play(SageM(), 80, tuple(risks), risks=risks, ever=6)
    late = outcomes[20:]
    assert {o.reason for o in late} == {Reason.CERTIFIED}
    assert {o.peers[0] for o in late} == set("abcde")


def test_a_difference_below_the_margin_is_not_acted_upon() -> None:
    risks = {"a": 0.25, "b": 0.5, "c": 0.5, "d": 0.5}  # ahead of the mean by .19
    sharp, calm = (
        play(SageM(margin=m, budget=9, **ALWAYS), 200, tuple(risks), risks=risks, ever=4) for m in (0.05, 0.4)
    )
    acted, left = (np.mean([o.selected for o in outcomes[100:]]) for outcomes in (sharp, calm))
    assert acted > 0.6
    assert left < 0.2
    assert calm[-1].trace[0].wealth[0] >= calm[-1].trace[0].threshold  # proven all the same


def test_proof_counts_only_while_recent_answers_agree() -> None:
    rule, state = SageM(**ALWAYS), None
    for t in range(40):
        risks = RISKS if t < 10 else dict.fromkeys(PEERS, 0.4)
        decision = rule.begin(PEERS, 40, (1, t), state=state, round=t, ever=4)
        order = np.random.default_rng(t).permutation(40)
        decision.answer(answers(PEERS, 40, 5, risks)[:, order[:8]])
        state = decision.outcome.state
    assert decision.outcome.trace[-1].wealth[0] >= decision.outcome.trace[-1].threshold  # it is still on record
    assert not decision.outcome.selected


# When it asks ---------------------------------------------------------------------------------------------------------


def test_it_asks_until_everybody_is_settled_and_seldom_afterwards() -> None:
    outcomes = play(SageM(), 100, ever=4)
    asked = [o.evaluations > 0 for o in outcomes]
    settled = asked.index(False)
    assert settled <= 12
    assert 3 <= sum(asked[settled:]) <= 20  # a tenth of the rounds
    assert {o.evaluations for o in outcomes} == {0, 4 * 8}


def test_patience_ends_where_nothing_can_be_proven() -> None:
    outcomes = play(SageM(recheck=0), 40, risks=dict.fromkeys(PEERS, 0.5), ever=4)
    asked = [o.evaluations > 0 for o in outcomes]
    assert asked == [True] * 12 + [False] * 28
    assert outcomes[-1].reason is Reason.GATED


def test_a_newcomer_is_asked_about() -> None:
    rule = SageM(recheck=0)
    state = play(rule, 30, ever=5)[-1].state
    assert rule.begin(PEERS, 40, 1, state=state, round=30, ever=5).request is None
    assert rule.begin((*PEERS, "eve"), 40, 1, state=state, round=30, ever=5).request.peers == (*PEERS, "eve")


@pytest.mark.parametrize("price", [0.001, 0.01, 0.05, 1.0])
def test_probes_stay_within_the_budget(price: float) -> None:
    outcomes = play(SageM(recheck=1.0), 80, price=price, ever=4)
    spent = np.cumsum([price * o.evaluations for o in outcomes])
    assert (spent <= 0.05 * np.maximum(60, np.arange(1, 81)) + 1e-9).all()
    assert (spent[-1] > 0) == (price * 32 <= 0.05 * 80)


@pytest.mark.parametrize(("peers", "pool", "reason"), [((), 9, "none"), (("a",), 9, "only"), (PEERS, 0, "no-anchors")])
def test_where_there_is_nothing_to_ask(peers: tuple[str, ...], pool: int, reason: str) -> None:
    decision = SageM().begin(peers, pool)
    assert decision.request is None
    assert decision.outcome.reason == reason
    assert decision.outcome.peers == peers[:1] or pool == 0


# The threshold and what is carried over -------------------------------------------------------------------------------


def test_the_threshold_is_for_all_peers_that_can_ever_be_neighbours() -> None:
    (few,), (many,) = (play(SageM(), 1, ever=ever) for ever in (4, 40))
    assert few.trace[0].threshold == pytest.approx(log(3 * 4 / 0.1))
    assert many.trace[0].threshold == pytest.approx(log(3 * 40 / 0.1))


def test_more_peers_than_can_ever_be_neighbours_are_refused() -> None:
    with pytest.raises(UsageError, match="peers_ever is 2"):
        play(SageM(), 1, ever=2)


def test_windows_begin_anew_and_share_delta() -> None:
    outcomes = play(SageM(window=20), 60, ever=4)
    assert outcomes[19].reason is Reason.CERTIFIED
    assert outcomes[20].reason is Reason.OPEN
    assert outcomes[20].trace[0].since == (20.0,) * 4
    assert outcomes[20].trace[0].threshold == pytest.approx(log(3 * 4 * 3 / 0.1))


def test_a_window_excludes_forgetting() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        SageM(window=5, forget=0.9)


def test_its_state_survives_a_file() -> None:
    rule = SageM()
    outcomes = play(rule, 8, ever=4)
    state = decode(json.loads(json.dumps(encode(outcomes[5].state))))
    again = rule.begin(PEERS, 40, (7, 6, 0), state=state, round=6, rounds=8, ever=4)
    direct = rule.begin(PEERS, 40, (7, 6, 0), state=outcomes[5].state, round=6, rounds=8, ever=4)
    for decision in (again, direct):
        while decision.request is not None:
            decision.answer(answers(PEERS, 40, 5)[:, decision.request.start : decision.request.stop])
    assert again.outcome == direct.outcome


# Peers that fall silent -----------------------------------------------------------------------------------------------


def test_leaving_never_helps() -> None:
    """Whoever leaves has less capital to be taken, more to be dropped, and gives the others nothing."""
    told = answers(PEERS, 8, 5)
    stayed = SageM().begin(PEERS, 8, ever=4)
    stayed.answer(told)
    left = SageM().begin(PEERS, 8, ever=4).restart(("ada", "bob", "cyd"))
    left.answer(told[:3])
    before, after = stayed.outcome.state["capital"], left.outcome.state["capital"]
    assert after["dan"][0] <= before["dan"][0]
    for peer in ("ada", "bob", "cyd"):
        assert after[peer][0] <= before[peer][0] + 1e-12  # the bets that it is better
        assert after[peer][1] <= before[peer][1] + 1e-12  # ... that it is worse


def test_a_restart_keeps_delta() -> None:
    decision = SageM().begin(PEERS, 8, ever=4)
    assert decision.restart(PEERS[:3]).selector == decision.selector


# Nobody of use --------------------------------------------------------------------------------------------------------

FOREIGN = dict.fromkeys(PEERS, 0.9)


def test_a_client_whose_neighbours_are_all_proven_useless_stays_at_home() -> None:
    outcomes = play(SageM(), 60, risks=FOREIGN, ever=4, mine=0.2)
    reasons = [o.reason for o in outcomes]
    first = reasons.index(Reason.HOME)
    assert set(reasons[:first]) <= {Reason.OPEN, Reason.CERTIFIED}  # some of them are dropped before the last one is
    assert first <= 8
    assert set(reasons[first:]) == {Reason.HOME}
    assert all(o.peers == () for o in outcomes[first:])
    assert all(o.evaluations == 0 for o in outcomes[first + 1 : first + 5]) or first > 8  # everybody is settled


@pytest.mark.parametrize(
    ("rule", "mine"), [(SageM(), None), (SageM(useless=1.0), 0.2), (SageM(), 0.85), (SageM(kind="latents"), 0.9)]
)
def test_it_pulls_where_nothing_is_known_of_the_own_model_or_that_is_no_better(rule: SageM, mine: float | None) -> None:
    outcomes = play(rule, 60, risks=FOREIGN, ever=4, mine=mine)
    assert Reason.HOME not in {o.reason for o in outcomes}
    assert all(len(o.peers) == 1 for o in outcomes)


def test_foreign_peers_are_dropped_though_they_are_the_majority() -> None:
    """Seven of eight are foreign, so none of them is worse than a random draw by much; each is useless by itself."""
    risks = {"kin": 0.25, **{f"f{i}": 0.9 for i in range(7)}}
    late = play(SageM(), 40, tuple(risks), risks=risks, ever=8, mine=0.2)[12:]
    assert {o.peers for o in late} == {("kin",)}
    assert {o.reason for o in late} == {Reason.CERTIFIED}


def test_a_single_neighbour_can_be_proven_useless_too() -> None:
    only = {"a": 0.95}
    assert play(SageM(), 20, ("a",), risks=only, ever=1, mine=0.1)[-1].reason is Reason.HOME
    assert play(SageM(), 20, ("a",), risks=only, ever=1)[-1].reason is Reason.ONLY


def test_it_comes_back_when_neighbours_become_useful() -> None:
    rule, state = SageM(**ALWAYS), None
    for t in range(40):
        decision = rule.begin(PEERS, 40, (1, t), state=state, round=t, ever=4, mine=0.2)
        order = np.random.default_rng(t).permutation(40)
        decision.answer(answers(PEERS, 40, 5, FOREIGN if t < 10 else dict.fromkeys(PEERS, 0.3))[:, order[:8]])
        state = decision.outcome.state
        if t == 9:
            assert decision.outcome.reason is Reason.HOME
    assert len(decision.outcome.peers) == 1


def test_nobody_is_useless_for_the_noise_on_its_answers() -> None:
    """At epsilon 1 with ten classes every answer is wrong with probability .77 or more, whatever the model."""
    mechanism = RandomisedResponse(1.0, 10)
    assert 1 - mechanism.p == pytest.approx(0.768, abs=1e-3)
    alike = {"a": 0.8, "b": 0.8, "c": 0.8}  # as told; in truth wrong on a fifth
    rule = priced_for(SageM(recheck=1.0), mechanism)
    outcomes = play(rule, 60, tuple(alike), risks=alike, ever=3, mine=0.1)
    assert {len(o.peers) for o in outcomes} == {1}
    assert Reason.HOME not in {o.reason for o in outcomes}
    assert {held[4] for held in outcomes[-1].state["capital"].values()} == {0.0}  # nothing is bet
    assert play(SageM(recheck=1.0), 60, tuple(alike), risks=alike, ever=3, mine=0.1)[-1].reason is Reason.HOME


def test_the_bet_on_useless_by_hand() -> None:
    """Own risk 1/5, so the line is 3/5 and Y is 2/3 for a wrong answer, -1 for a right one; two wrong, none right."""
    decision = SageM(block=2).begin(("a",), 2, ever=1, mine=0.2)
    decision.answer([[1, 1]])
    (stage,) = decision.outcome.trace
    won = sum((1 + Fraction(g) * Fraction(2, 3)) ** 2 for g in ("0.25", "0.5", "0.75", "0.95")) / 4
    assert stage.against == pytest.approx([log(won)])
    assert stage.width == pytest.approx(0.6)
    assert decision.outcome.state["capital"]["a"] == pytest.approx([0, 0, 0, 1, log(won)])


# Staying at home ------------------------------------------------------------------------------------------------------

HOME = SageM(outside="home", recheck=0)


def tried(errors: dict[str, float], rounds: int, rule: SageM = HOME, peers: Sequence[str] = ("a",)) -> list[Outcome]:
    """Rounds of a client whose own error is .2 and whose mix with each peer errs as given; peers answer alike."""
    state, outcomes = None, []
    for t in range(rounds):
        decision = rule.begin(peers, 10, (1, t), state=state, round=t, ever=len(peers))
        while (asked := decision.request) is not None:
            if isinstance(asked, Inspect):
                (peer,) = asked.peers
                decision.answer([0.2, errors[peer]])
            else:
                decision.answer(np.full(asked.shape, 0.5))
        outcomes.append(decision.outcome)
        state = outcomes[-1].state
    return outcomes


def test_a_mix_that_harms_is_not_kept_nor_tried_again_before_a_recheck() -> None:
    first, second, *_ = tried({"a": 0.5}, 3)
    assert (first.reason, first.peers, first.inspected) == (Reason.HOME, (), ("a",))
    assert first.trace[-1].trial == (0.2, 0.5)
    assert "its error on one's own anchors rose from 0.200 to 0.500" in "".join(explain(first, ("a",)))
    assert (second.reason, second.peers, second.inspected) == (Reason.HOME, (), ())
    assert "did harm when last tried" in "".join(explain(second, ("a",)))
    retried = tried({"a": 0.5}, 200, SageM(outside="home", recheck=0.2))
    assert 20 <= sum(len(o.inspected) for o in retried) <= 60


def test_a_mix_that_errs_no_more_is_kept() -> None:
    (kept,) = tried({"a": 0.2}, 1)
    assert (kept.reason, kept.peers, kept.inspected) == (Reason.ONLY, ("a",), ("a",))


def test_a_mix_that_harms_a_little_is_not_kept_but_tried_again() -> None:
    outcomes = tried({"a": 0.25}, 3)
    assert [(o.reason, o.peers, o.inspected) for o in outcomes] == [(Reason.HOME, (), ("a",))] * 3


def test_it_moves_on_to_peers_that_do_not_harm() -> None:
    outcomes = tried({"a": 0.9, "b": 0.2, "c": 0.9}, 40, peers=("a", "b", "c"))
    assert {o.peers for o in outcomes} == {(), ("b",)}
    assert all(o.peers == ("b",) for o in outcomes[-10:])
    assert all(len(o.inspected) <= 1 for o in outcomes)  # never more than the one model of a round


# Forms of answer ------------------------------------------------------------------------------------------------------


def test_auto_is_latents_where_models_have_them() -> None:
    assert SageM().scoring.kind == "labels"
    assert SageM().suited(latents=True).scoring.kind == "latents"
    assert SageM().suited(latents=False).scoring.kind == "labels"
    assert SageM(kind="labels").suited(latents=True).scoring.kind == "labels"


def test_graded_losses_are_cut_and_scaled_up() -> None:
    decision = SageM(kind="latents", loss="ce", block=1).begin(("a", "b"), 1, ever=2)
    decision.answer([[0.30], [0.45]])
    assert decision.outcome.trace[0].wealth[0] == pytest.approx(log(sum(1 + g for g in (0.25, 0.5, 0.75, 0.95)) / 4))


def test_losses_may_reach_another_bound() -> None:
    """Everything scales with M, so the same answers lead to the same draws."""
    one = SageM(margin=0.1).begin(PEERS, 8, ever=4)
    ten = SageM(margin=1.0, loss_bound=10).begin(PEERS, 8, ever=4)
    one.answer(answers(PEERS, 8, 1))
    ten.answer(10 * answers(PEERS, 8, 1))
    assert one.outcome.trace[0].wealth == ten.outcome.trace[0].wealth
    assert one.outcome.peers == ten.outcome.peers


# In words -------------------------------------------------------------------------------------------------------------


def test_it_says_what_is_remembered_of_whom_and_since_when() -> None:
    outcomes = play(SageM(), 20, ever=4)
    look, end = explain(outcomes[-1], PEERS)
    assert "proven better than a random draw: ada (asked since round 1), bob (asked since round 1)" in look
    assert "proven worse than a random draw: cyd (asked since round 1), dan (asked since round 1)" in look
    assert end.startswith(f"Pull {outcomes[-1].peers[0]}: drawn among those that the evidence of all rounds leaves")
    assert "nobody proven better than a random draw" in explain(outcomes[0], PEERS)[0]


# Against a slow transcription -----------------------------------------------------------------------------------------


def literal(
    rule: SageM, peers: Sequence[str], rounds: Sequence[np.ndarray], mine: Sequence[Fraction]
) -> list[tuple[set[str], bool]]:
    """By the book: (whom it may draw from, whether by proof) in every round, asked in every round; exact products."""
    stakes = [Fraction(g) for g in ("0.25", "0.5", "0.75", "0.95")]
    held = {p: (Fraction(1), Fraction(1), Fraction(1)) for p in peers}
    ahead: dict[str, float] = {}
    risk: dict[str, float] = {}
    result = []
    for t, losses in enumerate(rounds):
        line = (min(mine[: t + 1]) + 1) / 2
        exact = [[Fraction(int(x)) for x in row] for row in losses]
        for j, peer in enumerate(peers):
            factors = []
            for sign in (1, -1):
                bets = []
                for g in stakes:
                    product = Fraction(1)
                    for i in range(losses.shape[1]):
                        others = [exact[k][i] for k in range(len(peers)) if k != j]
                        product *= 1 + g * sign * (Fraction(sum(others), len(others)) - exact[j][i])
                    bets.append(product)
                factors.append(sum(bets) / 4)
            factors.append(sum(prod(1 + g * (x - line) / line for x in exact[j]) for g in stakes) / 4)
            held[peer] = tuple(old * factor for old, factor in zip(held[peer], factors, strict=True))
            mean = float(np.mean(losses[j]))
            risk[peer] = 0.7 * risk.get(peer, mean) + 0.3 * mean
            now = float(np.mean([np.mean(losses[:, i]) - losses[j, i] for i in range(losses.shape[1])]))
            ahead[peer] = now if peer not in ahead else 0.7 * ahead[peer] + 0.3 * now
        needed = 3 * len(peers) / Fraction("0.1")
        useful = {p for p in peers if held[p][2] < needed or risk[p] <= line}
        if not useful:
            result.append((set(), False))
            continue
        worse = {p for p in peers if held[p][1] >= needed and ahead[p] <= -rule.margin}
        kept = useful - worse or useful
        usual = sum(ahead[p] for p in peers if p in kept) / len(kept)
        better = {p for p in kept if held[p][0] >= needed and ahead[p] >= usual + rule.margin}
        close = {p for p in better if ahead[p] >= max(ahead[q] for q in better) - rule.margin}
        result.append((close or kept, bool(better) or kept != set(peers)))
    return result


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 12))
def test_it_draws_from_whom_a_slow_transcription_would(seed: int, degree: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    risks, peers = rng.random(degree), [f"p{j}" for j in range(degree)]
    losses = [(rng.random((degree, 6)) < risks[:, None]).astype(float) for _ in range(rounds)]
    mine = [Fraction(int(k), 10) for k in rng.integers(0, 6, rounds)]
    rule = SageM(block=6, recheck=1.0)
    state, expected = None, literal(rule, peers, losses, mine)
    for t, (told, (names, by_proof)) in enumerate(zip(losses, expected, strict=True)):
        decision = rule.begin(peers, 6, (seed, t), state=state, round=t, ever=degree, mine=float(mine[t]))
        decision.answer(told)
        outcome = decision.outcome
        assert set(outcome.peers) <= names
        assert bool(outcome.peers) == bool(names)
        assert (outcome.reason is Reason.HOME) == (not names)
        assert (outcome.reason is Reason.CERTIFIED) == by_proof == outcome.selected
        state = outcome.state
