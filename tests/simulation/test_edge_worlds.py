"""Worlds at the edge: one client, lone clients, ten samples, one neighbour, nobody reachable, every kind of graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file
from small_runs import CORE, KINDS, ROUGH, config, differing, files, mini, simulate, world

from sagefl.data import Dataset
from sagefl.runs.config import RunConfig
from sagefl.runs.losses import losses_path
from sagefl.simulation.engines import EngineError
from sagefl.simulation.world import World


def decisions(directory: Path) -> pl.DataFrame:
    return pl.read_parquet(directory / "decisions.parquet")


def last_rows(directory: Path, rounds: int) -> Any:
    return load_file(directory / "checkpoint" / f"round-{rounds:05d}" / "params-0000.safetensors")["rows"]


@pytest.mark.parametrize("method", ["local", "rg", "aq-128", "sage-os", "sage-os:kind=latents"])
def test_one_client_alone_trains(tmp_path: Path, method: str) -> None:
    settings = config(method, clients=1, rounds=2)
    summary = simulate(tmp_path / "run", settings)
    told = decisions(tmp_path / "run")
    assert told["reason"].to_list() == ["none", "none"]
    assert told["chosen"].to_list() == [[], []]
    assert summary["accuracy"] > 0
    assert (summary["merged"], summary["bytes"], summary["budget"], summary["saving"]) == (0, 0, 0, 1)
    assert (summary["diversity"], summary["pull_gini"]) == (None, None)
    assert (last_rows(tmp_path / "run", 2)[0] != world(settings).initial).any()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    """0-1-2 is a chain, 3 and 4 are alone: the settings, and everybody's rows after training alone."""
    folder = tmp_path_factory.mktemp("chain")
    (folder / "edges.txt").write_text("# a chain\n0 1\n1,2\n")
    topology = {"kind": "file", "file": str(folder / "edges.txt"), "p": None}
    settings: dict[str, Any] = {"clients": 5, "rounds": 2, "topology": topology}
    simulate(folder / "local", config("local", **settings))
    return settings, last_rows(folder / "local", 2)


@pytest.mark.parametrize("method", [*CORE, *KINDS])
def test_isolated_nodes_and_single_neighbours(tmp_path: Path, method: str, chain: tuple[dict[str, Any], Any]) -> None:
    """Degrees 1, 2, 1, 0, 0. What the lone ones do is training alone, whatever the method."""
    settings, alone = chain
    simulate(tmp_path / "run", config(method, **settings))
    told = decisions(tmp_path / "run")
    assert told["degree"].to_list() == [1, 2, 1, 0, 0] * 2
    assert set(told.filter(pl.col("degree") == 0)["reason"]) == {"none"}
    if method != "local":
        assert all(len(chosen) == 1 for chosen in told.filter(pl.col("degree") > 0)["chosen"])
        certified = told.filter((pl.col("reason") == "certified") & (pl.col("degree") == 1))
        assert certified.is_empty()  # with one neighbour there is nothing to certify against
    rows = last_rows(tmp_path / "run", 2)
    assert (rows[3:] == alone[3:]).all()
    assert (rows[:3] == alone[:3]).all() == (method == "local")


@pytest.mark.parametrize("method", ["sage-os", "sage-vanilla", "sage-nf", "aq-128", "sage-os:kind=latents"])
def test_clients_with_ten_samples_have_one_anchor_and_gossip(tmp_path: Path, method: str) -> None:
    few = Dataset("few", mini().train_x[:60], mini().train_y[:60], mini().test_x, mini().test_y, 10)
    settings = config(method, clients=6, rounds=2, data={"partition": "iid"})
    own = World.build(settings, few)
    assert [(len(r.train), len(r.anchor), len(r.eval)) for r in own.federation.roles] == [(8, 1, 1)] * 6
    summary = simulate(tmp_path / "run", settings, within=own)
    told = decisions(tmp_path / "run")
    assert set(told["reason"]) == {"no-anchors"}
    assert told["evaluations"].sum() == 0
    assert all(len(chosen) == 1 for chosen in told["chosen"])
    assert (summary["saving"], summary["rg_fallback"], summary["merged"]) == (1, 1, 1)


