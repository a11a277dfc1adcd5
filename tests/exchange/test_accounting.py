"""Bytes by kind, on examples worked out by hand."""

from __future__ import annotations

from sagefl.exchange import ExchangeLayer, Sizes, Traffic, account
from sagefl.selection import Outcome, Reason

SIZES = Sizes.of(input_bytes=784, classes=10, latent=64, shared_size=1000, local_size=50, last=30)


def test_probing_seven_peers_with_128_anchors_costs_what_the_audit_says() -> None:
    """0.70 MB against a 0.86 MB model (method.md, 4)."""
    paper = Sizes.of(input_bytes=784, classes=10, latent=64, shared_size=216_000, local_size=4_810, last=640)
    spent = account(Outcome((3,), True, Reason.COMMITTED, evaluations=896), {"labels": 896}, paper)
    assert spent == Traffic(probe_inputs=702_464, probe_answers=896, models=864_000, control=0, merged=1, transferred=1)
    assert spent.total == 702_464 + 896 + 864_000


def test_answers_are_charged_by_kind() -> None:
    nothing = Outcome((), False, Reason.NONE)
    assert account(nothing, {"labels": 5}, SIZES).probe_answers == 5
    assert account(nothing, {"latents": 5}, SIZES).probe_answers == 5 * 64 * 4
    assert account(nothing, {"probs": 5}, SIZES).probe_answers == 5 * 10 * 4
    both = account(nothing, {"labels": 3, "latents": 2}, SIZES)
    assert (both.probe_inputs, both.probe_answers) == (5 * 784, 3 + 2 * 256)


def test_many_classes_need_two_bytes_a_label() -> None:
    wide = Sizes.of(input_bytes=1, classes=257, latent=1, shared_size=1, local_size=1, last=1)
    assert account(Outcome((), False, Reason.NONE), {"labels": 4}, wide).probe_answers == 8


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
