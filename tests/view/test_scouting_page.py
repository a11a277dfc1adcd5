"""A scout's verdict on the page and in the report: kept by `sagefl scout --out`, or read from recorded losses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run
from typer.testing import CliRunner
from watched_pages import Served, Watched

from sagefl.api.scouting import Scouting, scout_runs
from sagefl.cli import app
from sagefl.runs.files import RunError
from sagefl.runs.findings import known, read_sheet
from sagefl.runs.kinship import find_kin, nanmean
from sagefl.runs.losses import Recorded, losses_path, write_losses
from sagefl.runs.names import write_names
from sagefl.runs.scouting import Cost, Pilot, judge
from sagefl.view.report import report_page, write_page
from sagefl.view.scouting import offers
from sagefl.view.shelf import Shelf

Serve = Callable[..., Served]
Watch = Callable[..., Watched]
GROUPS = np.arange(8) % 2


def two_groups(strangers: float = 0.9) -> np.ndarray[Any, Any]:
    """Errors of everybody's model on everybody's 60 samples: kin err on a fifth."""
    often = np.where(GROUPS[:, None] == GROUPS[None, :], 0.2, strangers)[:, :, None]
    return (np.random.default_rng(3).random((8, 8, 60)) < often).astype(float)


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    """What `sagefl scout --out` keeps."""
    answers = two_groups()
    gaps = answers - np.einsum("rrs->rs", answers)[:, None]
    gaps[np.arange(8), np.arange(8)] = np.nan
    ways = (np.full(8, 0.70), np.full(8, 0.75), np.linspace(0.4, 0.5, 8))
    seen = Pilot(3, answers, ~np.eye(8, dtype=bool), find_kin(gaps), *ways, Cost(1.0, 10, 100))
    Scouting(judge(seen, 60), "eight clients", nanmean(answers, 2), seen, known(answers)).write(tmp_path / "pilot")
    return tmp_path / "pilot"


def record_answers(folder: Path, receivers: list[int]) -> None:
    """Losses of a late round, as a run of these receivers would have recorded them."""
    answers, peers = two_groups(), np.arange(8, dtype=np.int32)
    rows = [Recorded(k, peers[peers != k], 60, answers[k, peers != k]) for k in receivers]
    write_losses(losses_path(folder, 20), rows)


def test_the_page_shows_verdict_map_and_groups(pilot: Path, serve: Serve, watch: Watch, tmp_path: Path) -> None:
    kept = read_sheet(pilot / "scout.json")
    write_page(tmp_path / "report.html", report_page(Shelf([pilot])))
    for address in (serve(pilot).address, (tmp_path / "report.html").as_uri()):
        page = watch().open(address)
        page.wait_for_selector("#scout-map svg")  # there is nothing else, so the page begins with it
        assert page.locator("#scout-answer p").all_inner_texts() == ["Choosing pays", kept["sentence"]]
        assert page.locator("#scout-map .frame").count() == 2
        assert page.locator("#scout-map rect[fill]").count() == 64
        assert page.locator("#scout-lines li").all_inner_texts() == kept["lines"]
        assert page.locator("#scout-groups li").all_inner_texts() == [
            "group 0: clients 0, 2, 4, 6",
            "group 1: clients 1, 3, 5, 7",
        ]
        page.locator("#scout-map svg").hover(position={"x": 60, "y": 200})
        pair = (
            r"The model of \d on the samples of \d: error 0\.\d\d, between 0\.\d\d and [01]\.\d\d "
            r"\(95 % interval, Hoeffding\)\."
        )
        assert re.fullmatch(pair, page.inner_text("#scout-pointed"))
        arms = page.get_attribute("#scout-arms svg", "aria-label")
        assert "at home 0.70, 0.70 to 0.70; with kin 0.75" in arms
        page.click("#view-scout summary")
        page.wait_for_selector("#view-scout tbody tr")
        cells = page.eval_on_selector_all("#view-scout tbody tr", "rows => rows.map((r) => r.lastChild.textContent)")
        strangers = nanmean(two_groups(), 2)[0, GROUPS == 1].mean()
        assert cells[0] == f"{strangers:.3f}"


def test_recorded_losses_are_judged_run_by_run_and_nodes_together(tmp_path: Path) -> None:
    record_answers(make_run(tmp_path / "run", method="rg", rounds=2).path, list(range(8)))
    for node in (2, 5):
        record_answers(make_run(tmp_path / f"node-{node}", method="rg", rounds=2, seed=node).path, [node])
    shelf = Shelf([tmp_path])
    offered = offers(shelf, shelf.standings())
    assert [offer.label for offer in offered] == ["losses of rg, seed 1", "losses of 2 nodes"]
    whole, nodes = (offer.sheet() for offer in offered)
    assert whole["sentence"].startswith("Choose, with")
    assert whole["groups"] == GROUPS.tolist()
    assert whole["arms"] == []
    assert "names" not in whole
    assert [sum(risk is not None for risk in row) for row in nodes["map"]] == [0, 0, 7, 0, 0, 7, 0, 0]
    assert str(tmp_path) not in json.dumps(whole)


def test_groups_are_told_by_the_names_of_their_clients(serve: Serve, watch: Watch, tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", method="rg", rounds=2).path
    record_answers(path, list(range(8)))
    write_names(path, ["Ahr", "Bode", "Chiem", "Donau", "Eder", "Fulda", "Glan", "Havel"])
    found = scout_runs([path])
    assert found.document()["names"][:2] == ["Ahr", "Bode"]
    drawn = found.plot().axes[0]
    by_group = ["Ahr", "Chiem", "Eder", "Glan", "Bode", "Donau", "Fulda", "Havel"]
    assert [[t.get_text() for t in ticks] for ticks in (drawn.get_xticklabels(), drawn.get_yticklabels())] == 2 * [
        by_group
    ]
    page = watch().open(serve(tmp_path).address + "#view=scout")
    page.wait_for_selector("#scout-map svg")
    told = page.locator("#scout-groups li").all_inner_texts()
    assert told == ["group 0: clients Ahr, Chiem, Eder, Glan", "group 1: clients Bode, Donau, Fulda, Havel"]
    assert "Chie" in page.locator("#scout-map .axis text").all_text_contents()


def test_a_run_that_records_more_is_judged_again(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", method="rg", rounds=2).path
    shelf = Shelf([tmp_path])
    assert offers(shelf, shelf.standings()) == []
    record_answers(path, list(range(8)))
    first = offers(shelf, shelf.standings())[0]
    before = first.sheet()
    write_losses(losses_path(path, 21), [Recorded(0, np.array([1], np.int32), 60, np.zeros((1, 60)))])
    second = offers(shelf, shelf.standings())[0]
    assert (first.id, first.version == second.version) == (second.id, False)
    assert before != second.sheet()


def test_a_folder_with_a_verdict_alone_is_not_waiting_for_a_run(pilot: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert Shelf([pilot]).standings() == []
    assert [run["status"] for run in Shelf([tmp_path / "empty"]).standings()] == ["waiting"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda sheet: sheet.pop("map"),
        lambda sheet: sheet["map"].pop(),
        lambda sheet: sheet["map_intervals"].pop(),
        lambda sheet: sheet["map_intervals"][0].__setitem__(0, ["<b>", 1]),
        lambda sheet: sheet["groups"].__setitem__(0, 8),
        lambda sheet: sheet["map"][0].__setitem__(0, "<b>"),
        lambda sheet: sheet.update(verdict="maybe"),
        lambda sheet: sheet.update(lines=[1]),
        lambda sheet: sheet.update(names=["ada"]),
        lambda sheet: sheet.update(names=8 * [1]),
        lambda sheet: sheet["arms"][0].pop("low"),
    ],
)
def test_a_damaged_verdict_is_refused_in_a_sentence(pilot: Path, damage: Callable[[Any], Any]) -> None:
    path = pilot / "scout.json"
    sheet = json.loads(path.read_text())
    damage(sheet)
    path.write_text(json.dumps(sheet))
    with pytest.raises(RunError, match=r"scout\.json is not what `sagefl scout --out` writes"):
        read_sheet(path)
    said = CliRunner().invoke(app, ["report", str(pilot), "--out", str(pilot / "r.html")])
    assert said.exit_code == 2
    assert "write it again" in " ".join(said.output.split())
