"""A study of one's own from a file: what it plans, compares, writes, and refuses in a sentence."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.errors import SageflError
from sagefl.runs.intervals import t_quantile
from sagefl.study import Design, Study
from sagefl.study.account import sheets, to_markdown
from sagefl.study.collect import Record
from sagefl.study.comparing import _capture, compare, headrooms
from sagefl.study.design import Findings
from sagefl.study.matrix import Cell
from sagefl.study.spec import shipped

MINE = """
title = "Mine"
methods = ["rg", "local", "sage-os", "aq-128"]
seeds = [1, 2, 3]
references = ["rg", "local"]
primary = {method = "sage-os", against = "rg", measure = "client"}
report = ["client", "mb_probes"]
small = true
names = {"aq-128" = "all the evidence"}

[base]
clients = 5
rounds = 2
model.name = "mlp"
training.max_batches = 1
evaluation = {every = 2, subset = 20}
topology = {kind = "er", degree = 3}

[[worlds]]
name = "skewed"
data.alpha = 0.3

[[worlds]]
name = "even, unreliable"
data.partition = "iid"
world = {shift = "labels", groups = 2}
network.drop = 0.2
"""


@pytest.mark.parametrize("name", ["worlds", "further", "culprits"])
def test_every_world_that_ships_has_a_graph(name: str) -> None:
    for config in (cell.config for cell in Design.read(name, methods=["rg"]).cells):
        assert config.topology.graph(config.clients, config.seed).clients == config.clients


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    return path


def told(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["study", *map(str, arguments)])
    return ended.exit_code, ended.output


def made_up(design: Design, values: dict[str, list[float]], noise: float = 0.0) -> list[Record]:
    """Records of every cell: a method's Client accuracy in each world, and a shift per seed that all methods share."""
    assert design.trial is not None
    records = []
    for cell in design.cells:
        world = design.trial.worlds.index(cell.configuration)
        value = values[cell.method][world] + 0.1 * cell.seed + noise * math.sin(hash_of(cell))
        records.append(Record(cell.configuration, cell.method, cell.config, {"client": value, "mb_probes": 1.0}))
    return records


def hash_of(cell: Cell) -> int:
    return int(cell.config.digest, 16)


# Planning -------------------------------------------------------------------------------------------------------------


def test_worlds_pass_any_config_section_through(mine: Path) -> None:
    design = Design.read(mine)
    assert (design.name, design.title, len(design.cells)) == ("mine", "Mine", 2 * 3 * 4)
    skewed, even = (c.config for c in design.cells if (c.method, c.seed) == ("sage-os", 2))
    assert (skewed.data.alpha, skewed.network.drop, skewed.world.shift) == (0.3, 0.0, "none")
    assert (even.data.partition, even.network.drop, even.world.shift) == ("iid", 0.2, "labels")
    assert [(c.seed, str(c.configuration), c.method) for c in design.cells[:5]] == [
        (1, "skewed", "rg"), (1, "skewed", "local"), (1, "skewed", "sage-os"), (1, "skewed", "aq-128"),
        (1, "even, unreliable", "rg"),
    ]  # fmt: skip


def test_a_grid_makes_a_world_of_every_combination_and_names_it(mine: Path) -> None:
    grid = '\n[grid]\n"data.alpha" = [0.1, 1.0]\n"network.available" = [1.0, 0.8]\n'
    mine.write_text(MINE[: MINE.index("[[worlds]]")] + grid, encoding="utf-8")
    worlds = list(dict.fromkeys(c.configuration for c in Design.read(mine).cells))
    assert list(map(str, worlds)) == [
        "alpha 0.1, available 1.0", "alpha 0.1, available 0.8", "alpha 1.0, available 1.0", "alpha 1.0, available 0.8",
    ]  # fmt: skip


