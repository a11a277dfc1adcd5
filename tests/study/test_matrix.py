from __future__ import annotations

from itertools import groupby

import pytest

from sagefl.data import places
from sagefl.learning.training import Alternating
from sagefl.methods import method
from sagefl.runs.config import RunConfig
from sagefl.study.errors import StudyError
from sagefl.study.matrix import scale_of
from sagefl.study.paper import design, plan
from sagefl.study.study import absent

UPPER = ("d-psgd", "average-all")


@pytest.mark.parametrize("preset", ["laptop", "paper"])
def test_the_papers_matrix_is_two_by_two_by_three_by_eight_and_two_upper_rows(preset: str) -> None:
    cells = [c for c in plan(preset) if c.seed == 1 and c.method not in ("sage-os-table", "sage-m")]
    assert len(cells) == 2 * 2 * 3 * (8 + 2) == len({c.config.digest for c in cells})
    assert sum(c.method in UPPER for c in cells) == 2 * 2 * 3 * 2
    assert {c.config.clients for c in cells} == {50}
    assert {c.config.rounds for c in cells} == {{"laptop": 150, "paper": 250}[preset]}
    assert {c.config.training.max_batches for c in cells} == {{"laptop": 8, "paper": None}[preset]}
    assert {(c.config.topology.kind, c.config.topology.p, c.config.topology.m) for c in cells} == {
        ("er", None, None),
        ("ba", None, None),
    }


def test_the_paper_as_printed_begins_with_what_is_required() -> None:
    """Fashion-MNIST, ER/.1 and BA/.3 first, gossip before what is held against it; replications before the rest."""
    cells = plan("paper")
    places = [(str(c.configuration), c.method, c.seed) for c in cells]
    assert places[:4] == [("fmnist/er/0.1", m, 1) for m in ("rg", "d-psgd", "aq-128", "sage-os")]
    worlds = list(dict.fromkeys(world for world, _, _ in places))
    assert worlds[:7] == [
        "fmnist/er/0.1", "fmnist/ba/0.3", "fmnist/er/0.3", "fmnist/ba/0.1", "fmnist/er/0.05", "fmnist/ba/0.05",
        "cifar10/er/0.05",
    ]  # fmt: skip
    assert len(set(places)) == len(places)
    again = [place for place in places if place[2] > 1]
    assert again == [
        (world, method, seed)
        for world in ("fmnist/er/0.1", "fmnist/ba/0.3")
        for seed in (2, 3)
        for method in ("rg", "aq-128", "sage-os")
    ]
    assert places.index(again[-1]) < places.index(("cifar10/ba/0.05", "rg", 1))
    for _, part in groupby(places, key=lambda place: (place[0], place[2])):
        methods = [method for _, method, _ in part]
        assert "rg" not in methods or methods.index("rg") == 0 or methods[0] == "local"


def test_stages_follow_what_is_asked_for() -> None:
    one = plan("paper", datasets=["fmnist"], topologies=["ba"], alphas=[0.3])
    assert {str(c.configuration) for c in one} == {"fmnist/ba/0.3"}
    assert {c.seed for c in one} == {1, 2, 3}
    chosen = plan("paper", methods=["rg", "pens"])
    assert {(c.method, c.seed) for c in chosen} == {("rg", 1), ("pens", 1)}
    assert len(chosen) == 24
    assert {c.seed for c in plan("paper", seeds=[5], datasets=["fmnist"])} == {5}
    added = plan("paper", methods=["+sage-e"], datasets=["fmnist"], topologies=["er"], alphas=[0.1])
    assert [c.method for c in added if c.seed == 2] == ["rg", "aq-128", "sage-os", "sage-e"]


def test_methods_of_one_configuration_share_their_world() -> None:
    cells = plan("paper", datasets=["fmnist"], topologies=["er"], alphas=[0.1], seeds=[1])
    assert len({c.config.world_digest for c in cells}) == 1
    assert len({c.config.digest for c in cells}) == 10


def test_methods_train_as_their_options_say() -> None:
    plain, own = plan(
        "laptop", datasets=["fmnist"], topologies=["er"], alphas=[0.1], methods=["pfeddst", "pfeddst:alternate=false"]
    )
    assert (plain.method, plain.config.method.options) == ("pfeddst", {})
    assert (own.method, own.config.method.options) == ("pfeddst:alternate=false", {"alternate": False})
    assert isinstance(method("pfeddst", **plain.config.method.options).training, Alternating)


def test_studies_share_cells() -> None:
    """A cell's address depends on its config only: not on the preset, nor on what else is in the study."""
    small = plan("laptop", methods=["rg"])
    large = {c.config.digest for c in plan("laptop", methods=["rg", "sage-os-table"], seeds=[1, 2])}
    assert {c.config.digest for c in small} < large
    assert plan("paper", methods=["rg"], overrides={"rounds": 150, "training": {"max_batches": 8}})[0] == small[0]


def test_axes_and_scale_can_be_overridden() -> None:
    cells = plan(
        "paper",
        datasets=["cifar10"],
        topologies=["ring"],
        alphas=[0.7],
        methods=["sage-os:probe_cost=0.001", "sage-os"],
        seeds=[4, 5],
        overrides={"rounds": 7, "clients": 9, "training": {"max_batches": 3}},
    )
    assert [(c.seed, c.method) for c in cells] == [
        (4, "sage-os:probe_cost=0.001"), (4, "sage-os"), (5, "sage-os:probe_cost=0.001"), (5, "sage-os"),
    ]  # fmt: skip
    config = cells[0].config
    assert (config.rounds, config.clients, config.training.max_batches) == (7, 9, 3)
    assert (config.topology.kind, config.data.alpha, config.method.options) == ("ring", 0.7, {"probe_cost": 0.001})


def test_the_same_cell_twice_is_one_cell() -> None:
    assert len(plan("smoke", methods=["rg", "rg"], topologies=["er"], alphas=[0.1])) == 1


def test_smoke_needs_nothing_but_what_is_shipped() -> None:
    assert {c.config.data.dataset for c in plan("smoke")} == {"fmnist-mini"}
    assert {c.config.topology.kind for c in plan("smoke")} == {"er", "ba"}
    assert absent(plan("smoke")) == []
    assert design("smoke").small


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(StudyError, match="did you mean 'laptop'"):
        plan("labtop")


def test_missing_data_names_the_ways_to_get_it_and_the_cells(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SAGEFL_DATA", str(tmp_path / "none"))
    missing = {absence.dataset: absence for absence in absent(plan("laptop", methods=["rg", "sage-os"]))}
    assert set(missing) == {"fmnist", "cifar10"}
    assert "sagefl data get cifar10" in missing["cifar10"].ways
    assert len(missing["cifar10"].cells) == 12


def test_the_scale_is_said_as_it_was_run() -> None:
    configs = [c.config for c in plan("laptop", seeds=[1, 2], datasets=["fmnist"])]
    configs.append(RunConfig.parse({"rounds": 40, "data": {"dataset": "cifar10"}}))
    configs.append(RunConfig.parse({"training": {"precision": "bfloat16"}, "data": {"dataset": "sotu"}}))
    lines = scale_of(configs)
    assert lines[0] == "fmnist: K = 50, T = 150, at most 8 mini-batches a round, encoder-decoder, seed 1 to 2"
    assert lines[1] == "cifar10: K = 50, T = 40, whole local epochs, encoder-decoder, seed 1"
    assert lines[2] == "sotu: K = 50, T = 250, whole local epochs, encoder-decoder, seed 1, in bfloat16"
    assert len(lines) == 3
