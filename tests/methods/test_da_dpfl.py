from __future__ import annotations

from math import ceil, floor

import numpy as np
import polars as pl
import pytest
import torch
from clusters import config
from hypothesis import assume, given
from hypothesis import strategies as st
from rows import Rows, finished, pulled, saved

from sagefl.exchange.masks import MASK, SequentialMasked, prune
from sagefl.methods import method
from sagefl.methods.da_dpfl import LARGEST_CUT, pq_index, timetable
from sagefl.selection.outcome import decode, encode

RING = [[1, 5], [0, 2], [1, 3], [2, 4], [3, 5], [4, 0]]


def merged_with_all_neighbours(layer: SequentialMasked) -> None:
    layer.resolve({k: pulled(dict.fromkeys(peers, 1 / 3)) for k, peers in enumerate(RING)}, {}, 0.5)


def test_groups_let_everybody_train_once_after_those_it_waits_for():
    for wait in (1, 2):
        layer = SequentialMasked(0.5, wait=wait)
        Rows.made(6, layer)
        merged_with_all_neighbours(layer)
        for round in range(20):
            groups = layer.groups(RING, round)
            assert sorted(k for group in groups for k in group) == list(range(6))
            slot = {k: at for at, group in enumerate(groups) for k in group}
            for k, fresh in layer.fresh.items():
                assert set(fresh) <= set(RING[k])
                assert all(slot[j] < slot[k] for j in fresh)
                assert (slot[k] == 0) == (not fresh)  # nobody waits for nothing
    assert len({str(layer.groups(RING, round)) for round in range(20)}) > 5  # another order every round


def test_one_waits_only_for_whom_it_merged_last_and_can_reach():
    layer = SequentialMasked(0.5, wait=9)
    Rows.made(6, layer)
    assert layer.groups(RING, 0) == [list(range(6))]  # nothing merged yet
    layer.resolve({k: pulled({RING[k][0]: 0.5}) for k in range(6)}, {}, 0.5)
    for round in range(10):
        layer.groups(RING, round)
        assert all(set(fresh) <= {RING[k][0]} for k, fresh in layer.fresh.items())
        assert layer.groups([[] for _ in RING], round) == [list(range(6))]


def test_waiting_is_bounded():
    """On the complete graph, waiting for everybody is a queue; waiting for one keeps rounds short."""
    complete = [[j for j in range(12) if j != k] for k in range(12)]
    lengths = {}
    for wait in (0, 1, 11):
        layer = SequentialMasked(0.5, wait=wait)
        Rows.made(12, layer)
        layer.resolve({k: pulled(dict.fromkeys(complete[k], 1 / 12)) for k in range(12)}, {}, 0.5)
        lengths[wait] = len(layer.groups(complete, 3))
    assert lengths == {0: 1, 1: 2, 11: 12}


def test_fresh_blocks_replace_one_share_each():
    layer = SequentialMasked(1.0, wait=2)
    rows = Rows.made(3, layer)
    rows.train(torch.Generator().manual_seed(4), scale=1.0)
    rows.publish(1)
    layer.chosen, layer.fresh = {0: [1, 2]}, {0: [1], 1: [], 2: []}
    before = rows.population.params.clone()
    layer.reuse(rows, 1, [0, 1, 2], [[1, 2], [0], [0]])
    expected = 2 / 3 * before[0, :64] + 1 / 3 * before[1, :64]
    assert torch.allclose(rows.shared[0], expected, atol=1e-6)
    assert torch.equal(rows.heads, before[:, 64:])
    assert torch.equal(rows.population.params[1:], before[1:])


