from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest
import torch
from driving import Given, drive

from sagefl.exchange import Sizes, account
from sagefl.learning.alternating import Alternating
from sagefl.learning.layout import Layout
from sagefl.learning.models import Mlp
from sagefl.learning.training import Local, LocalTraining, TrainingOptions, run_epoch
from sagefl.methods import method
from sagefl.methods.pfeddst import PFedDSTRule
from sagefl.selection import ME, Reason
from sagefl.selection.scoring import Outputs

HEADS = {ME: (1.0, 0.0), "a": (2.0, 0.0), "b": (0.0, 1.0), "c": (0.5, sqrt(3) / 2)}  # cosines 1, 0, 1/2
PROBES = {"a": [0.1, 0.3], "b": [0.6, 0.6], "c": [1.0, 1.0]}  # means .2, .6, 1: min-max 0, 1/2, 1


def world() -> Given:
    return Given(probes=PROBES, readings={"head": HEADS})


def test_the_score_is_the_published_formula():
    rule = PFedDSTRule()
    scores = rule.scores(np.array([0.2, 0.6, 1.0]), np.array([0.0, 1.0, 0.5]), np.array([np.inf, 1.0, 2.0]))
    by_hand = [1.0 * (0 - 0 + 1), (1 - exp(-0.5)) * (0.5 - 1 + 1), (1 - exp(-1)) * (1 - 0.5 + 1)]
    assert scores == pytest.approx(by_hand)
    assert by_hand == pytest.approx([1.0, 0.19673, 0.94818], abs=1e-5)


def test_top_k_by_score_with_recency_from_the_state():
    # Nobody chosen before: S = 1, .5, 1.5. As chosen in the round before: c falls to .59 and a leads.
    first = drive(PFedDSTRule(k=1).begin("abc", 2), world())
    assert first.peers == ("c",)
    assert first.state == {"last": {"c": 0}}
    then = drive(PFedDSTRule(k=1).begin("abc", 2, round=1, state=first.state), world())
    assert then.peers == ("a",)
    assert then.state == {"last": {"c": 0, "a": 1}}
    assert first.state == {"last": {"c": 0}}


def test_a_peer_recovers_with_every_round_it_is_left_alone():
    # c scores 1.5 s_p against 1 for a, never chosen: behind after two rounds (.95), ahead after three (1.17).
    for rounds, leader in ((1, "a"), (2, "a"), (3, "c")):
        decision = PFedDSTRule(k=1).begin("abc", 2, round=5 + rounds, state={"last": {"c": 5}})
        assert drive(decision, world()).peers == (leader,)


def test_the_other_sign_prefers_the_lowest_loss():
    assert drive(PFedDSTRule(k=1, loss_sign=-1).begin("abc", 2), world()).peers == ("a",)  # 1 against -.5 and -.5
    flat = Given(probes={p: [0.5, 0.5] for p in "abc"}, readings={"head": HEADS})
    assert drive(PFedDSTRule(k=3, loss_sign=-1).begin("abc", 2), flat).peers == ("a", "c", "b")  # heads alone


def test_k_models_move_and_the_rest_is_probes_and_control_bytes():
    decision = PFedDSTRule(k=2).begin("abc", 2)
    outcome = drive(decision, world())
    assert outcome.weights == dict.fromkeys(outcome.peers, 1 / 3)
    assert (outcome.inspected, outcome.evaluations, outcome.reads) == ((), 6, {"head": 3})
    sizes = Sizes(784, 400, 480, Outputs(10, 8), reads={"head": 80, "last-layer": 40})
    traffic = account(outcome, decision.ledger.asked, sizes)
    assert (traffic.merged, traffic.transferred) == (2, 2)
    assert traffic.control == 3 * 4 * 20
    assert traffic.probe_inputs == 6 * 784
    assert traffic.probe_answers == 6 * 4 * 10
    assert traffic.models == 2 * 4 * 100


def test_few_neighbours_and_few_anchors():
    assert drive(PFedDSTRule().begin((), 2), world()).reason is Reason.NONE
    assert drive(PFedDSTRule(k=2).begin("b", 2), world()).peers == ("b",)
    unprobed = drive(PFedDSTRule(k=1).begin("abc", 0), world())
    assert (unprobed.peers, unprobed.evaluations) == (("a",), 0)  # heads alone
    assert drive(PFedDSTRule(anchors=1).begin("abc", 2), world()).evaluations == 3


@pytest.mark.parametrize("wrong", [{"k": 0}, {"loss_sign": 0}, {"rate": 0.0}, {"anchors": 0}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PFedDSTRule(**wrong)


class Watched(Alternating):
    """Remembers which of the two parts every step moved."""

    def __init__(self, first: str = "body") -> None:
        super().__init__(first)
        self.moved: list[tuple[bool, bool]] = []

    def begin(self, local, model):
        self.last = local.row.clone()

    def stepped(self, local):
        changed, stop = local.row != self.last, local.layout.shared_stop
        self.moved.append((bool(changed[:stop].any()), bool(changed[stop:].any())))
        self.last = local.row.clone()


def train(hooks: LocalTraining, batches: int, round: int = 0) -> None:
    torch.manual_seed(0)
    model = Mlp((6,), 3, hidden=5)
    layout = Layout.of(model)
    row, gradient = layout.flatten(model), torch.zeros(layout.width)
    layout.bind(model, row, gradient)
    moments = (torch.zeros(layout.width), torch.zeros(layout.width), torch.zeros(()))
    x, y = torch.randn(4 * batches, 6), torch.arange(4 * batches) % 3
    run_epoch(model, Local(0, round, layout, row, gradient, {}), moments, x, y, TrainingOptions(batch_size=4), hooks)


BODY, HEAD = (True, False), (False, True)


@pytest.mark.parametrize(
    ("batches", "round", "first", "turns"),
    [
        (4, 0, "body", [BODY, BODY, HEAD, HEAD]),
        (3, 1, "body", [BODY, BODY, HEAD]),
        (3, 0, "head", [HEAD, HEAD, BODY]),
        (1, 0, "body", [BODY]),
        (1, 1, "body", [HEAD]),
    ],
)
def test_alternating_training_moves_one_part_at_a_time(batches, round, first, turns):
    hooks = Watched(first)
    train(hooks, batches, round)
    assert hooks.moved == turns


def test_pfeddst_alternates_unless_told_otherwise():
    assert isinstance(method("pfeddst").training, Alternating)
    assert not isinstance(method("pfeddst", alternate=False).training, Alternating)
