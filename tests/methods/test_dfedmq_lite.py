from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from clusters import config, finds_cluster, run_clusters, simulate
from driving import Given, drive

from sagefl.selection import Probe, Reason
from sagefl.selection.dfedmq_lite import DFedMQLite
from sagefl.selection.outcome import decode, encode


def losses(**values: float) -> Given:
    return Given(readings={"loss": values})


def test_the_lowest_reported_losses_are_merged():
    outcome = drive(DFedMQLite().begin("abcd", 8), losses(a=0.9, b=0.2, c=0.5, d=0.3))
    assert outcome.peers == ("b", "d")
    assert outcome.weights == pytest.approx({"b": 1 / 3, "d": 1 / 3})
    assert (outcome.reads, outcome.evaluations, outcome.inspected) == ({"loss": 4}, 0, ())
    assert outcome.reason is Reason.COMMITTED


def test_progress_is_relative_to_what_was_reported_last():
    rule = DFedMQLite(k=1, quality="progress")
    first = drive(rule.begin("abc", 8), losses(a=1.0, b=4.0, c=2.0))
    assert first.trace[0].scores == (0.0, 0.0, 0.0)
    # a fell by 20 %, b by 10 %, c rose; d reports for the first time.
    answers = losses(a=0.8, b=3.6, c=2.5, d=0.1)
    second = drive(rule.begin("abcd", 8, state=decode(encode(first.state)), round=1), answers)
    assert second.trace[0].scores == pytest.approx((0.2, 0.1, -0.25, 0.0))
    assert second.peers == ("a",)
    # b was away for a round; what it reported before is still known.
    away = drive(rule.begin("ac", 8, state=second.state, round=2), losses(a=0.8, c=2.5))
    assert away.state["losses"] == {"a": 0.8, "b": 3.6, "c": 2.5, "d": 0.1}


def test_a_loss_of_zero_is_no_progress():
    rule = DFedMQLite(quality="progress")
    outcome = drive(rule.begin("a", 8, state={"losses": {"a": 0.0}}), losses(a=0.0))
    assert outcome.trace[0].scores == (0.0,)


def test_quality_on_ones_own_anchors():
    answers = Given(probes={"a": [1, 1, 0, 1], "b": [0, 0, 1, 0], "c": [0, 1, 0, 1]})
    outcome = drive(DFedMQLite(k=2, quality="anchors", anchors=3).begin("abc", 4), answers)
    assert outcome.peers in (("b", "c"), ("c", "b"))  # a third wrong each on the first three anchors
    assert (outcome.anchors, outcome.evaluations) == (3, 9)
    assert answers.asked == [Probe(("a", "b", "c"), 0, 3)]


def test_quality_may_be_measured_on_more_anchors_than_the_papers_rules_ask_about():
    answers = Given(probes={"a": [1] * 200, "b": [0] * 200})
    outcome = drive(DFedMQLite(k=1, quality="anchors", anchors=200).begin("ab", 200), answers)
    assert (outcome.peers, outcome.evaluations) == (("b",), 400)


def test_equal_quality_is_broken_at_random():
    answers = losses(a=0.5, b=0.5, c=0.5)
    chosen = {drive(DFedMQLite(k=1).begin("abc", 8, seed), answers).peers for seed in range(60)}
    assert chosen == {("a",), ("b",), ("c",)}


@pytest.mark.parametrize("quality", ["loss", "progress", "anchors"])
def test_few_neighbours_and_no_anchors(quality):
    rule = DFedMQLite(k=5, quality=quality)
    assert drive(rule.begin((), 8), Given()).reason is Reason.NONE
    answers = Given(probes={"a": np.zeros(8), "b": np.ones(8)}, readings={"loss": {"a": 0.1, "b": 2.0}})
    assert drive(rule.begin("a", 8), answers).peers == ("a",)
    assert set(drive(rule.begin("ab", 8), answers).peers) == {"a", "b"}
    assert set(drive(rule.begin("ab", 0), answers).peers) == {"a", "b"}


@pytest.mark.parametrize("options", [{"k": 0}, {"quality": "taste"}, {"anchors": 0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        DFedMQLite(**options)


def test_measured_on_ones_own_anchors_quality_finds_the_cluster(tmp_path):
    assert finds_cluster(run_clusters("dfedmq-lite:quality=anchors", tmp_path / "run"), since=3)


def test_reported_quality_is_the_same_for_everybody(tmp_path):
    """By construction it cannot find a cluster: in a round all receivers draw on the same few best reporters."""
    decisions = simulate(config("dfedmq-lite", rounds=4), tmp_path / "run").table("decisions")
    assert not finds_cluster(decisions)
    for _, group in decisions.group_by("round"):
        # k = 2 of everybody: the three lowest losses, because whoever is among them takes the third.
        assert len(set(group["chosen"].explode())) == 3
    assert (decisions["control_bytes"] == 4 * decisions["degree"]).all()
    assert set(decisions.select(pl.col("merged"), pl.col("transferred")).unique().row(0)) == {2}