def test_two_clients(tmp_path: Path) -> None:
    settings = config("sage-os", clients=2, rounds=2, topology={"kind": "ring", "p": None})
    summary = simulate(tmp_path / "run", settings)
    assert decisions(tmp_path / "run")["chosen"].to_list() == [[1], [0]] * 2
    rows = last_rows(tmp_path / "run", 2)
    shared = world(settings).layout.shared
    assert (rows[0][shared] == rows[1][shared]).all()  # (a + b)/2 on both sides
    assert summary["diversity"] == pytest.approx(0, abs=1e-5)


def test_rounds_without_anybody_are_rounds_of_training(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("1 1 1 1 1 1 1 1\n0 0 0 0 0 0 0 0\n1 1 1 0 0 0 0 1\n")
    common: dict[str, Any] = {"rounds": 2, "topology": {"kind": "complete", "p": None}}
    some = config("rg", network={"trace": str(trace)}, **common)
    simulate(tmp_path / "run", some)
    told = decisions(tmp_path / "run")
    assert told["degree"].to_list() == [7] * 8 + [0] * 8
    metrics = pl.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert metrics["samples"][0] == metrics["samples"][1] > 0
    assert metrics["merged"].to_list() == [8, 0]
    # The same as a run of which the second round is local: nobody's model moved, everybody trained.
    simulate(tmp_path / "first", config("rg", rounds=1, topology=common["topology"]))
    assert (last_rows(tmp_path / "first", 1) != last_rows(tmp_path / "run", 2)).any(1).all()
    assert metrics["accuracy"][1] == metrics["before_accuracy"][1]


def test_unreachable_clients_keep_their_model_and_are_not_asked(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("1 1 1 0 0 0 0 1\n")
    settings = config("aq-128", rounds=1, topology={"kind": "complete", "p": None}, network={"trace": str(trace)})
    simulate(tmp_path / "run", settings)
    told = decisions(tmp_path / "run")
    assert [set(peers) for peers in told["peers"][:3]] == [{1, 2, 7}, {0, 2, 7}, {0, 1, 7}]
    assert told["degree"].to_list() == [3, 3, 3, 0, 0, 0, 0, 3]
    simulate(tmp_path / "local", config("local", rounds=1, topology={"kind": "complete", "p": None}))
    same = (last_rows(tmp_path / "run", 1) == last_rows(tmp_path / "local", 1)).all(1)
    assert same.tolist() == [False, False, False, True, True, True, True, False]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("er", {"degree": 3.5}),
        ("ba", {"m": 2}),
        ("ring", {}),
        ("regular", {"k": 3}),
        ("ws", {"k": 4, "p": 0.2}),
        ("torus", {}),
        ("complete", {}),
    ],
)
def test_every_kind_of_graph_runs(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    settings = config("sage-os", rounds=1, topology={"kind": kind, "p": None, **options})
    summary = simulate(tmp_path / "run", settings)
    graph = world(settings).graph
    assert decisions(tmp_path / "run")["degree"].to_list() == graph.degrees.tolist()
    assert summary["merged"] == 1


def test_clients_are_the_owners_that_the_data_name(tmp_path: Path) -> None:
    """Nine stations, of whom one has too little; the seed draws eight clients, here all that are left."""
    rng = np.random.default_rng(2)
    owners = np.repeat([f"s{i}" for i in range(9)], [40] * 8 + [5])
    x, y = rng.random((len(owners), 6)).astype(np.float32), rng.integers(3, size=len(owners))
    np.savez(tmp_path / "stations.npz", x_train=x, y_train=y, x_test=x[:30], y_test=y[:30], owners=owners)
    data = {"dataset": str(tmp_path / "stations.npz"), "partition": "owners"}
    settings = config("sage-os", data=data, model={"name": "mlp"}, rounds=2)
    own = World.build(settings)
    simulate(tmp_path / "run", settings, within=own)
    held = [set(owners[roles.all]) for roles in own.federation.roles]
    assert held == [{f"s{i}"} for i in range(8)]
    with pytest.raises(ValueError, match="does not say whose its samples are"):
        World.build(config(data={"partition": "owners"}))
    with pytest.raises(ValueError, match="name 9 owners, 8 of them with at least 10 samples, for 12 clients"):
        World.build(config(data=data, clients=12))


def test_partitions_by_shards_and_iid_and_fixed_anchors(tmp_path: Path) -> None:
    for i, data in enumerate(({"partition": "shards", "shards": 2}, {"partition": "iid", "anchor_order": "fixed"})):
        simulate(tmp_path / str(i), config("sage-os", rounds=1, data=data))
    fixed = world(config(data={"partition": "iid", "anchor_order": "fixed"}))
    assert np.array_equal(fixed.anchors(0, 0), fixed.anchors(0, 1))
    assert not np.array_equal(world(config()).anchors(0, 0), world(config()).anchors(0, 1))


# A user's own model ---------------------------------------------------------------------------------------------------

OWN = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(784, 6), nn.Dropout(0.3))
        self.top = nn.Linear(6, classes)
        self.register_buffer("constant", torch.arange(4))

    def forward(self, x):
        return self.top(self.trunk(x))
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "users_own_model.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return "users_own_model:Own"