@pytest.mark.parametrize("seed", range(5))
def test_fresh_models_enter_as_in_a_literal_transcription(seed):
    """`_aggregate_func_ring` in dadpfl_api_sch.py of EricLoong/da-dpfl, with the average of DisPFL's `_aggregate_func`.

    There a neighbour that comes earlier in the round's order is averaged as it is *after* its training, the others as
    they were. Ours holds the average of all as they were and lets a fresh block replace a share of it: the same
    wherever those were alike, which is where neither has anything to dilute.
    """
    rng = torch.Generator().manual_seed(seed)
    peers, order = [1, 2, 3], torch.randperm(4, generator=rng).tolist()
    layer = SequentialMasked(0.5, own=True, wait=3)
    rows = Rows.made(4, layer)
    masks = rows.population.extras[MASK]
    old = torch.randn(rows.layout.width, generator=rng)  # everybody's before the round, where their masks hold it
    w_original = [old[:64] * masks[k] for k in range(4)]
    w_update = [(old[:64] + torch.randn(64, generator=rng)) * masks[k] for k in range(4)]
    for k in range(4):
        rows.shared[k], rows.population.snapshots[rows.population.slot(1), k, :64] = w_original[k], w_update[k]
    earlier = [j for j in peers if order.index(j) < order.index(0)]
    layer.chosen, layer.fresh = {0: peers}, {0: earlier, 1: [], 2: [], 3: []}
    layer.reuse(rows, 1, [0], [peers, [], [], []])
    models = [w_original[0], *(w_update[j] if j in earlier else w_original[j] for j in peers)]
    for c in range(64):
        fresh = [float(w_update[j][c]) for j in earlier if masks[j, c]]
        if masks[0, c] and all(masks[j, c] for j in peers):
            assert float(rows.shared[0, c]) == pytest.approx(sum(float(m[c]) for m in models) / 4, abs=1e-5)
        elif masks[0, c]:  # over those that hold it: here one's own average stands for all that are not fresh
            rest = 4 - len(earlier)
            mean = (rest * float(old[c]) + sum(fresh)) / (rest + len(fresh))
            assert float(rows.shared[0, c]) == pytest.approx(mean, abs=1e-5)
        else:
            assert float(rows.shared[0, c]) == 0.0


def test_what_is_taken_before_training_is_paid_for():
    layer = SequentialMasked(0.4, wait=1)
    rows = Rows.made(3, layer)
    rows.publish(0)
    layer.publish(rows, 3, 0)
    layer.fresh = {0: [2]}
    traffic = layer.traffic(0, pulled({1: 0.5}), {}, rows.sizes)
    assert (traffic.models, traffic.merged, traffic.transferred) == (2 * (4 * 21 + 6), 2, 2)


def test_its_memory_survives_being_written_down():
    layer, other = SequentialMasked(0.5), SequentialMasked(0.5)
    Rows.made(6, layer)
    merged_with_all_neighbours(layer)
    other.load(decode(encode(layer.state())))
    assert [other.groups(RING, t) for t in range(9)] == [layer.groups(RING, t) for t in range(9)]
    assert other.fresh == layer.fresh


def test_pq_index_by_hand():
    assert pq_index(torch.tensor([2.0, -2.0, 2.0])) == pytest.approx(0.0, abs=1e-6)
    assert pq_index(torch.tensor([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.75)  # three of four can be spared
    assert pq_index(torch.tensor([4.0, 1.0])) == pytest.approx(1 - 1.5**2 / 2.5)
    assert pq_index(torch.zeros(3)) == 0.0


@given(weights=st.lists(st.floats(-9, 9, width=32), min_size=2, max_size=40), dead=st.data())
def test_pruning_is_that_of_a_literal_transcription(weights, dead):
    """`make_si` and `make_bound_si` in sp_functions.py, `generate_mask_rigl_sparsity_awareness` in client.py.

    Of the authors' code (EricLoong/da-dpfl), with its defaults p = 1/2, q = 1, eta = 0 and prune_scale = 1.
    """
    x = torch.tensor(weights, dtype=torch.float64)
    alive = torch.tensor(dead.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights))))
    assume(len(set(x[alive].abs().tolist())) == int(alive.sum()) > 1)  # no ties: any of equal weights may go
    p, q, d = 0.5, 1.0, float(alive.sum())
    norm = {r: sum(abs(v) ** r for v in x[alive].tolist()) for r in (p, q)}
    si = 1 - (norm[p] / d) ** (1 / p) / (norm[q] / d) ** (1 / q)
    assert pq_index(x[alive]) == pytest.approx(max(si, 0.0), abs=1e-6)
    kept = d * (1 + 0.0) ** (q / (p - q)) * (1 - si) ** ((q * p) / (q - p))
    assume(abs(kept - round(kept)) > 1e-3)  # where rounding decides
    m = ceil(kept)
    pruned = floor(d * min(max(1 - m / d, 0.0), 0.9) + 1e-9)
    pivot = sorted(x[alive].abs().tolist())[pruned]
    expected = [bool(a) and abs(float(v)) >= pivot for a, v in zip(alive, x, strict=True)]
    mask = alive.double()
    prune(mask, x, min(pq_index(x[alive]), LARGEST_CUT))
    assert [bool(a) for a in mask] == expected


