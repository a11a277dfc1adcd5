"""What is measured, against literal versions and examples worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import ROUGH, config, simulate, world

from sagefl.learning.targets import Classes, clipped_ce
from sagefl.learning.tasks import Train
from sagefl.learning.training import LocalTraining
from sagefl.runs.columns import schema
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.summary import gossip_share, summarise
from sagefl.selection import Exchange, Outcome, Reason, SageE, SageOS
from sagefl.simulation.engines import Sequential
from sagefl.simulation.evaluation import check_proxy, diversity, evaluate, gini
from sagefl.simulation.world import World

Reference = Callable[..., Path]
METRICS, DECISIONS = map(schema, ("metrics", "decisions"))


@pytest.fixture
def engine() -> Any:
    """Eight clients, trained for a round each on their own."""
    made = Sequential(world(config()), LocalTraining())
    made.population.reset(world(config()).initial)
    made.map([Train(k, 0) for k in range(8)])
    yield made
    made.close()


# Accuracy and F1 ------------------------------------------------------------------------------------------------------


def literal_f1(truth: list[int], predicted: list[int], classes: int) -> float:
    """2 precision recall / (precision + recall) per class, 0 where it is not defined; the mean over all classes."""
    total = 0.0
    for c in range(classes):
        hits = sum(t == p == c for t, p in zip(truth, predicted, strict=True))
        precision = hits / predicted.count(c) if predicted.count(c) else 0.0
        recall = hits / truth.count(c) if truth.count(c) else 0.0
        total += 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return total / classes


@given(st.integers(2, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60))
def test_macro_f1_is_the_mean_over_all_classes_with_zero_for_empty_ones(
    classes: int, pairs: list[tuple[int, int]]
) -> None:
    truth, predicted = [a % classes for a, _ in pairs], [b % classes for _, b in pairs]
    targets = Classes(classes)
    tally = targets.tally(torch.eye(classes)[predicted], torch.tensor(truth))
    found = targets.measures([tally], [(0.0, 0.0)], [1])
    assert found["f1"][0] == pytest.approx(literal_f1(truth, predicted, classes))
    assert found["accuracy"][0] == np.mean(np.equal(truth, predicted))


def test_what_is_counted_on_test_samples_grows_with_classes_and_not_with_their_square() -> None:
    """A word to be predicted is a class: a vocabulary squared is in nobody's memory."""
    words = 50_000
    counted = Classes(words).tally(torch.nn.functional.one_hot(torch.arange(5), words), torch.arange(5) % 3)
    assert counted.size == 3 * words
    assert counted.sum(axis=1).tolist() == [3, 5, 5]


def test_an_evaluation_is_the_mean_over_clients_of_their_own_predictors(engine: Sequential) -> None:
    own = world(config())
    subset = np.arange(0, 300, 3)
    found = evaluate(own, engine, [subset] * own.clients)
    data = own.dataset
    for k in range(8):
        own.layout.bind(model := type(own.model)((1, 28, 28), 10, hidden=8), engine.population.params[k])
        with torch.no_grad():
            said = model(torch.from_numpy(data.test_x[subset]).float() / 255).argmax(1).numpy()
            mine = own.federation.roles[k].eval
            logits = model(torch.from_numpy(data.train_x[mine]).float() / 255)
        truth = data.test_y[subset]
        assert found.accuracy[k] == np.mean(said == truth)
        assert found.f1[k] == pytest.approx(literal_f1(truth.tolist(), said.tolist(), 10))
        assert found.client[k] == np.mean(logits.argmax(1).numpy() == data.train_y[mine])
    told = found.summary("before_")
    assert told["before_weak"] == found.client.min() < told["before_client"] == found.client.mean()
    assert told["before_accuracy"] == found.accuracy.mean()


def test_curves_use_a_fixed_subset_and_the_end_all_test_images(reference: Reference) -> None:
    metrics = RunDirectory(reference(config("rg"))).table("metrics")
    assert metrics["test_images"].to_list() == [None, 100, None, 300]
    assert metrics["accuracy"].is_null().to_list() == [True, False, True, False]
    own = world(config())
    assert np.array_equal(own.test_sets(False)[0], own.test_sets(False)[0])
    assert len(set(own.test_sets(False)[0].tolist())) == 100