def test_a_users_module_with_dropout_agrees_between_engines(tmp_path: Path, own_module: str) -> None:
    settings = config("sage-os", rounds=2, model={"name": own_module, "shared": ["trunk"]})
    one = simulate(tmp_path / "one", settings)
    simulate(tmp_path / "two", settings, engine="processes", workers=2)
    assert differing(files(tmp_path / "one"), files(tmp_path / "two")) == []
    assert one["diversity"] is None  # it has no latent(x)


def test_a_module_may_share_everything(tmp_path: Path, own_module: str) -> None:
    settings = config("rg", clients=2, rounds=1, topology={"kind": "ring", "p": None})
    settings = RunConfig.parse(
        settings.model_dump() | {"model": {"name": own_module, "shared": ["trunk", "top"], "options": {}}}
    )
    simulate(tmp_path / "run", settings, within=World.build(settings, mini()))
    rows = last_rows(tmp_path / "run", 1)
    assert (rows[0] == rows[1]).all()


def test_a_diverging_run_still_ends(tmp_path: Path) -> None:
    """Losses become NaN, probes count as wrong, the summary stays valid JSON."""
    for i, method in enumerate(("aq-128:kind=latents:loss=ce", "sage-os:kind=probs:loss=ce")):
        settings = config(method, rounds=3, training={"learning_rate": 1e30})
        summary = simulate(tmp_path / str(i), settings)
        assert pl.read_parquet(tmp_path / str(i) / "metrics.parquet")["train_loss"].is_nan().any()
        assert summary["rounds"] == 3
        assert "NaN" not in (tmp_path / str(i) / "summary.json").read_text()


def test_rough_worlds_have_rounds_in_which_somebody_is_alone(tmp_path: Path) -> None:
    settings = config("sage-os", **ROUGH)
    simulate(tmp_path / "run", settings)
    told = decisions(tmp_path / "run")
    assert {0} < set(told["degree"])
    assert (told["degree"] < 7).any()
    assert losses_path(tmp_path / "run", 0).exists()


def test_a_task_that_fails_in_a_worker_fails_the_run_with_its_own_message(tmp_path: Path, own_module: str) -> None:
    later = "self.seen = getattr(self, 'seen', 0) + 1\n        self.constant += self.seen > 9\n        return self.top"
    text = OWN.replace("return self.top", later)
    Path("users_bad_model.py").write_text(text)
    settings = config("rg", rounds=1, model={"name": "users_bad_model:Own", "shared": ["trunk"]})
    for engine in ("sequential", "processes"):
        with pytest.raises(ValueError, match="buffer 'constant' changed during training") as failure:
            simulate(tmp_path / engine, settings, engine=engine, workers=1)
        assert not isinstance(failure.value, EngineError)
