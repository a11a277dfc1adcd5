"""Two clusters with different label maps: who claims to find compatible peers finds them, who does not is blind.

Every claim is a one-sided binomial test at level .001 on the picks after three rounds (see `clusters`).
"""

from __future__ import annotations

import pytest
from clusters import finds_cluster, is_blind, picks, run_clusters

FINDERS = [
    "pens:n_sampled=6:first_phase=0.5",
    "pens-original",
    "pfeddst:loss_sign=-1",
    "pfeddst:loss_sign=-1:alternate=false",
    "hoeffding-race",
    "hoeffding-race:finish=commit",
    "fedfomo",
    "federico-lite",
    "dflstar:prefer=similar",
]


@pytest.mark.parametrize("method", FINDERS)
def test_methods_that_look_for_compatible_peers_find_their_cluster(method, tmp_path):
    assert finds_cluster(run_clusters(method, tmp_path / "run"), since=3)


@pytest.mark.parametrize("method", ["rg", "gossip-learning", "d-psgd"])
def test_methods_that_do_not_look_pick_blindly(method, tmp_path):
    assert is_blind(run_clusters(method, tmp_path / "run"))


@pytest.mark.parametrize("method", ["pfeddst", "dflstar"])
def test_the_literal_readings_seek_what_differs(method, tmp_path):
    """PFedDST's printed sign and DFLStar's "most informative" both point at the other cluster: ours to report."""
    within, total, chance = picks(run_clusters(method, tmp_path / "run"), since=3)
    assert total > 50
    assert within < 0.5 * chance * total


def test_pens_keeps_its_cluster_for_phase_two(tmp_path):
    """Phase two alone: draws from those kept are within the cluster."""
    decisions = run_clusters("pens:n_sampled=6:first_phase=0.6", tmp_path / "run", rounds=10)
    later = decisions.filter(decisions["round"] >= 6)
    assert set(later["reason"]) == {"uniform"}
    assert finds_cluster(later)


def test_federico_gives_its_cluster_most_of_the_weight(tmp_path):
    decisions = run_clusters("federico-lite", tmp_path / "run")
    inside = outside = 0.0
    for row in decisions.filter(decisions["round"] >= 3).iter_rows(named=True):
        for peer, weight in zip(row["chosen"], row["weights"], strict=True):
            same = peer % 2 == row["client"] % 2
            inside, outside = inside + weight * same, outside + weight * (not same)
    assert inside > 5 * outside
