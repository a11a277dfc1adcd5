from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt

import numpy as np
import pytest
from driving import Given, drive
from hypothesis import given
from hypothesis import strategies as st

from sagefl.exchange import Sizes, account
from sagefl.learning.tasks import Train
from sagefl.learning.training import Alternating
from sagefl.methods import method
from sagefl.methods.pfeddst import PFedDSTRule
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import ME, Reason
from sagefl.selection.scoring import Outputs
from sagefl.simulation.comparing import method_config
from sagefl.simulation.engines import make_engine
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

HEADS = {ME: (1.0, 0.0), "a": (2.0, 0.0), "b": (0.0, 1.0), "c": (0.5, sqrt(3) / 2)}  # cosines 1, 0, 1/2
TOLD = {"a": 0.2, "b": 0.6, "c": 1.0}  # what peers say of my model on their data
PROBES = {"a": [0.1, 0.3], "b": [0.6, 0.6], "c": [1.0, 1.0]}  # what their models do on mine: .2, .6, 1


def world(told: dict[str, float] = TOLD) -> Given:
    return Given(probes=PROBES, readings={"head": HEADS, "loss-of-me": told})


def choose(rule: PFedDSTRule, peers: str = "abc", anchors: int = 2, told: dict[str, float] = TOLD, **begin):
    return drive(rule.begin(peers, anchors, me="me", **begin), world(told))


def test_the_score_is_the_published_formula():
    """S = s_p (a s_l - s_d + c), as public summaries of arXiv:2502.07750 quote it; no number of it was readable."""
    rule = PFedDSTRule()
    scores = rule.scores(np.array([0.2, 0.6, 1.0]), np.array([0.0, 1.0, 0.5]), np.array([np.inf, 1.0, 2.0]))
    by_hand = [1.0 * (0.2 - 0 + 1), (1 - exp(-0.5)) * (0.6 - 1 + 1), (1 - exp(-1)) * (1 - 0.5 + 1)]
    assert scores == pytest.approx(by_hand)
    assert by_hand == pytest.approx([1.2, 0.23608, 0.94818], abs=1e-5)


def literal(a: float, c: float, rate: float, loss: float, mine: Sequence[float], theirs: Sequence[float], since: float):
    """The score as public summaries quote it, one peer at a time."""
    dot = sum(x * y for x, y in zip(mine, theirs, strict=True))
    cosine = dot / (sqrt(sum(x * x for x in mine)) * sqrt(sum(y * y for y in theirs)))
    s_p, s_l, s_d = 1 - exp(-rate * since), loss, 1 - cosine
    return s_p * (a * s_l - s_d + c)


@given(
    peers=st.lists(
        st.tuples(
            st.floats(0, 1), st.tuples(st.floats(0.1, 9), st.floats(-9, 9)), st.integers(1, 9) | st.just(float("inf"))
        ),
        min_size=1,
        max_size=7,
    ),
    a=st.floats(0.1, 3),
    rate=st.floats(0.1, 3),
    k=st.integers(1, 4),
)
def test_choices_are_those_of_a_literal_transcription(peers, a, rate, k):
    names = [chr(97 + i) for i in range(len(peers))]
    last = {n: int(20 - since) for n, (_, _, since) in zip(names, peers, strict=True) if since != float("inf")}
    told = {n: loss for n, (loss, _, _) in zip(names, peers, strict=True)}
    answers = Given(
        probes={n: [0.5] for n in names},
        readings={"head": {ME: (1.0, 0.5)} | {n: h for n, (_, h, _) in zip(names, peers, strict=True)},
                  "loss-of-me": told},
    )  # fmt: skip
    decision = PFedDSTRule(k=k, a=a, rate=rate).begin(names, 1, me="me", round=20, state={"last": last})
    chosen = drive(decision, answers).peers
    scores = {
        n: literal(a, 1.0, rate, loss, (1.0, 0.5), head, since)
        for n, (loss, head, since) in zip(names, peers, strict=True)
    }
    assert len(chosen) == min(k, len(names))
    assert min(scores[n] for n in chosen) >= sorted(scores.values())[-len(chosen)] - 1e-9


def test_top_k_by_score_with_recency_from_the_state():
    # Nobody chosen before: S = 1.2, .6, 1.5. As chosen in the round before: c falls to .59 and a leads.
    first = choose(PFedDSTRule(k=1))
    assert first.peers == ("c",)
    assert first.state == {"last": {"c": 0}, "loss-of-a": 0.2, "loss-of-b": 0.6, "loss-of-c": 1.0}
    then = choose(PFedDSTRule(k=1), round=1, state=first.state)
    assert then.peers == ("a",)
    assert then.state["last"] == {"c": 0, "a": 1}
    assert first.state["last"] == {"c": 0}