def test_presets_seeds_of_a_world_and_what_is_typed(mine: Path) -> None:
    text = MINE.replace('name = "skewed"', 'name = "skewed"\nseeds = [7]')
    mine.write_text(text + "\n[presets.quick]\nseeds = [1]\n[presets.long]\nbase.rounds = 9\n", encoding="utf-8")
    quick, long = Design.read(mine), Design.read(mine, "long", methods=["+sage-e"], overrides={"clients": 6})
    assert (quick.name, [c.seed for c in quick.cells]) == ("mine-quick", [7, 7, 7, 7, 1, 1, 1, 1])
    assert {(c.config.rounds, c.config.clients) for c in long.cells} == {(9, 6)}
    assert "sage-e" in {c.method for c in long.cells}
    assert long.trial is not None
    assert "sage-e" in long.trial.contenders
    assert {c.method for c in Design.read(mine, first=2).cells} == {"rg", "local"}


def test_stages_come_first_and_the_rest_follows(mine: Path) -> None:
    stages = '\n[[stages]]\nmethods = ["aq-128"]\nseeds = [3, 9]\n'
    stages += '[[stages]]\nseeds = [2]\nalphas = [1.0]\nmethods = ["rg"]\n'
    grid = '\n[grid]\n"data.alpha" = [0.1, 1.0]\n'
    mine.write_text(MINE[: MINE.index("[[worlds]]")] + grid + stages, encoding="utf-8")
    design = Design.read(mine)
    placed = [(c.config.data.alpha, c.method, c.seed) for c in design.cells]
    assert placed[:5] == [
        (0.1, "aq-128", 3), (1.0, "aq-128", 3), (0.1, "aq-128", 9), (1.0, "aq-128", 9), (1.0, "rg", 2),
    ]  # fmt: skip
    assert placed[5:7] == [(0.1, "rg", 1), (0.1, "local", 1)]
    assert len(placed) == len(set(placed)) == 2 * 3 * 4 + 2
    only = Design.read(mine, alphas=[0.1])
    assert [(c.config.data.alpha, c.method, c.seed) for c in only.cells][:3] == [
        (0.1, "aq-128", 3), (0.1, "aq-128", 9), (0.1, "rg", 1),
    ]  # fmt: skip
    mine.write_text(MINE + '\n[[stages]]\nmethods = ["pens"]\n', encoding="utf-8")
    with pytest.raises(SageflError, match="stages names 'pens', which is not one of the methods"):
        Design.read(mine)


MISTAKES = {
    'report = ["client", "mb_probes"]': ('report = ["cleint"]', "no run has a number 'cleint', did you mean 'client'"),
    '"aq-128"]': ('"aq-129"]', "unknown method 'aq-129'"),
    'against = "rg"': ('against = "gossip"', "against names 'gossip', which is not one of the methods"),
    'references = ["rg", "local"]': ('references = ["oracle"]', "references names 'oracle'"),
    'method = "sage-os", against': ('method = "local", against', "must compare a method that is no reference"),
    "network.drop = 0.2": ("network.dorp = 0.2", "world 'even, unreliable': unknown key 'network.dorp'"),
    'name = "even, unreliable"\n': ("", "some of \\[\\[worlds\\]\\] have a name and some have none"),
    'name = "even, unreliable"': ('name = "skewed"', "give each of \\[\\[worlds\\]\\] a name of its own"),
    "small = true": ("smal = true", "unknown key 'smal', did you mean 'small'"),
    'title = "Mine"': ("", "title: Field required"),
    "seeds = [1, 2, 3]": ('order = ["seeds"]', "order names methods, worlds and seeds once each"),
    'measure = "client"}': ('measure = "client", world = "x"}', "no world 'x'; there are skewed, even, unreliable"),
}


@pytest.mark.parametrize("right", MISTAKES)
def test_a_mistake_is_refused_in_a_sentence_before_anything_runs(right: str, mine: Path) -> None:
    wrong, said = MISTAKES[right]
    assert right in MINE
    mine.write_text(MINE.replace(right, wrong, 1), encoding="utf-8")
    with pytest.raises(SageflError, match=said):
        Design.read(mine)