@given(first=st.integers(1, 200), rounds=st.integers(200, 500))
def test_the_timetable_is_that_of_a_literal_transcription(first, rounds):
    """`generate_pruning_freq` in dadpfl_api_sch.py of the authors' code, c = reconfig_reduce = 2, step = 20."""
    gaps = [first]
    for _ in range(20):
        gaps.append(round((gaps[-1] + 0) / 2))
    assert timetable(first / rounds, rounds) == set(np.cumsum(gaps).tolist())


def test_timetable_by_hand():
    assert timetable(0.2, 100) == {20, 30, 35, 37, 38}
    assert timetable(0.07, 100) == {7, 11, 13, 14}  # 3.5 is rounded to the even 4
    assert timetable(0.25, 4) == {1}
    assert timetable(1.0, 10) & set(range(10)) == set()  # never within the run


def test_without_waiting_and_pruning_it_is_dispfl(tmp_path):
    plain = finished(config("dispfl", rounds=4), tmp_path / "plain").directory
    same = finished(config("da-dpfl:wait=0:prune_from=1:anneal=0.5", rounds=4), tmp_path / "same").directory
    assert torch.equal(saved(same, "params"), saved(plain, "params"))
    assert torch.equal(saved(same, "extras.mask"), saved(plain, "extras.mask"))
    assert same.table("decisions").equals(plain.table("decisions"))
    waiting = finished(config("da-dpfl:wait=1:prune_from=1", rounds=4), tmp_path / "waiting").directory
    assert not torch.equal(saved(waiting, "params"), saved(plain, "params"))


def test_models_grow_sparser_down_to_the_target_and_cost_less(tmp_path):
    directory = finished(config("da-dpfl:prune_from=0.3:target=0.45:wait=0", rounds=8), tmp_path / "run").directory
    masks, params = saved(directory, "extras.mask"), saved(directory, "params")
    alive = masks[:, :384].sum(1) / 384
    assert (alive < 0.45).all()  # pruned at rounds 2 and 3: a pruning step may pass the target
    assert (alive > 0.2).all()
    assert not (params[:, :416] * (1 - masks)).any()
    rounds = directory.table("decisions").group_by("round").agg(pl.col("model_bytes").sum()).sort("round")
    assert rounds["model_bytes"][0] == rounds["model_bytes"][2]  # round 2 publishes what it trained with
    assert rounds["model_bytes"][7] < 0.95 * rounds["model_bytes"][0]


def test_in_the_simulator_fresh_models_come_on_top(tmp_path):
    decisions = finished(config("da-dpfl", rounds=4), tmp_path / "run").directory.table("decisions")
    assert set(decisions.filter(pl.col("round") == 0)["merged"]) == {2}
    later = decisions.filter(pl.col("round") > 0)["merged"]
    assert later.min() == 2
    assert 2 < later.max() <= 4  # it may find more than one already done
    assert (decisions["transferred"] == decisions["merged"]).all()


@pytest.mark.parametrize("options", [{"wait": -1}, {"prune_from": 0.0}, {"target": 2.0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        method("da-dpfl", **options)