# Mechanisms -----------------------------------------------------------------------------------------------------------


def test_diversity_is_one_minus_the_mean_pairwise_linear_cka(engine: Sequential) -> None:
    own = world(config())
    grams = []
    for k in range(8):
        own.layout.bind(model := type(own.model)((1, 28, 28), 10, hidden=8), engine.population.params[k])
        with torch.no_grad():
            z = model.latent(torch.from_numpy(own.dataset.test_x[:256]).float() / 255).double()
        z = z - z.mean(0)
        grams.append(z @ z.T)
    pairs = [(a * b).sum() / (a.norm() * b.norm()) for i, a in enumerate(grams) for b in grams[i + 1 :]]
    expected = 1 - float(torch.stack(pairs).mean())
    assert 0.01 < expected < 1
    assert diversity(own, engine) == pytest.approx(expected, abs=1e-5)


def test_equal_models_have_no_diversity_and_scaled_ones_neither(engine: Sequential) -> None:
    engine.population.params.copy_(engine.population.params[0].expand(8, -1))
    assert diversity(world(config()), engine) == pytest.approx(0, abs=1e-6)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any))
def test_gini_is_the_mean_difference_over_twice_the_mean(counts: list[int]) -> None:
    x = np.array(counts, dtype=float)
    literal = np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean())
    assert gini(counts) == pytest.approx(literal)


def test_gini_at_its_ends() -> None:
    assert gini([3, 3, 3]) == pytest.approx(0)
    assert gini([0] * 99 + [7]) == pytest.approx(0.99)
    assert gini([0, 0]) is None


def test_concentration_counts_the_pulls_since_the_evaluation_before(tmp_path: Path) -> None:
    """Evaluations after rounds 2, 4 and, because it is the last, 5."""
    settings = config("aq-128", rounds=5)
    simulate(tmp_path / "run", settings)
    metrics = RunDirectory(tmp_path / "run").table("metrics")["pull_gini"].to_list()
    told = RunDirectory(tmp_path / "run").table("decisions")
    for at, since in ((1, 0), (3, 2), (4, 4)):
        pulls = told.filter(pl.col("round").is_between(since, at))["chosen"].explode().to_list()
        assert metrics[at] == pytest.approx(gini(np.bincount(pulls, minlength=8)))


def test_the_proxy_check_compares_the_pulled_peer_with_its_neighbourhood(engine: Sequential) -> None:
    """Peer 1 is made to say 3 always, peer 2 to say 5 always: their risks can be counted by hand."""
    own = world(config())
    for peer, label in ((1, 3), (2, 5)):
        _says(own, engine, 0, peer, label)
    mine = own.dataset.train_y[own.federation.roles[0].eval]
    three, five = float(np.mean(mine != 3)), float(np.mean(mine != 5))
    assert three != five
    peers: list[list[int]] = [[1, 2], [], [], [], [], [], [], []]
    chosen = Exchange.select(2, Reason.CERTIFIED)
    outcomes = {
        0: Outcome(chosen.peers, True, chosen.reason),
        3: Outcome((), False, Reason.NONE),
        4: Outcome((0,), True, Reason.COMMITTED, direction="push"),
    }
    found = check_proxy(own, engine, dict.fromkeys(range(8), 0), outcomes, peers, {}, SageOS(loss_bound=2.0))
    assert list(found) == [0]
    assert found[0].pulled == five
    assert found[0].gossip == pytest.approx((three + five) / 2)
    assert found[0].risks == (2 * three, 2 * five)


