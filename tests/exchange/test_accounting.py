"""Bytes by kind, on examples worked out by hand."""

from __future__ import annotations

from sagefl.exchange import ExchangeLayer, Sizes, Traffic, account
from sagefl.selection import Outcome, Reason
from sagefl.selection.scoring import LABEL_ERRORS, Outputs, scoring

SIZES = Sizes(784, 4000, 4200, Outputs(10, 64), reads={"head": 200, "last-layer": 120})


def test_probing_seven_peers_with_128_anchors_costs_what_the_audit_says() -> None:
    """0.70 MB against a 0.86 MB model (the audit of the paper)."""
    paper = Sizes(784, 864000, 883240, Outputs(10, 64), reads={"head": 19240, "last-layer": 2560})
    spent = account(Outcome((3,), True, Reason.COMMITTED, evaluations=896), {LABEL_ERRORS: 896}, paper)
    assert spent == Traffic(probe_inputs=702_464, probe_answers=896, models=864_000, control=0, merged=1, transferred=1)
    assert spent.total == 702_464 + 896 + 864_000


def test_answers_are_charged_by_kind() -> None:
    nothing = Outcome((), False, Reason.NONE)
    assert account(nothing, {LABEL_ERRORS: 5}, SIZES).probe_answers == 5
    assert account(nothing, {scoring("latents", "ce"): 5}, SIZES).probe_answers == 5 * 64 * 4
    assert account(nothing, {scoring("probs", "ce"): 5}, SIZES).probe_answers == 5 * 10 * 4
    both = account(nothing, {LABEL_ERRORS: 3, scoring("latents", "error"): 2}, SIZES)
    assert (both.probe_inputs, both.probe_answers) == (5 * 784, 3 + 2 * 256)


def test_many_classes_need_two_bytes_a_label() -> None:
    wide = Sizes(1, 4, 8, Outputs(257, 1), reads={"head": 4, "last-layer": 4})
    assert account(Outcome((), False, Reason.NONE), {LABEL_ERRORS: 4}, wide).probe_answers == 8


def test_inspected_models_move_whole_and_only_once() -> None:
    spent = account(Outcome((1, 4), True, Reason.COMMITTED, inspected=(1, 2, 3)), {}, SIZES)
    assert spent.models == 3 * 4 * 1050 + 4 * 1000  # three looked at with their heads, one pulled unseen
    assert (spent.merged, spent.transferred) == (2, 4)


def test_readings_are_control_traffic() -> None:
    reads = {"head": 2, "last-layer": 3, "degree": 5}
    spent = account(Outcome((), False, Reason.NONE, reads=reads), {}, SIZES)
    assert spent.control == 2 * 200 + 3 * 120 + 5 * 4


def test_the_plain_layer_accounts_plainly() -> None:
    outcome = Outcome((1,), False, Reason.UNIFORM)
    assert ExchangeLayer().traffic(0, outcome, {}, SIZES) == account(outcome, {}, SIZES)