def test_a_rule_that_remembers_is_not_studied_on_anchors_in_a_fixed_order(mine: Path) -> None:
    mine.write_text(MINE.replace("network.drop = 0.2", 'data.anchor_order = "fixed"'), encoding="utf-8")
    assert any(cell.config.data.anchor_order == "fixed" for cell in Design.read(mine).cells)
    with pytest.raises(SageflError, match=r"world 'even, unreliable': sage-m remembers .* use anchor_order = shuffle"):
        Design.read(mine, methods=["+sage-m"])


def test_what_is_no_study(tmp_path: Path, mine: Path) -> None:
    for source, preset, said in (
        ("papr", None, "no study 'papr', did you mean 'paper'"),
        (tmp_path / "absent.toml", None, "cannot read config"),
        (mine, "quick", "unknown preset 'quick'; its file has no \\[presets\\]"),
    ):
        with pytest.raises(SageflError, match=said):
            Design.read(source, preset)
    with pytest.raises(SageflError, match="has no alphas to choose from"):
        Design.read(mine, alphas=[0.1])


# Comparing ------------------------------------------------------------------------------------------------------------

VALUES = {"rg": [0.5, 0.5], "local": [0.6, 0.4], "sage-os": [0.56, 0.5], "aq-128": [0.4, 0.5]}


def test_every_world_is_compared_by_itself_and_the_primary_over_seeds(mine: Path) -> None:
    design = Design.read(mine)
    records = made_up(design, VALUES, noise=0.01)
    assert design.trial is not None
    made = compare(records, design.trial)
    assert len(made) == 1 + design.trial.family == 1 + 2 * 2 * 2
    first = made[0]
    assert (first.method, first.measure, first.world, first.primary) == ("sage-os", "client", None, True)
    by_seed = {s: [r for r in records if r.config.seed == s] for s in (1, 2, 3)}
    means = {
        s: 100 * fmean(r.values["client"] * {"sage-os": 1, "rg": -1}.get(r.method, 0) for r in rows) * len(rows) / 2
        for s, rows in by_seed.items()
    }
    mean, error = fmean(means.values()), np.std(list(means.values()), ddof=1) / 3**0.5
    assert (first.difference.mean, first.difference.standard_error) == pytest.approx((mean, error))
    assert first.difference.interval()[1] == pytest.approx(mean + t_quantile(0.975, 2) * error)
    assert first.holm == first.p
    assert {(c.method, str(c.world)) for c in made[1:]} == {
        (m, w) for m in ("sage-os", "aq-128") for w in ("skewed", "even, unreliable")
    }
    bytes_moved = [c for c in made if c.measure == "mb_probes"]
    assert all(c.difference.mean == 0 and c.p == 1 for c in bytes_moved)


def test_a_primary_comparison_in_one_world_leaves_the_family(mine: Path) -> None:
    mine.write_text(MINE.replace('measure = "client"}', 'measure = "client", world = "skewed"}'), encoding="utf-8")
    design = Design.read(mine)
    assert design.trial is not None
    made = compare(made_up(design, VALUES, 0.01), design.trial)
    assert len(made) == 1 + design.trial.family == 8
    assert [str(c.world) for c in made if c.primary] == ["skewed"]


def test_headroom_is_the_better_reference_and_capture_its_share(mine: Path) -> None:
    design = Design.read(mine)
    assert design.trial is not None
    skewed, even = headrooms(made_up(design, VALUES, noise=0.001), design.trial)
    assert (skewed.best, skewed.points.mean) == ("local", pytest.approx(10, abs=0.2))
    share, low, high = skewed.captured["sage-os"] or (0, 0, 0)
    assert low < share < high
    assert share == pytest.approx(0.6, abs=0.02)
    assert even.points.mean < 0
    assert even.captured["sage-os"] is None  # nothing to capture
    text = to_markdown(Findings(replace(design, charts=[]), made_up(design, VALUES, 0.001), provenance=["x"]))
    assert "| skewed | local | +10." in text
    assert "| even, unreliable | local | -" in text


