"""Owners keep their names: in edge lists, tables, summary, page and messages; and may have test sets of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import differing, files
from task_worlds import LABELS, OWNERS, TOKENS
from test_tasks import config, simulate

from sagefl.api.scouting import Scouting
from sagefl.data import Dataset, load
from sagefl.errors import SageflError
from sagefl.learning.training import LocalTraining
from sagefl.runs.findings import read_sheet
from sagefl.runs.kinship import nanmean
from sagefl.runs.names import read_names
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.scouting import judge
from sagefl.simulation.engines import Sequential
from sagefl.simulation.pilot import run_pilot
from sagefl.simulation.world import World
from sagefl.topology import build
from sagefl.view.shelf import Shelf
from sagefl.view.unfolding import unfold
from sagefl.view.world import world as drawn

IMAGES = np.random.default_rng(1).integers(0, 256, (len(OWNERS), 3, 8, 8), dtype=np.uint8)
RING = "# neighbours\nada, bob\nbob cleo\ncleo,dan\n"


@pytest.fixture
def ring(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "ring.txt").write_text(RING, encoding="utf-8")
    return {"topology": {"kind": "file", "file": str(tmp_path / "ring.txt")}}


def test_names_are_in_edge_lists_tables_summary_and_on_the_page(ring: dict[str, Any], tmp_path: Path) -> None:
    simulate(tmp_path / "run", config("text", **ring))
    run = RunDirectory(tmp_path / "run")
    assert read_names(run.path, 4) == ("ada", "bob", "cleo", "dan")
    audit = run.table("decisions").filter(round=0)
    assert audit["owner"].to_list() == ["ada", "bob", "cleo", "dan"]
    assert audit["chosen_owners"].to_list()[0] == ["bob"]  # its only neighbour
    assert set(run.table("clients")["owner"]) == {"ada", "bob", "cleo", "dan"}
    assert json.loads((run.path / "summary.json").read_text())["weakest"] in OWNERS
    found = next(iter(Shelf([run.path]).runs().values()))
    assert drawn(found)["names"] == ("ada", "bob", "cleo", "dan")
    assert [0, 1] in drawn(found)["edges"]
    told = unfold(found, 0, 1)
    assert (told["name"], told["peers"]) == ("bob", ["ada", "cleo"])
    assert told["chosen"][0] in ("ada", "cleo")
    assert f"Pull {told['chosen'][0]}" in told["conclusion"]


def test_names_with_commas_stand_in_quotes(tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text(
        '"Smith, ""Al"" J.", bob # a pair\n"Ward #3",bob\n5" pipe, bob # "a", b\n# nobody, "nowhere\n"bob","0 to 1"\n',
        "utf-8",
    )
    names = ("bob", 'Smith, "Al" J.', "Ward #3", "0 to 1", '5" pipe')
    graph = build("file", 5, 0, path=edges, names=names)
    assert graph.neighbours(0).tolist() == [1, 2, 3, 4]
    edges.write_text("Smith, Al, bob\n", "utf-8")
    with pytest.raises(SageflError, match="or two owners, 'a,b', got 'Smith Al bob'"):
        build("file", 5, 0, path=edges, names=names)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ada, eve", "no client is called 'eve'; there are ada, bob, cleo, dan"),
        ("ada, ada", "client ada is connected to itself"),
        ("ada bob cleo", "expected two client numbers, 'a b' or 'a,b', or two owners, 'a,b', got 'ada bob cleo'"),
        ("0 7", "no client 7, they are numbered 0 to 3"),
    ],
)
def test_an_edge_list_that_names_nobody_is_refused(line: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text(line, encoding="utf-8")
    with pytest.raises(SageflError, match=complaint):
        World.build(config("text", topology={"kind": "file", "file": str(tmp_path / "edges.txt")}))


def ticks(found: Scouting) -> list[str]:
    """What clients are called beside the map."""
    return sorted(label.get_text() for label in found.plot().axes[0].get_yticklabels())


def test_a_scout_and_a_refusal_call_clients_by_their_names(tmp_path: Path) -> None:
    world = World.build(config("text", rounds=4))
    engine = Sequential(world, LocalTraining())
    pilot = run_pilot(world, engine, 2)
    engine.close()
    found = Scouting(judge(pilot, 4), "four speakers", nanmean(pilot.answers, 2), pilot)
    assert read_sheet(found.write(tmp_path))["names"] == ["ada", "bob", "cleo", "dan"]
    assert ticks(found) == ["ada", "bob", "cleo", "dan"]
    odd = replace(found, pilot=replace(pilot, names=("$ada$ of Ouagadougou", "bob", "cleo", "dan")))
    assert ticks(odd)[0] == r"\$ada\$ of Ouagad…"
    odd.plot(tmp_path / "map.png")  # and no formula
    assert ticks(replace(found, pilot=replace(pilot, names=None))) == ["0", "1", "2", "3"]
    lonely = Dataset.from_arrays("lonely", IMAGES, LABELS, IMAGES, LABELS, owners=OWNERS)
    with pytest.raises(ValueError, match="client ada has a single training sample"):
        World.build(config("batchnorm", data={"anchor": 0.49, "eval": 0.5}), lonely)


def test_numbers_stay_numbers_and_clients_that_are_no_owners_have_no_names(ring: dict[str, Any]) -> None:
    assert World.build(config("batchnorm")).names is None  # its owners are 0, 1, 2, 3
    with pytest.raises(SageflError, match="expected two client numbers, 'a b' or 'a,b', got 'ada bob'"):
        World.build(config("text", data={"partition": "iid"}, **ring))


# A test set of one's own ----------------------------------------------------------------------------------------------


def owned() -> tuple[Any, ...]:
    """Every owner has test samples; two of nobody's are for all."""
    picked = np.r_[0:10, 40:50, 80:90, 120:130, 5, 6]
    whose = np.append(OWNERS[picked[:-2]], ["eve", "eve"])
    return TOKENS, LABELS, TOKENS[picked], LABELS[picked], OWNERS, whose


