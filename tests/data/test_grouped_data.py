"""Groups and shifts: exact sizes, contiguous patches, samples as their owner's group sees them, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.data import IID, SHIFTS, DataError, Dataset, Dealt, Dirichlet, Owners, Shards, WorldKind, deal, load
from sagefl.data.groups import apportion, assign_groups
from sagefl.runs.config import RunConfig
from sagefl.streams import stream
from sagefl.topology import build

CLIENTS = 10


@cache
def images() -> Dataset:
    whole = load("fmnist-mini")
    return Dataset(
        "images", whole.train_x[:1500], whole.train_y[:1500], whole.test_x[:200], whole.test_y[:200], whole.classes
    )


def dealt(partitioner: object = None, data: Dataset | None = None, seed: int = 1, **kind: object) -> Dealt:
    neighbours = [[(k - 1) % CLIENTS, (k + 1) % CLIENTS] for k in range(CLIENTS)]
    how = WorldKind(**kind)  # type: ignore[arg-type]
    return deal(how, data or images(), partitioner or IID(), CLIENTS, seed, 0.1, 0.1, neighbours)  # type: ignore[arg-type]


# Who belongs together -------------------------------------------------------------------------------------------------


@given(total=st.integers(1, 300), shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_shares_are_met_to_within_one(total: int, shares: list[float]) -> None:
    exact = np.array(shares) / sum(shares) * total
    try:
        parts = apportion(total, shares)
    except DataError:
        assert exact.min() < 1
        return
    assert sum(parts) == total
    assert np.abs(np.array(parts) - exact).max() < 1 + 1e-6
    assert min(parts) >= 1


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    how=st.sampled_from(["random", "graph"]),
    kind=st.sampled_from(["er", "ba", "ring", "complete"]),
    seed=st.integers(0, 10**6),
)
def test_groups_have_exactly_their_sizes_on_any_graph(sizes: list[int], how: str, kind: str, seed: int) -> None:
    clients = sum(sizes) + 4  # graphs need a few
    sizes = [*sizes, 4]
    graph = build(kind, clients, seed)  # type: ignore[arg-type]
    neighbours = [graph.neighbours(k).tolist() for k in range(clients)]
    one, two = (assign_groups(sizes, how, neighbours, stream(seed, "groups")) for _ in range(2))  # type: ignore[arg-type]
    assert np.bincount(one, minlength=len(sizes)).tolist() == sizes
    assert (one == two).all()


def pieces(members: set[int], neighbours: list[list[int]]) -> int:
    """Into how many connected pieces a group falls."""
    left, count = set(members), 0
    while left:
        count += 1
        todo = [left.pop()]
        while todo:
            for peer in neighbours[todo.pop()]:
                if peer in left:
                    left.remove(peer)
                    todo.append(peer)
    return count


@pytest.mark.parametrize("seed", range(5))
def test_groups_along_the_graph_are_patches_of_it(seed: int) -> None:
    ring = build("ring", 30, seed)
    neighbours = [ring.neighbours(k).tolist() for k in range(30)]

    def counted(how: str) -> list[int]:
        groups = assign_groups([12, 10, 8], how, neighbours, stream(seed, "groups"))  # type: ignore[arg-type]
        return [pieces(set(np.flatnonzero(groups == g).tolist()), neighbours) for g in range(3)]

    assert counted("graph") == [1, 1, 1]
    assert min(counted("random")) > 2  # at random they are not


# What they differ in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", [IID(), Dirichlet(0.3, 5), Shards(2)], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("shift", SHIFTS)
def test_every_world_with_every_partition_twice_the_same(shift: str, partitioner: object) -> None:
    if shift == "quantity" or SHIFTS[shift].at_most == 2:  # type: ignore[index]
        one, two = (dealt(partitioner, shift=shift) for _ in range(2))
    else:
        one, two = (dealt(partitioner, shift=shift, groups=3, assign="graph") for _ in range(2))
    assert one.federation.digest == two.federation.digest
    assert (one.grouping.groups == two.grouping.groups).all()
    assert one.federation.digest != dealt(partitioner, shift=shift, seed=2).federation.digest
    assert one.federation.dataset.train_x.dtype == np.uint8


@pytest.mark.parametrize("shift", [name for name, shift in SHIFTS.items() if shift.inputs or shift.labels])
def test_all_roles_of_a_client_are_seen_as_its_group_sees_them(shift: str) -> None:
    """Whatever one group does to the test split it does to its clients' samples, too; nobody else's are touched."""
    found, plain = dealt(shift=shift), dealt()
    data, before = found.federation.dataset, images()
    assert [r.all.tolist() for r in found.federation.roles] == [r.all.tolist() for r in plain.federation.roles]
    for client, roles in enumerate(found.federation.roles):
        group = int(found.grouping.groups[client])
        test = found.grouping.tests[group]
        tells = [
            (data.train_x[part] != before.train_x[part]).any() or (data.train_y[part] != before.train_y[part]).any()
            for part in (roles.train, roles.anchor, roles.eval)
        ]
        moved = (data.test_x[test] != before.test_x).any() or (data.test_y[test] != before.test_y).any()
        assert tells == [moved] * 3
        assert moved or group == 0


def test_permuted_labels_disagree_between_any_two_groups_on_all_that_is_moved() -> None:
    for strength, moved in ((1.0, 10), (0.5, 5)):
        found = dealt(shift="labels", groups=4, strength=strength)
        y, before = found.federation.dataset.test_y, images().test_y
        names = [dict(zip(before.tolist(), y[test].tolist(), strict=True)) for test in found.grouping.tests]
        assert names[0] == {c: c for c in range(10)}
        for a in range(4):
            assert sorted(names[a].values()) == list(range(10))
            for b in range(a):
                assert sum(names[a][c] != names[b][c] for c in range(10)) == moved


def test_quarter_turns_are_exact_and_others_keep_the_middle() -> None:
    found = dealt(shift="rotation", groups=4)
    data, plain = found.federation.dataset, images().test_x
    for group, test in enumerate(found.grouping.tests):
        assert (data.test_x[test] == np.rot90(plain, group, axes=(2, 3))).all()
    slightly = dealt(shift="rotation", strength=10.0)
    turned = slightly.federation.dataset.test_x[slightly.grouping.tests[1]].astype(float)
    middle, expected = turned[..., 9:19, 9:19].mean((0, 1)), _turned(plain, 10.0)
    assert np.corrcoef(middle.ravel(), expected.ravel())[0, 1] > 0.98


def _turned(images: np.ndarray, angle: float) -> np.ndarray:
    """The same by looking up, for every pixel of the middle, the nearest one it came from."""
    a, mean = np.deg2rad(angle), images.mean((0, 1), dtype=float)
    out = np.empty((10, 10))
    for r in range(9, 19):
        for c in range(9, 19):
            down, right = r - 13.5, c - 13.5
            out[r - 9, c - 9] = mean[
                round(down * np.cos(a) + right * np.sin(a) + 13.5), round(right * np.cos(a) - down * np.sin(a) + 13.5)
            ]
    return out


def test_the_other_inputs_by_hand() -> None:
    plain = images().test_x.astype(float)

    def last(**kind: object) -> np.ndarray:
        found = dealt(**kind)
        return found.federation.dataset.test_x[found.grouping.tests[-1]].astype(float)

    assert (last(shift="invert") == 255 - plain).all()
    assert np.abs(last(shift="brightness", strength=0.2) - (plain + 51).clip(0, 255)).max() <= 1
    assert np.abs(last(shift="contrast", strength=0.5) - (127.5 + (plain - 127.5) / 2)).max() <= 1
    noise = (last(shift="noise", strength=0.1) - plain)[(plain > 100) & (plain < 155)]
    assert noise.std() == pytest.approx(25.5, rel=0.03)
    blurred = last(shift="blur", strength=1.5)
    assert blurred.mean() == pytest.approx(plain.mean(), rel=0.03)
    assert np.abs(np.diff(blurred, axis=3)).mean() < 0.6 * np.abs(np.diff(plain, axis=3)).mean()


def test_label_sets_are_disjoint_and_tested_alone() -> None:
    found = dealt(Dirichlet(1.0, 5), shift="label-set", groups=3)
    counts = found.federation.label_counts > 0
    held = [set(np.flatnonzero(counts[found.grouping.groups == g].any(0)).tolist()) for g in range(3)]
    assert set.union(*held) == set(range(10))
    assert sum(map(len, held)) == 10
    for classes, test in zip(held, found.grouping.tests, strict=True):
        assert set(images().test_y[test].tolist()) == classes


def test_quantities_differ_by_the_ratio() -> None:
    found = dealt(shift="quantity", strength=5.0)
    sizes = np.array([len(roles) for roles in found.federation.roles])
    groups = found.grouping.groups
    assert sizes[groups == 0].mean() / sizes[groups == 1].mean() == pytest.approx(5, rel=0.05)


def test_owners_keep_their_samples() -> None:
    whole = images()
    owned = Dataset(
        "owned", whole.train_x, whole.train_y, whole.test_x, whole.test_y, 10, np.arange(1500, dtype=np.int64) % 12
    )
    found = dealt(Owners(owned.owners), owned, shift="label-set")  # type: ignore[arg-type]
    for client, roles in enumerate(found.federation.roles):
        assert len(set(owned.owners[roles.all].tolist())) == 1, client  # type: ignore[index]
    assert (found.federation.label_counts > 0).sum(1).max() <= 5


def test_noisy_labels_are_as_many_as_asked_and_spare_evaluation() -> None:
    found, plain = dealt(label_noise=0.4, noisy=0.3), dealt()
    wrong = found.federation.dataset.train_y != plain.federation.dataset.train_y
    for client, roles in enumerate(found.federation.roles):
        share = 0.4 if found.grouping.noisy[client] else 0.0
        assert wrong[roles.train].sum() == round(share * len(roles.train))
        assert wrong[roles.anchor].sum() == round(share * len(roles.anchor))
        assert not wrong[roles.eval].any()
    assert found.grouping.noisy.sum() == 3
    assert (found.grouping.noisy <= dealt(label_noise=0.4, noisy=0.6).grouping.noisy).all()


def test_the_page_has_every_shift_with_its_unit_and_default() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "worlds.md").read_text(encoding="utf-8")
    for name, shift in SHIFTS.items():
        turn = "a full turn shared evenly" if shift.default == "full turn" else f"{shift.default:g}"
        cells = (f"`{name}`", shift.meaning, shift.unit, turn if shift.unit else "")
        assert f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") in page, name


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ({"shift": "labels", "groups": 30}, "world.groups is 30 for 24 clients: every group needs at least one"),
        ({"shift": "labels", "groups": 1}, "world.groups: Input should be greater than or equal to 2"),
        ({"shift": "labels", "groups": 3, "sizes": [1, 1]}, "world.sizes has 2 shares for 3 groups"),
        ({"shift": "labels", "sizes": [100, 1]}, "group 1 would have no client"),
        ({"shift": "labels", "sizes": [1, -1]}, "shares of groups must be positive numbers, got 1, -1"),
        (
            {"shift": "labels", "strength": 1.5},
            "for shift = labels it must be above 0 and at most 1 (share of the classes that are permuted)",
        ),
        (
            {"shift": "quantity", "strength": 0.5},
            "above 1 and at most 1e+06 (how many times as many the first group has as the last)",
        ),
        ({"shift": "flip", "groups": 3}, "shift = flip makes 2 groups, not 3"),
        ({"shift": "invert", "strength": 0.5}, "shift = invert has no strength to set"),
        ({"shift": "rotation", "groups": 5, "strength": 90}, "5 groups 90 degrees apart: some are turned alike"),
        ({"shift": "turn"}, "world.shift: Input should be 'none', 'labels'"),
        ({"groups": 3}, "world.groups is about groups, and there are none: set world.shift"),
        ({"assign": "graph"}, "world.assign is about groups, and there are none"),
        ({"noisy": 0.5}, "world.label_noise and world.noisy belong together"),
        ({"shfit": "labels"}, "unknown key 'world.shfit', did you mean 'shift'?"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_sentence(world: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        RunConfig.parse({"clients": 24, "world": world})
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_stale_rounds_without_stale_peers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"network\.stale is about stale peers: set network\.misbehaviour = stale"):
        RunConfig.parse({"network": {"stale": 3}})


def test_what_only_the_data_can_tell_is_refused_when_they_are_dealt() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 6)).astype(np.float32), np.arange(400) % 2
    table = Dataset("table", x, y, x[:50], y[:50], classes=2)
    with pytest.raises(DataError, match=r"shift = rotation is for images, and a sample of table is 6 numbers"):
        dealt(data=table, shift="rotation")
    with pytest.raises(DataError, match="3 groups of permuted labels need at least 3 classes"):
        dealt(data=table, shift="labels", groups=3)
    with pytest.raises(DataError, match="flipped labels of two classes only swap their names; use shift = labels"):
        dealt(data=table, shift="flip")
    with pytest.raises(DataError, match="group 2 would have no class"):
        dealt(data=table, shift="label-set", groups=3)
    assert dealt(data=table, shift="noise").federation.dataset.train_x.dtype == np.float32