def test_the_interval_of_a_share_covers_it_as_often_as_it_says() -> None:
    """2,000 studies of five seeds, true share .5; headroom is about four of its own standard deviations."""
    rng = np.random.default_rng(3)
    covered = narrow = 0
    for _ in range(2000):
        room = rng.normal(4, 1, 5)
        gain = 0.5 * room + rng.normal(0, 1, 5)
        found = _capture(dict(enumerate(gain)), dict(enumerate(room)), 0.95)
        assert found is not None
        covered += found[1] <= 0.5 <= found[2]
        less = _capture(dict(enumerate(gain)), dict(enumerate(room)), 0.9)
        narrow += less is not None and less[1] <= 0.5 <= less[2]
    assert abs(covered / 2000 - 0.95) < 3.3 * (0.05 * 0.95 / 2000) ** 0.5
    assert abs(narrow / 2000 - 0.95) > 3.3 * (0.05 * 0.95 / 2000) ** 0.5  # the test is not blind
    assert _capture({1: 1.0, 2: 2.0}, {1: 0.1, 2: -0.1}, 0.95) is None
    assert _capture({1: 1.0}, {1: 1.0}, 0.95) is None


# Running --------------------------------------------------------------------------------------------------------------


def test_a_file_is_run_reported_and_goes_on(mine: Path, tmp_path: Path) -> None:
    where = (mine, "--cells", tmp_path / "cells", "--out", tmp_path / "out", "--no-pages")
    code, output = told(*where, "--status")
    assert (code, "0 of 24 cells done" in output, "even, unreliable" in output) == (0, True, True)
    code, output = told(*where, "--jobs", "1", "--workers", "1", "--seeds", "1", "--brief")
    assert code == 0, output
    assert "Primary comparison, named before the runs: sage-os minus rg, Client accuracy" in output
    assert "(one replication, no interval) over 1 seed." in output
    done = {p: p.stat().st_mtime_ns for p in (tmp_path / "cells").glob("*/summary.json")}
    assert len(done) == 8
    study = Study(Design.read(mine, seeds=[1, 2]), tmp_path / "cells", out=tmp_path / "out").run(jobs=1, workers=1)
    report = study.report()
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())  # what was done is not run again
    assert report.name == "report.html"
    page, out = report.read_text(encoding="utf-8"), tmp_path / "out"
    assert "all the evidence" in page
    assert "Comparisons" in page
    assert (out / "study.toml").read_text(encoding="utf-8") == MINE
    assert {p.name for p in (out / "figures").glob("*.png")} == {"gains.png", "price.png"}
    with (out / "comparisons.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [rows[0][k] for k in ("world", "arm", "primary", "replications")] == ["", "sage-os", "1", "2"]
    with (out / "cells.csv").open(newline="", encoding="utf-8") as file:
        assert {row["world"] for row in csv.DictReader(file)} == {"skewed", "even, unreliable"}
    mine.write_text(MINE.replace('"mb_probes"]', '"mb_probes", "kin"]'), encoding="utf-8")  # of the runs that know
    code, again = told(mine, "--from", out, "--out", tmp_path / "kin", "-q")
    assert code == 0, again
    kin = (tmp_path / "kin" / "tables" / "kin.csv").read_text(encoding="utf-8")
    assert '\n"even, unreliable",rg,kin,0.' in kin
    assert "\nskewed,rg,kin,,,0" in kin
    mine.write_text(MINE, encoding="utf-8")
    code, again = told(mine, "--from", out, "--out", tmp_path / "again", "-q")
    assert code == 0, again
    for name in ("comparisons.csv", "cells.csv", "tables/client.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()


def test_init_writes_a_study_that_is_one(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    assert told("init", path)[0] == 0
    assert path.read_text(encoding="utf-8") == shipped("start")
    design = Design.read(path)
    assert len(design.cells) == 30
    assert {c.config.data.dataset for c in design.cells} == {"fmnist-mini"}
    code, output = told("init", path)
    assert (code, "is there already" in output) == (2, True)


def test_sheets_have_a_text_for_every_head(mine: Path) -> None:
    design = Design.read(mine)
    for sheet in sheets(Findings(design, made_up(design, VALUES, 0.01))):
        assert {len(row) for row in sheet.rows} == {len(sheet.heads)}, sheet.title