def test_the_proxy_check_is_about_the_model_that_a_late_link_carries() -> None:
    """Peer 1 said 5 always a round ago and says 3 always now: 0 hears it late, 2 in time."""
    own = world(config(topology={"kind": "complete", "p": None}, network={"delay": 1.0}))
    engine = Sequential(own, LocalTraining())
    engine.population.reset(own.initial)
    for round in range(2):
        engine.map([Train(k, round) for k in range(8)])
    _says(own, engine, 1, 1, 3)
    _says(own, engine, 0, 1, 5)
    peers = [[1], [], [1], *[[]] * 5]
    outcomes = {k: Outcome((1,), True, Reason.CERTIFIED) for k in (0, 2)}
    found = check_proxy(own, engine, dict.fromkeys(range(8), 1), outcomes, peers, {(0, 1): 1, (2, 1): 0}, SageOS())
    for client, label in ((0, 5), (2, 3)):
        wrong = float(np.mean(own.dataset.train_y[own.federation.roles[client].eval] != label))
        assert (found[client].pulled, found[client].risks) == (wrong, (wrong,))
    assert found[0].pulled != float(np.mean(own.dataset.train_y[own.federation.roles[0].eval] != 3))
    engine.close()


def _says(own: World, engine: Sequential, round: int, peer: int, label: int) -> None:
    """Let what a peer published in a round answer every input with one label."""
    head = own.layout.views(engine.population.snapshots[engine.population.slot(round), peer])
    head["head.weight"].zero_()
    head["head.bias"].zero_()
    head["head.bias"][label] = 1


@pytest.mark.parametrize(("kind", "loss"), [("latents", "error"), ("latents", "ce"), ("probs", "ce")])
def test_peers_are_checked_as_the_rule_scores_them(engine: Sequential, kind: Any, loss: Any) -> None:
    """Peer 1 has another head, which its latents do not pass through; peer 2 has another body."""
    own = world(config())
    views = [own.layout.views(engine.population.snapshots[0, peer]) for peer in range(3)]
    views[1]["head.bias"][3] += 5
    views[2]["body.1.weight"].neg_()
    mine, rows = own.federation.roles[0].eval, engine.population.snapshots[0]
    x, y = torch.from_numpy(own.dataset.train_x[mine]) / 255, torch.from_numpy(own.dataset.train_y[mine])
    expected = []
    for peer in (1, 2):
        model = deepcopy(own.model)
        own.layout.bind(model, rows[peer])
        with torch.no_grad():
            z = model.latent(x)
            own.layout.bind(model, rows[0 if kind == "latents" else peer])
            logits = model.head(z)
        losses = clipped_ce(logits, y) if loss == "ce" else (logits.argmax(1) != y)
        expected.append(float(losses.double().mean()))
    outcomes = {0: Outcome((2,), True, Reason.CERTIFIED)}
    rule = SageE(kind=kind, loss=loss)
    found = check_proxy(own, engine, dict.fromkeys(range(8), 0), outcomes, [[1, 2], *[[]] * 7], {}, rule)[0]
    assert found.risks == pytest.approx(expected, rel=1e-5)
    assert expected[0] != expected[1]
    labels = check_proxy(own, engine, dict.fromkeys(range(8), 0), outcomes, [[1, 2], *[[]] * 7], {}, SageE())[0]
    assert (found.pulled, found.gossip) == (labels.pulled, labels.gossip)


# The run in a few numbers ---------------------------------------------------------------------------------------------


def row(**given: Any) -> dict[str, Any]:
    plain = {
        "round": 0, "client": 0, "degree": 4, "pool": 200, "peers": [1, 2, 3, 4], "chosen": [1], "direction": "pull",
        "selected": False, "reason": "cost", "anchors": 16, "evaluations": 64, "stages": 1, "inspected": 0,
        "merged": 1, "transferred": 1, "probe_input_bytes": 64 * 784, "probe_answer_bytes": 64, "model_bytes": 1000,
        "control_bytes": 0,
    }  # fmt: skip
    return plain | given


ROWS = [
    row(),
    row(reason="certified", anchors=64, degree=2, evaluations=128, advantage=0.5, eval_gain=0.2,
        peers=[1, 2], eval_risks=[0.6, 0.4]),
    row(reason="certified", anchors=128, degree=6, evaluations=700, advantage=0.1, eval_gain=-0.1,
        eval_risks=[0.1] * 4),
    row(reason="no-anchors", anchors=0, evaluations=0, degree=8),
    row(reason="exhausted", anchors=32, degree=1, evaluations=32, advantage=0.0, eval_gain=0.0),
    row(reason="none", anchors=0, evaluations=0, degree=0, merged=0, transferred=0, chosen=[], model_bytes=0),
    row(reason="committed", anchors=0, evaluations=0, degree=3, merged=2, transferred=3, model_bytes=5000,
        control_bytes=12),
]  # fmt: skip


