"""From run directories to cells.csv and back, and sweeps on what was recorded."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from sagefl.runs.rundir import RunDirectory
from sagefl.study.collect import _by_thirds, _passed_over, collect, read_records, write_records
from sagefl.study.design import Findings
from sagefl.study.errors import StudyError
from sagefl.study.matrix import Cell
from sagefl.study.paper import PAPER
from sagefl.study.sweeps import SWEEPS, SweepRow, read_sweeps, run_sweeps, write_sweeps

ROOT = Path(__file__).parents[2]


def run_of(method: str, cells: list[Cell], folder: Path) -> RunDirectory:
    return RunDirectory(next(c for c in cells if c.method == method).folder(folder))


def test_saving_and_comm_oh_are_what_the_decisions_add_up_to(
    tiny: Findings, tiny_cells: list[Cell], tiny_folder: Path
) -> None:
    """eq:probesaving and CommOH, computed here once more and by hand from the audit of every decision."""
    for record in tiny.records:
        rows = run_of(record.method, tiny_cells, tiny_folder).table("decisions").to_dicts()
        spent, nominal = sum(r["degree"] * r["anchors"] for r in rows), 128 * sum(r["degree"] for r in rows)
        assert record.values["saving"] == pytest.approx(1 - spent / nominal)
        assert record.values["comm_oh"] == pytest.approx(sum(r["transferred"] for r in rows) / len(rows))
        assert record.values["mean_anchors"] == pytest.approx(sum(r["anchors"] for r in rows) / len(rows))
        seen = [r for r in rows if r["eval_pulled_risk"] is not None]
        if seen:
            worse = sum(r["eval_pulled_risk"] > r["eval_gossip_risk"] for r in seen)
            assert record.values["pulled_worse"] == pytest.approx(worse / len(seen))
        else:
            assert "pulled_worse" not in record.values
    by_method = {r.method: r.values for r in tiny.records}
    assert (by_method["rg"]["saving"], by_method["rg"]["comm_oh"], by_method["local"]["comm_oh"]) == (1.0, 1.0, 0.0)
    assert by_method["aq-128"]["saving"] < by_method["sage-os"]["saving"] < 1


def test_what_a_cost_stop_passed_over_is_the_empirically_best_peer_on_evaluation_data() -> None:
    rows = {"risks": [[0.5, 0.2, 0.4], [0.1, 0.3, None]], "eval_risks": [[0.6, 0.3, 0.3], [0.5, 0.2, 0.2]]}
    assert _passed_over(pl.DataFrame(rows))["cost_best_gain"] == pytest.approx(((0.4 - 0.3) + (0.3 - 0.5)) / 2)
    assert _passed_over(pl.DataFrame(rows).clear()) == {}


def test_seconds_are_means_of_the_recorded_rounds(tiny: Findings, tiny_cells: list[Cell], tiny_folder: Path) -> None:
    (record,) = [r for r in tiny.records if r.method == "sage-os"]
    timings = run_of("sage-os", tiny_cells, tiny_folder).table("timings")
    assert record.values["seconds_decide"] == pytest.approx(timings["decide"].sum() / timings.height)


def test_records_survive_being_written(tiny: Findings, tmp_path: Path) -> None:
    write_records(tmp_path / "cells.csv", tiny.records)
    back = read_records(tmp_path / "cells.csv")
    assert back == list(tiny.records)
    assert [r.config.digest for r in back] == [r.config.digest for r in tiny.records]


def test_unfinished_cells_are_not_collected(tiny_cells: list[Cell], tmp_path: Path) -> None:
    assert collect(tiny_cells, tmp_path) == []


def test_a_default_that_changes_later_changes_nothing_about_what_was_run(tiny: Findings, tmp_path: Path) -> None:
    """A line names its whole config; one that leaves defaults out, and means another run by now, is refused."""
    path, record = tmp_path / "cells.csv", tiny.records[0]
    write_records(path, [record])
    (line,) = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
    assert json.loads(line["config"]) == record.config.values()
    short = record.config.model_dump(mode="json", exclude_defaults=True)
    for config, good in ((short, True), (short | {"seed": 99}, False)):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(line))
            writer.writeheader()
            writer.writerow(line | {"config": json.dumps(config)})
        if good:
            assert read_records(path) == [record]
        else:
            with pytest.raises(StudyError, match="line 2: its config is by now another run's"):
                read_records(path)


@pytest.mark.parametrize("path", sorted((ROOT / "results").rglob("cells.csv")), ids=lambda p: p.parent.name)
def test_recorded_results_keep_their_addresses(path: Path) -> None:
    """Reading checks every digest: a key that comes to a config must count only where it is used."""
    assert read_records(path)


def test_certificates_are_counted_by_thirds_of_the_run() -> None:
    """Eight rounds of two decisions: the first third is rounds 0 to 2, the last rounds 6 and 7."""
    certified = {0: 2, 1: 1, 3: 2, 5: 1, 7: 1}
    told = [(t, "certified" if i < certified.get(t, 0) else "cost") for t in range(8) for i in range(2)]
    found = _by_thirds(pl.DataFrame(told, schema=["round", "reason"], orient="row"))
    assert found == {"certified_first": pytest.approx(3 / 6), "certified_last": pytest.approx(1 / 4)}
    assert _by_thirds(pl.DataFrame(told[:2], schema=["round", "reason"], orient="row")) == {
        "certified_first": 1.0,
        "certified_last": 0.0,
    }


def test_a_study_built_again_from_its_csv_says_the_same(tiny: Findings, tmp_path: Path) -> None:
    write_records(tmp_path / "cells.csv", tiny.records)
    write_sweeps(tmp_path / "sweeps.csv", tiny.sweeps)
    again = Findings.read(PAPER, [tmp_path])
    assert again.judged == tiny.judged
    assert again.tables == tiny.tables
    assert again.sweeps == tiny.sweeps


def test_two_studies_are_merged_cell_by_cell(tiny: Findings, tmp_path: Path) -> None:
    for name, part in (("a", tiny.records[:4]), ("b", tiny.records[2:])):
        (tmp_path / name).mkdir()
        write_records(tmp_path / name / "cells.csv", part)
    assert Findings.read(PAPER, [tmp_path / "a", tmp_path / "b"]).tables == tiny.tables


def test_cells_of_different_scale_do_not_mix(tiny: Findings, tmp_path: Path) -> None:
    other = [replace(r, config=r.config.model_copy(update={"rounds": 9})) for r in tiny.records[:1]]
    write_records(tmp_path / "cells.csv", [*tiny.records, *other])
    with pytest.raises(StudyError, match="different scale"):
        _ = Findings.read(PAPER, [tmp_path]).ours


@pytest.mark.parametrize(
    "text", ["dataset,topology\nfmnist,er\n", "dataset,topology,alpha,method,seed,config\na,b,x,c,1,{}\n"]
)
def test_what_is_no_study_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text(text)
    with pytest.raises(StudyError, match="line 2: not a cell of a study"):
        read_records(tmp_path / "cells.csv")
    with pytest.raises(StudyError, match="cannot read"):
        read_records(tmp_path / "nowhere.csv")


# Sweeps -------------------------------------------------------------------------------------------------------------


def row(rows: list[SweepRow], sweep: str, value: str) -> SweepRow:
    (found,) = [r for r in rows if (r.sweep, r.value) == (sweep, value)]
    return found


def test_sweeps_cover_every_option_on_every_recorded_decision(tiny: Findings) -> None:
    assert len(tiny.sweeps) == sum(len(values) for _, values in SWEEPS.values())
    assert {r.covered for r in tiny.sweeps} == {1.0}
    rows = list(tiny.sweeps)
    defaults = [
        ("lambda", "0.002"),
        ("delta", "0.1"),
        ("schedule", "16-32-64-128"),
        ("radius", "printed"),
        ("cost", "incremental"),
    ]
    shares = {(r.certified, r.cost, r.exhausted, r.evaluations) for r in (row(rows, *d) for d in defaults)}
    assert len(shares) == 1  # every sweep passes through the same defaults


def test_sweeps_obey_what_is_known_of_the_rule(tiny: Findings) -> None:
    rows = list(tiny.sweeps)
    assert row(rows, "lambda", "0").cost == 0
    prices = [row(rows, "lambda", v).evaluations for v in ("0", "0.0005", "0.001", "0.002", "0.004", "0.008")]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > prices[-1]
    doubled, cumulative = row(rows, "lambda", "0.004"), row(rows, "cost", "cumulative")
    assert replace(doubled, sweep="", value="") == replace(cumulative, sweep="", value="")  # on a doubling schedule
    confident = [row(rows, "delta", v).certified for v in ("0.01", "0.05", "0.1", "0.2", "0.4")]
    assert confident == sorted(confident)


def test_sweeps_give_bytes_and_seconds_at_the_recorded_prices(
    tiny: Findings, tiny_cells: list[Cell], tiny_folder: Path
) -> None:
    found = row(list(tiny.sweeps), "lambda", "0.002")
    assert found.probe_bytes == pytest.approx(found.evaluations * (28 * 28 + 1))
    run = run_of("aq-128", tiny_cells, tiny_folder)
    total = run.table("decisions").select(pl.col("evaluations").sum()).item()
    assert found.probe_seconds == pytest.approx(found.evaluations * run.table("timings")["decide"].sum() / total)


def test_known_sweeps_are_not_replayed_again(
    tiny: Findings, tiny_cells: list[Cell], tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sweeps(tmp_path / "sweeps.csv", tiny.sweeps)
    known = read_sweeps(tmp_path / "sweeps.csv")
    assert known == list(tiny.sweeps)

    def never(*args: object) -> None:
        raise AssertionError("replayed")

    monkeypatch.setattr("sagefl.runs.replaying.replay_run", never)
    assert list(run_sweeps(tiny_cells, tiny_folder, known)) == known
    with pytest.raises(AssertionError, match="replayed"):
        list(run_sweeps(tiny_cells, tiny_folder, known[1:]))
