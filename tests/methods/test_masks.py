from __future__ import annotations

from math import prod

import polars as pl
import pytest
import torch
from clusters import config
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import Rows, finished, pulled, saved

from sagefl.exchange.masks import MASK, Masked, densities, masked_slots, prune, prune_and_regrow
from sagefl.methods import method

SHAPE, BIAS = (
    (24, 16),
    24,
)  # the shared block of the clustered world: 384 weights in 24 x 16, and as many biases as rows


# Masks ----------------------------------------------------------------------------------------------------------------


def test_small_layers_are_denser_and_the_whole_has_the_wanted_density():
    shapes = [(10, 10), (40, 40), (100, 20)]
    found = densities(shapes, 0.2)
    sizes = [100, 1600, 2000]
    assert sum(d * n for d, n in zip(found, sizes, strict=True)) == pytest.approx(0.2 * sum(sizes))
    # (10 + 10)/100 : (40 + 40)/1600 : 120/2000 = 20 : 5 : 6
    assert found[1] / found[0] == pytest.approx(5 / 20)
    assert found[2] / found[0] == pytest.approx(6 / 20)


@given(
    shapes=st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=4).map(tuple), min_size=1, max_size=6),
    density=st.floats(0.05, 0.95),
)
def test_densities_are_those_of_a_literal_transcription(shapes, density):
    """`calculate_sparsities` in standalone/DisPFL/my_model_trainer.py of rong-dai/DisPFL: epsilon is found again each
    time that the layers of the largest probability had to be made dense."""
    sizes, dense = [prod(shape) for shape in shapes], set()
    while len(dense) < len(shapes):
        rhs = sum(n * density if i not in dense else -n * (1 - density) for i, n in enumerate(sizes))
        raw = {i: sum(shapes[i]) / n for i, n in enumerate(sizes) if i not in dense}
        epsilon = rhs / sum(raw[i] * sizes[i] for i in raw)
        if max(raw.values()) * epsilon <= 1:
            break
        dense |= {i for i, probability in raw.items() if probability == max(raw.values())}
    expected = [1.0 if i in dense else epsilon * raw[i] for i in range(len(shapes))]
    assert densities(shapes, density) == pytest.approx(expected)


def test_a_layer_cannot_be_more_than_dense():
    found = densities([(4, 4), (100, 100)], 0.5)
    assert found[0] == 1.0
    assert found[1] * 10000 + 16 == pytest.approx(0.5 * 10016)
    assert densities([(4, 4), (3, 3)], 1.0) == [1.0, 1.0]
    assert densities([(4, 4), (100, 100)], 0.5, "uniform") == [0.5, 0.5]


def test_prune_and_regrow_by_hand():
    mask = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    weights = torch.tensor([5.0, -0.1, 0.2, -3.0, 0.0, 0.0, 0.0])
    gradient = torch.tensor([0.0, 0.0, 0.3, 0.0, 0.1, -0.9, 0.2])
    prune_and_regrow(mask, weights, gradient, 0.5)  # two move: coordinates 1 and 2 die, 5 and 2 come (back) alive
    assert mask.tolist() == [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_regrowing_keeps_the_number_of_living_weights_exactly(size, density, share, seed):
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(size, generator=generator) < density).float()
    weights, gradient = torch.randn(2, size, generator=generator)
    before = mask.clone()
    prune_and_regrow(mask, weights * before, gradient, share)
    assert mask.sum() == before.sum()
    assert set(mask.tolist()) <= {0.0, 1.0}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.floats(0, 1), st.integers(0, 99))
def test_pruning_takes_the_smallest_for_good_and_leaves_one(size, share, seed):
    mask = torch.ones(size)
    weights = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    prune(mask, weights, share)
    assert mask.sum() == size - min(int(share * size), size - 1)
    if 0 < mask.sum() < size:
        assert weights[mask == 0].abs().max() <= weights[mask > 0].abs().min()


# The exchange ---------------------------------------------------------------------------------------------------------


def sparse_rows(layer: Masked, clients: int = 3) -> Rows:
    """Rows that stay within their masks; everything else moved at random."""
    rows = Rows.made(clients, layer)
    rows.train(torch.Generator().manual_seed(4), scale=1.0)
    rows.shared.mul_(rows.population.extras[MASK])
    rows.publish(0)
    layer.publish(rows, clients, 0)
    return rows


def test_masks_cover_the_matrices_of_the_shared_block_only():
    layer = Masked(0.4, own=True)
    rows = Rows.made(4, layer)
    masks = rows.population.extras[MASK]
    (slot,) = masked_slots(rows.layout)
    assert slot.shape == (7, 5)
    assert masks[:, :35].sum(1).tolist() == [14.0] * 4  # .4 of 35
    assert masks[:, 48:55].all()  # biases stay dense
    assert not masks[:, 35:48].any()  # padding
    assert not masks[:, 55:].any()
    assert not torch.equal(masks[0], masks[1])  # own masks
    assert torch.equal(rows.shared != 0, masks > 0)  # the initial weights are masked
    same = Rows.made(4, Masked(0.4)).population.extras[MASK]
    assert torch.equal(same, same[:1].expand_as(same))