def test_own_accuracy_is_on_the_owners_own_test_set_under_every_engine(tmp_path: Path) -> None:
    settings = config("text", "rg", data={"dataset": "test_owners:owned"}, rounds=2)
    world = World.build(settings)
    assert world.own_tests is not None
    assert [part.tolist() for part in world.own_tests] == [list(range(k, k + 10)) for k in (0, 10, 20, 30)]
    simulate(tmp_path / "one", settings)
    simulate(tmp_path / "two", settings, "processes")
    assert differing(files(tmp_path / "two"), files(tmp_path / "one")) == []
    shares = RunDirectory(tmp_path / "one").table("clients")["own_accuracy"] * 10  # of ten samples each
    assert shares.to_list() == pytest.approx(shares.round().to_list())
    other = simulate(tmp_path / "many", settings, "stacked")
    assert other["client"] == pytest.approx(simulate(tmp_path / "one", settings)["client"], abs=0.05)
    grouped = World.build(config("text", data={"dataset": "test_owners:owned"}, world={"shift": "label-set"}))
    for group, part in zip(grouped.truth.groups, grouped.own_tests or (), strict=True):
        assert set(part) <= set(grouped.grouping.tests[group])  # type: ignore[union-attr]


def test_files_can_say_whose_the_test_samples_are(tmp_path: Path) -> None:
    x, y, xt, yt, owners, tested = owned()
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=xt, y_test=yt, owners=owners, owners_test=tested)
    found = load(str(tmp_path / "a.npz"))
    assert found.test_owners is not None
    assert found.test_owners.tolist() == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 10 + [-1, -1]
    assert found.digest != Dataset.from_arrays("b", x, y, xt, yt, owners=owners).digest
    rows = [f"{i % 3},{i % 2},{'ada' if i % 4 < 2 else 'bob'},{'test' if i % 5 == 0 else 'train'}" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["size,label,owner,split", *rows]), encoding="utf-8")
    table = load(str(tmp_path / "a.csv"))
    assert table.test_owners is not None
    assert set(table.test_owners.tolist()) == {0, 1}
    assert load(f"{tmp_path / 'a.csv'}?split=split").test_owners is not None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"owners_test": np.array(["ada"] * 42)}, "owner 'bob' has no test sample, on which its accuracy would be"),
        ({"owners_test": np.arange(42)}, "owners_test are int64 42; expected names or numbers as the owners"),
        ({"owners_test": OWNERS[:5]}, "test_owners are int64 5 for 42 test samples; expected an int64 vector"),
        ({"owners": None}, "owners_test without owners; say whose the training samples are, too"),
    ],
)
def test_test_sets_that_do_not_fit_are_refused(changes: dict[str, Any], complaint: str) -> None:
    x, y, xt, yt, owners, tested = owned()

    def built() -> World:
        data = Dataset.from_arrays("mine", x, y, xt, yt, **({"owners": owners, "owners_test": tested} | changes))
        return World.build(config("text"), data)

    with pytest.raises(SageflError, match=complaint):
        built()