def test_the_summary_of_seven_decisions_worked_out_by_hand() -> None:
    decisions = pl.DataFrame(ROWS, schema=DECISIONS)
    accuracy = {"accuracy": 0.5, "macro_f1": 0.4, "client": 0.3, "weak": 0.1, "client_ce": 0.9}
    before = {f"before_{name}": value / 2 for name, value in accuracy.items()}
    metrics = pl.DataFrame(
        [
            {"round": t, **(accuracy | before | {"accuracy": 0.1 * t, "pull_gini": 0.25} if t % 2 else {})}
            for t in range(8)
        ],
        schema=METRICS,
    )
    summary = summarise(metrics, decisions)
    # The third screened: it asked 700 of 6 * 128. The others asked everybody about every anchor.
    spent, degrees = 4 * 16 + 2 * 64 + 700 + 1 * 32, 4 + 2 + 6 + 8 + 1 + 0 + 3
    expected = {
        "rounds": 8,
        "accuracy": 0.7,
        "before_weak": 0.05,
        "accuracy_last3": 0.5,
        "decisions": 7,
        "evaluations": spent,
        "budget": spent / (128 * degrees),
        "saving": 1 - spent / (128 * degrees),  # eq:probesaving, decisions without anchors included
        "certified": 2 / 7,
        "rg_fallback": 3 / 7,
        "cost_rg": 1 / 7,
        "stop_16": 1 / 7,
        "stop_32": 1 / 7,
        "stop_64": 1 / 7,
        "stop_128": 1 / 7,
        "merged": 7 / 6,  # per decision with a neighbour
        "transferred": 8 / 6,
        "probe_input_bytes": 7 * 64 * 784,
        "probe_answer_bytes": 7 * 64,
        "model_bytes": 5 * 1000 + 5000,
        "control_bytes": 12,
        "bytes": 7 * 64 * 785 + 10_000 + 12,
        "certified_checked": 2,
        "certified_worse": 0.5,
        "advantage_gain_correlation": np.corrcoef([0.5, 0.1, 0.0], [0.2, -0.1, 0.0])[0, 1],
        "pull_gini": 0.25,
        "diversity": None,
    }
    for name, value in expected.items():
        assert summary[name] == (value if value is None else pytest.approx(value)), name
    assert gossip_share(decisions) == 3 / 7


def test_a_single_neighbour_is_a_draw_among_one_and_what_studies_recorded_keeps_its_meaning() -> None:
    decisions = pl.DataFrame([row(reason="only", degree=1), row(reason="uniform", degree=1)], schema=DECISIONS)
    assert gossip_share(decisions) == 1
    assert summarise(pl.DataFrame(schema=METRICS), decisions)["rg_fallback"] == 0.5


@pytest.mark.parametrize(
    ("given", "refuted"),
    [
        ({"test": "wealth", "chosen": [3], "eval_risks": [0.4, 0.4, 0.1, 0.3]}, False),
        ({"test": "wealth", "chosen": [1], "eval_risks": [0.4, 0.4, 0.1, 0.3]}, True),
        ({"test": "trim", "chosen": [1], "eval_risks": [0.4, 0.4, 0.1, 0.3], "wealth": [0, 5, 0, 0]}, False),
        ({"test": "trim", "chosen": [3], "eval_risks": [0.4, 0.4, 0.1, 0.3], "wealth": [0, 5, 4, 0]}, True),
        ({"test": "trim", "chosen": [3], "eval_risks": [0.1] * 4, "wealth": [4, 5, 0, 4]}, False),
    ],
)
def test_certificates_are_held_to_what_they_say(given: dict[str, Any], refuted: bool) -> None:
    """Chosen better than the mean; or, of trimmed gossip, nobody dropped who is better than it. Equal is not worse."""
    rows = [row(reason="certified", threshold=4.0, **given), row(reason="cost", eval_risks=[0.9, 0, 0, 0])]
    summary = summarise(pl.DataFrame(schema=METRICS), pl.DataFrame(rows, schema=DECISIONS))
    assert (summary["certified_checked"], summary["certified_worse"]) == (1, float(refuted))