def test_a_coordinate_is_averaged_over_those_who_hold_it():
    layer = Masked(0.5, own=True)
    rows = sparse_rows(layer)
    heads, published = rows.heads.clone(), rows.population.snapshots[0].clone()
    masks = rows.population.extras[MASK]
    masks[0] = (torch.arange(64) % 3 > 0).float()  # training has ended with another mask than the published one
    layer.mix(rows, 0, layer.resolve({0: pulled({1: 1 / 3, 2: 1 / 3}), 1: pulled({2: 0.25}), 2: pulled({})}, {}, 0.5))
    for column in range(64):
        values = published[:, column]
        held = [v for v in values.tolist() if v != 0]
        expected = sum(held) / len(held) if held and masks[0, column] else 0.0
        assert rows.shared[0, column] == pytest.approx(expected, abs=1e-6)
    both = (published[1, :35] != 0) & (published[2, :35] != 0)
    assert both.any()
    expected = 0.75 * published[1, :35] + 0.25 * published[2, :35]
    assert torch.allclose(rows.shared[1, :35][both], expected[both], atol=1e-6)
    assert torch.equal(rows.shared[2], published[2, :64])  # merges nothing
    assert torch.equal(rows.heads, heads)
    assert not rows.padding.any()


@pytest.mark.parametrize("seed", range(5))
def test_averaging_is_that_of_a_literal_transcription(seed):
    """`_aggregate_func` in standalone/DisPFL/dispfl_api.py of rong-dai/DisPFL.

    The sum over oneself and the neighbours, divided by how many of their masks hold the coordinate (by 0: zero), times
    one's own mask; the masks that count are those the models were trained with.
    """
    layer = Masked(0.5, own=True)
    rows = Rows.made(4, layer)
    rows.train(torch.Generator().manual_seed(seed), scale=1.0)
    masks = rows.population.extras[MASK]
    rows.shared.mul_(masks)
    rows.publish(0)
    layer.publish(rows, 4, 0)
    trained, models = masks.clone(), rows.shared.clone()
    masks.copy_(masks[torch.tensor([1, 2, 3, 0])])  # masks change at the end of training
    around = {0: (1, 2, 3), 1: (0,), 2: (1, 3), 3: ()}
    layer.mix(rows, 0, layer.resolve({k: pulled({j: 1 / (1 + len(p)) for j in p}) for k, p in around.items()}, {}, 0.5))
    for k, peers in around.items():
        for c in range(64):
            count = sum(float(trained[j, c]) for j in (*peers, k))
            mean = sum(float(models[j, c]) for j in (*peers, k)) / count if count else 0.0
            assert float(rows.shared[k, c]) == pytest.approx(mean * float(masks[k, c]), abs=1e-6)


def test_a_block_travels_as_bitmap_and_values():
    layer = Masked(0.4)
    rows = sparse_rows(layer)
    assert layer.published == [14 + 7] * 3
    traffic = layer.traffic(0, pulled({1: 0.3, 2: 0.3}), {}, rows.sizes)
    assert traffic.models == 2 * (4 * 21 + 6)  # 42 bits are 6 bytes
    assert (traffic.merged, traffic.transferred) == (2, 2)
    assert layer.traffic(2, pulled({}), {}, rows.sizes).total == 0


# The method -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", ":density=0.3:masks=own", ":layers=uniform:anneal=0"])
def test_sparsity_is_kept_exactly_through_training_and_mixing(options, tmp_path):
    directory = finished(config(f"dispfl{options}", rounds=4), tmp_path / "run").directory
    masks, params = saved(directory, "extras.mask"), saved(directory, "params")
    alive = round((0.3 if "0.3" in options else 0.5) * 384)
    assert masks[:, :384].sum(1).tolist() == [alive] * 12
    assert masks[:, 384:408].all()
    assert not (params[:, :416] * (1 - masks)).any()  # nothing lives outside its mask
    assert (params[:, 416:] != 0).float().mean() > 0.9  # heads are not masked
    assert not torch.equal(params[0, 416:], params[2, 416:])  # and not mixed
    if "anneal=0" in options:
        assert torch.equal(masks, masks[:1].expand_as(masks))  # nothing moves: the common first mask
    else:
        assert not torch.equal(masks[0], masks[1])


def test_what_moves_is_sparse(tmp_path):
    decisions = finished(config("dispfl", rounds=3), tmp_path / "run").directory.table("decisions")
    assert set(decisions["merged"]) == {2}
    full = decisions.filter(pl.col("round") == 0)
    assert set(full["model_bytes"]) == {2 * (4 * (192 + BIAS) + 51)}  # 408 bits are 51 bytes
    # Later a weight that nobody around held may still be zero: not more moves than lives.
    assert decisions["model_bytes"].max() == full["model_bytes"][0]
    assert decisions["model_bytes"].min() > 0.9 * full["model_bytes"][0]


def test_masks_change_once_a_round_whatever_the_number_of_epochs(tmp_path):
    """With two epochs the last gradient decides, and the rows published still lie within the mask trained with."""
    training = {"batch_size": 32, "learning_rate": 0.01, "epochs": 2}
    simulator = finished(config("dispfl:anneal=1", rounds=1, training=training), tmp_path / "run")
    assert simulator.method.exchange.published == [192 + BIAS] * 12


@pytest.mark.parametrize("options", [{"density": 0.0}, {"masks": "none"}, {"anneal": 2.0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        method("dispfl", **options)
