"""Two clusters with different label maps: who claims to find compatible peers finds them, who does not is blind.

Every claim is a one-sided binomial test at level .001 on the picks after three rounds (see `clusters`).
"""

from __future__ import annotations

import pytest
from clusters import finds_cluster, is_blind, picks, run_clusters

FINDERS = [
    "pens:n_sampled=6:first_phase=0.5",
    "pens-original",
    "hoeffding-race",
    "hoeffding-race:finish=commit",
    "fedfomo",
    "federico",
    "dflstar-lite:prefer=similar",
]


@pytest.mark.parametrize("method", FINDERS)
def test_methods_that_look_for_compatible_peers_find_their_cluster(method, tmp_path):
    assert finds_cluster(run_clusters(method, tmp_path / "run"), since=3)


@pytest.mark.parametrize("method", ["rg", "gossip-learning", "d-psgd"])
def test_methods_that_do_not_look_pick_blindly(method, tmp_path):
    assert is_blind(run_clusters(method, tmp_path / "run"))


def test_the_two_terms_of_pfeddst_pull_apart(tmp_path):
    """The loss score prefers the other cluster, the header distance one's own: ours to report."""
    loss_alone = picks(run_clusters("pfeddst:a=20:rate=5", tmp_path / "loss"), since=3)
    header_alone = picks(run_clusters("pfeddst:a=0:rate=5", tmp_path / "header"), since=3)
    assert loss_alone[0] / loss_alone[1] < loss_alone[2] < header_alone[0] / header_alone[1]


def test_the_literal_reading_of_dflstar_seeks_what_differs(tmp_path):
    """DFLStar's "most informative" points at the other cluster: ours to report."""
    within, total, chance = picks(run_clusters("dflstar-lite", tmp_path / "run"), since=3)
    assert total > 50
    assert within < 0.5 * chance * total


def test_pens_keeps_its_cluster_for_phase_two(tmp_path):
    """Phase two alone: draws from those kept are within the cluster."""
    decisions = run_clusters("pens:n_sampled=6:first_phase=0.6", tmp_path / "run", rounds=10)
    later = decisions.filter(decisions["round"] >= 6)
    assert set(later["reason"]) == {"uniform"}
    assert finds_cluster(later)


def test_federico_gives_its_cluster_most_of_the_weight(tmp_path):
    decisions = run_clusters("federico", tmp_path / "run")
    inside = outside = 0.0
    for row in decisions.filter(decisions["round"] >= 3).iter_rows(named=True):
        for peer, weight in zip(row["chosen"], row["weights"], strict=True):
            same = peer % 2 == row["client"] % 2
            inside, outside = inside + weight * same, outside + weight * (not same)
    assert inside > 5 * outside