def test_before_any_evaluation_the_summary_has_the_same_names_without_values() -> None:
    none = summarise(pl.DataFrame(schema=METRICS), pl.DataFrame(schema=DECISIONS))
    some = summarise(pl.DataFrame([{"round": 0}], schema=METRICS), pl.DataFrame(ROWS, schema=DECISIONS))
    assert none.keys() == some.keys()
    assert none["accuracy"] is some["accuracy"] is some["accuracy_last3"] is some["before_weak"] is None
    json.dumps(none, allow_nan=False)


def test_a_correlation_needs_three_points_and_some_spread() -> None:
    for rows in (ROWS[1:3], [ROWS[1] | {"eval_gain": 0.0}] * 5):
        summary = summarise(pl.DataFrame(schema=METRICS), pl.DataFrame(rows, schema=DECISIONS))
        assert summary["advantage_gain_correlation"] is None


def test_the_bytes_of_a_whole_run_add_up(reference: Reference) -> None:
    """AQ-128 on this world, from partition and graph alone."""
    own = world(config())
    pools = [len(roles.anchor) for roles in own.federation.roles]
    stage = [max([m for m in (16, 32, 64, 128) if m <= pool], default=0) for pool in pools]
    asked = 4 * int((own.graph.degrees * stage).sum())
    summary = RunDirectory(reference(config("aq-128"))).summary
    assert summary is not None
    assert summary["evaluations"] == asked
    assert summary["probe_input_bytes"] == asked * 784
    assert summary["probe_answer_bytes"] == asked
    assert summary["model_bytes"] == 4 * 8 * 4 * (784 * 8 + 8)
    assert summary["budget"] == pytest.approx(asked / (128 * 4 * own.graph.degrees.sum()))
    latent = RunDirectory(reference(config("sage-os:kind=latents", **ROUGH))).table("decisions")
    assert (latent["probe_answer_bytes"] == latent["evaluations"] * 8 * 4).all()


def test_metrics_are_the_sums_of_the_audit(reference: Reference) -> None:
    run = RunDirectory(reference(config("sage-os", **ROUGH)))
    metrics, told = run.table("metrics"), run.table("decisions")
    by_round = told.group_by("round", maintain_order=True)
    for name in ("evaluations", "merged", "transferred", "probe_input_bytes", "model_bytes", "degree"):
        assert metrics[name].to_list() == by_round.agg(pl.col(name).sum())[name].to_list()
    reasons = [name for name in metrics.columns if name.startswith("reason_")]
    assert (metrics.select(pl.sum_horizontal(reasons)).to_series() == 8).all()
    for reason in ("certified", "none", "exhausted", "no-anchors"):
        assert metrics[f"reason_{reason}"].sum() == (told["reason"] == reason).sum() > 0


def test_gains_are_measured_where_something_was_pulled_at_an_evaluation(reference: Reference) -> None:
    run = RunDirectory(reference(config("sage-os", **ROUGH)))
    told, clients = run.table("decisions"), run.table("clients")
    assert clients["round"].unique(maintain_order=True).to_list() == [1, 3]
    joined = told.join(clients, on=["round", "client"], how="left")
    for decision in joined.iter_rows(named=True):
        due = decision["round"] in (1, 3) and decision["chosen"]
        assert (decision["eval_gain"] is not None) == bool(due)
        assert (decision["eval_pulled_risk"] is not None) == bool(due)
        if due:
            assert decision["eval_gain"] == decision["own_accuracy"] - decision["own_accuracy_before"]


def test_timings_say_where_the_time_went(reference: Reference) -> None:
    timings = RunDirectory(reference(config("rg"))).table("timings")
    assert timings["round"].to_list() == [0, 1, 2, 3]
    assert (timings["train"] > 0).all()
    assert timings["checkpoint"].is_null().to_list() == [True, False, True, False]
    assert (timings.select("decide", "mix", "evaluate", "record") > 0).to_numpy()[1::2].all()