def test_a_peer_recovers_with_every_round_it_is_left_alone():
    # c scores 1.5 s_p against 1.2 for a, never chosen: behind after three rounds (1.17), ahead after four (1.30).
    for rounds, leader in ((1, "a"), (3, "a"), (4, "c")):
        assert choose(PFedDSTRule(k=1), round=5 + rounds, state={"last": {"c": 5}}).peers == (leader,)


def test_the_loss_is_of_my_model_on_the_peers_data():
    """What peers' models do on mine does not enter the choice; it is what they are told."""
    silent = dict.fromkeys("abc", 0.0)  # nobody has told yet: heads alone
    assert choose(PFedDSTRule(k=3), told=silent).peers == ("a", "c", "b")
    assert choose(PFedDSTRule(k=3), told={"a": 0.0, "b": 1.0, "c": 0.0}).peers[2] == "c"  # 1, 1, .5
    assert choose(PFedDSTRule(k=1, a=3), told={"a": 0.0, "b": 1.0, "c": 0.0}).peers == ("b",)


def test_k_models_move_and_the_rest_is_probes_and_control_bytes():
    decision = PFedDSTRule(k=2).begin("abc", 2, me="me")
    outcome = drive(decision, world())
    assert outcome.weights == dict.fromkeys(outcome.peers, 1 / 3)
    assert (outcome.inspected, outcome.evaluations, outcome.reads) == ((), 6, {"head": 3, "loss-of-me": 3})
    sizes = Sizes(784, 400, 480, Outputs(10, 8), reads={"head": 80, "last-layer": 40})
    traffic = account(outcome, decision.ledger.asked, sizes)
    assert (traffic.merged, traffic.transferred) == (2, 2)
    assert traffic.control == 3 * 4 * 20 + 3 * 4
    assert traffic.probe_inputs == 6 * 784
    assert traffic.probe_answers == 6 * 4 * 10
    assert traffic.models == 2 * 4 * 100


def test_few_neighbours_and_few_anchors():
    assert choose(PFedDSTRule(), "").reason is Reason.NONE
    assert choose(PFedDSTRule(k=2), "b").peers == ("b",)
    unprobed = choose(PFedDSTRule(k=1), anchors=0)
    assert (unprobed.peers, unprobed.evaluations) == (("c",), 0)
    assert choose(PFedDSTRule(anchors=1)).evaluations == 3


@pytest.mark.parametrize("wrong", [{"k": 0}, {"rate": 0.0}, {"anchors": 0}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PFedDSTRule(**wrong)


class Watched(Alternating):
    """Remembers which of the two parts every step moved, and how old the moments were."""

    def __init__(self, first: str = "body") -> None:
        super().__init__(first)
        self.moved: list[tuple[bool, bool]] = []

    def begin(self, local, model):
        self.last = local.row.clone()

    def stepped(self, local):
        changed, stop = local.row != self.last, local.layout.shared_stop
        self.moved.append((bool(changed[:stop].any()), bool(changed[stop:].any())))
        self.last = local.row.clone()


BODY, HEAD = (True, False), (False, True)


@pytest.mark.parametrize(("first", "turns"), [("body", [BODY, HEAD]), ("head", [HEAD, BODY])])
def test_alternating_training_moves_one_part_at_a_time_over_all_batches(first, turns):
    world = World.build(RunConfig.parse({"clients": 2, "rounds": 1, "model": {"name": "mlp"}, "topology": {"p": 1.0},
                                         "training": {"max_batches": 3, "batch_size": 4}}))  # fmt: skip
    hooks = Watched(first)
    engine = make_engine("sequential", world, hooks)
    engine.population.reset(world.initial)
    (result,) = engine.map([Train(0, 0)])
    assert hooks.moved == [turns[0]] * 3 + [turns[1]] * 3
    assert result[1] == 12  # samples, though each was seen twice
    assert engine.population.steps[0] == 3  # either part has taken three steps


def test_pfeddst_alternates_unless_told_otherwise():
    training = method("pfeddst").training
    assert isinstance(training, Alternating)
    assert training.first == "head"
    assert not isinstance(method("pfeddst", alternate=False).training, Alternating)


@pytest.mark.slow
def test_training_collapses_in_the_printed_order_only(tmp_path):
    """Measured after merging: a head last fitted to its own body no longer fits the merged one."""
    own = {}
    for spec in ("pfeddst", "pfeddst:first=body", "pfeddst:alternate=false"):
        document = {"clients": 8, "rounds": 12, "seed": 1, "topology": {"p": 0.5}, "method": method_config(spec),
                    "training": {"max_batches": 4},
                    "evaluation": {"every": 12, "losses": "none", "mechanisms": False}}  # fmt: skip
        run = RunDirectory(tmp_path / spec.replace(":", "-"))
        own[spec] = Simulator(RunConfig.parse(document), run, Execution(engine="sequential")).run()["client"]
    assert own["pfeddst:first=body"] < own["pfeddst"] - 0.2
    assert own["pfeddst"] > own["pfeddst:alternate=false"] - 0.03
