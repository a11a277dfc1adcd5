"""A dataset dealt to clients: one owner and one role per sample, the same world for every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sagefl.data import IID, Dataset, Dirichlet, Federation, Roles, Shards


@pytest.fixture(scope="module")
def world(mini: Dataset) -> Federation:
    return Federation.build(mini, Dirichlet(0.3), clients=20, seed=1)


def roles_of(*positions: list[int]) -> Roles:
    return Roles(*(np.array(part) for part in positions))


def test_every_sample_has_one_owner_and_one_role(world: Federation) -> None:
    held = [position for roles in world.roles for _, part in roles.items() for position in part]
    assert sorted(held) == list(range(10_000))
    assert world.clients == 20
    for roles in world.roles:
        assert len(roles.anchor) == len(roles.eval) == max(1, len(roles) // 10)


def test_label_counts_count_what_each_client_holds(world: Federation, mini: Dataset) -> None:
    assert world.label_counts.shape == (20, 10)
    assert world.label_counts.sum(axis=0).tolist() == [1_000] * 10
    client = world.roles[7]
    mine = np.concatenate([client.train, client.anchor, client.eval])
    assert world.label_counts[7].tolist() == np.bincount(mini.train_y[mine], minlength=10).tolist()


def test_label_counts_have_a_column_for_classes_nobody_holds() -> None:
    x = np.zeros((6, 2), np.float32)
    data = Dataset.from_arrays("d", x, np.array([0, 1] * 3), x, np.array([0, 1] * 3), classes=4)
    world = Federation(data, [roles_of([0], [1], [2]), roles_of([3], [4], [5])], seed=0)
    assert world.label_counts.tolist() == [[2, 1, 0, 0], [1, 2, 0, 0]]


# --- repeatability ---


def test_the_world_depends_on_dataset_partitioner_clients_and_seed_only(world: Federation, mini: Dataset) -> None:
    np.random.default_rng().random()  # whatever was drawn before is of no matter
    assert Federation.build(mini, Dirichlet(0.3), clients=20, seed=1).digest == world.digest
    others = [
        Federation.build(mini, Dirichlet(0.3), clients=20, seed=2),
        Federation.build(mini, Dirichlet(0.4), clients=20, seed=1),
        Federation.build(mini, Dirichlet(0.3), clients=21, seed=1),
        Federation.build(mini, Shards(), clients=20, seed=1),
        Federation.build(mini, IID(), clients=20, seed=1),
    ]
    assert len({world.digest, *(other.digest for other in others)}) == 6


def test_the_digest_tells_roles_apart(mini: Dataset) -> None:
    one = Federation(mini, [roles_of([0], [1], [2])], seed=0)
    two = Federation(mini, [roles_of([0], [2], [1])], seed=0)
    assert one.digest != two.digest


def test_the_world_of_seed_1_stays_what_it_is(world: Federation) -> None:
    # If this fails after a change here, published results no longer repeat: say so in the changelog.
    # NumPy may also change how it draws (rarely, in minor releases); then pin the new value.
    assert world.digest == "b3f44abdca285916ffe8fed706fb9051be9a4e294a7c9b7fc92c1ea50b6a2100"


# --- anchors ---


def test_anchors_are_the_pool_in_an_order_keyed_by_seed_round_and_client(world: Federation) -> None:
    pool = world.roles[3].anchor
    order = world.anchors(3, round=5, seed=1)
    assert sorted(order) == sorted(pool)
    assert order.tolist() == world.anchors(3, 5).tolist()  # the federation's own seed
    assert order.tolist() == world.anchors(3, 5, seed=1, mode="shuffle").tolist()
    assert order.tolist() != world.anchors(3, 6).tolist()
    assert order.tolist() != world.anchors(3, 5, seed=2).tolist()


def test_anchor_orders_do_not_depend_on_what_was_asked_before(world: Federation, mini: Dataset) -> None:
    fresh = Federation.build(mini, Dirichlet(0.3), clients=20, seed=1)
    for client in reversed(range(20)):
        fresh.anchors(client, 2)
    assert [world.anchors(c, 4).tolist() for c in range(20)] == [fresh.anchors(c, 4).tolist() for c in range(20)]


def test_clients_with_equal_pools_are_shuffled_differently(mini: Dataset) -> None:
    pools = [list(range(50)), list(range(50, 100))]
    world = Federation(mini, [roles_of([200 + c], pool, [300 + c]) for c, pool in enumerate(pools)], seed=1)
    assert world.anchors(0, 3).tolist() != (world.anchors(1, 3) - 50).tolist()


def test_fixed_anchors_keep_one_random_order_and_are_a_copy(world: Federation) -> None:
    one, two = world.anchors(3, 0, mode="fixed"), world.anchors(3, 9, seed=4, mode="fixed")
    assert one.tolist() == two.tolist() == world.roles[3].anchor.tolist()
    assert not (np.diff(one) > 0).all()
    one[:] = 0
    assert world.anchors(3, 1, mode="fixed").tolist() == two.tolist()


def test_unknown_anchor_mode(world: Federation) -> None:
    mode: Any = "sorted"
    with pytest.raises(ValueError, match="expected 'shuffle' or 'fixed'"):
        world.anchors(0, 0, mode=mode)


# --- what cannot be built ---


def test_two_clients_cannot_share_a_sample(mini: Dataset) -> None:
    with pytest.raises(ValueError, match=r"sample 2 is held by clients \[0, 2\]"):
        Federation(mini, [roles_of([0], [1], [2]), roles_of([3], [4], [5]), roles_of([2], [6], [7])], seed=0)


@pytest.mark.parametrize("outside", [-1, 10_000])
def test_positions_outside_the_training_split(mini: Dataset, outside: int) -> None:
    with pytest.raises(ValueError, match="expected 0 to 9999"):
        Federation(mini, [roles_of([0], [1], [outside])], seed=0)


def test_a_federation_of_nobody(mini: Dataset) -> None:
    with pytest.raises(ValueError, match="at least one client"):
        Federation(mini, [], seed=0)


def test_a_client_with_too_little_is_named(mini: Dataset) -> None:
    with pytest.raises(ValueError, match=r"client 0 of 5000: a client with 2 sample\(s\)"):
        Federation.build(mini, IID(), clients=5_000, seed=1)


def test_one_client_and_clients_of_ten_samples_work(mini: Dataset) -> None:
    alone = Federation.build(mini, Dirichlet(0.3), clients=1, seed=1)
    assert len(alone.roles[0]) == 10_000
    small = Federation.build(mini, IID(), clients=1_000, seed=1)
    assert {tuple(len(part) for _, part in roles.items()) for roles in small.roles} == {(8, 1, 1)}
