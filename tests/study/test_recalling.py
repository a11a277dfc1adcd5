"""Cells that count although their runs are gone: recalled by what they were, replaced once the code has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import tiny_plan

from sagefl.runs import versions
from sagefl.runs.config import RunConfig
from sagefl.study import paper as papers
from sagefl.study.collect import Record, read_records, write_records
from sagefl.study.design import Design, Findings
from sagefl.study.errors import StudyError
from sagefl.study.matrix import Cell
from sagefl.study.recalling import recall
from sagefl.study.study import State, Study


def kept(folder: Path, cells: Sequence[Cell], accuracy: float = 0.5) -> Path:
    """A folder with a row for each of these cells, made by the code of now."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [Record(c.configuration, c.method, c.config, {"accuracy": accuracy}, c.address) for c in cells]
    write_records(folder / "cells.csv", rows)
    return folder


def in_precision(config: RunConfig, precision: str) -> RunConfig:
    return RunConfig.parse(config.values() | {"training": config.training.model_dump() | {"precision": precision}})


def test_runs_that_are_gone_are_recalled_by_what_they_were(
    tiny: Findings, tiny_cells: list[Cell], tmp_path: Path
) -> None:
    """By address, whatever the method and the world are called; a cell of another scale is another cell."""
    other = tiny.records[0].config.model_copy(update={"rounds": 9})
    write_records(tmp_path / "cells.csv", [replace(tiny.records[0], config=other), *tiny.records[1:3]])
    renamed = [
        replace(c, method=f"{c.method}:", configuration=c.configuration._replace(world="mine")) for c in tiny_cells
    ]
    found = recall(renamed, [tmp_path])
    assert list(found.known) == [cell.config.digest for cell in tiny_cells[1:3]]
    assert [(r.configuration, r.method) for r in found.known.values()] == [
        (cell.configuration, cell.method) for cell in renamed[1:3]
    ]
    assert [r.values for r in found.known.values()] == [r.values for r in tiny.records[1:3]]
    assert list(found.notes()) == [f"1 of the cells in {tmp_path}, not in this plan: fmnist-mini/er/0.3 local seed 1"]
    assert recall(tiny_cells, []).reported == {}
    with pytest.raises(StudyError, match="cannot read"):
        recall(tiny_cells, [tmp_path / "nowhere"])


def test_the_gap_study_knows_the_papers_cells(tmp_path: Path) -> None:
    """Its first world has a name of its own, and gossip and AQ-128 of the paper's study in it."""
    paper, gap = papers.design("paper"), Design.read("gap", "paper")
    study = Study(gap, tmp_path / "cells", known=[kept(tmp_path / "paper", paper.cells)])
    known = [cell.name for cell, state in study.status() if state is State.KNOWN]
    assert known == ["as we read it rg seed 1", "as we read it aq-128 seed 1"]
    assert [str(r.configuration) for r in study.records()] == ["as we read it", "as we read it"]


@pytest.mark.parametrize("options", [{}, {"alternate": False}], ids=["same options", "other options then"])
def test_cells_of_a_method_that_was_repaired_since_are_run_again(
    options: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then they are reported, which is said; the row of the repaired method takes the place of the old one."""
    monkeypatch.setattr(versions, "METHODS", {})
    gossip, cell = tiny_plan(methods=["rg", "pfeddst"])
    config = cell.config.values() | {"method": {"id": "pfeddst", "options": options}}
    kept(tmp_path, [gossip, replace(cell, config=RunConfig.parse(config))])
    monkeypatch.setattr(versions, "METHODS", {"pfeddst": 2})
    design = replace(papers.PAPER, cells=tiny_plan(methods=["rg", "pfeddst"]), keeps=True)
    study = Study(design, tmp_path / "runs", out=tmp_path, known=[tmp_path])
    assert [state for _, state in study.status()] == [State.KNOWN, State.OUTDATED]
    assert [r.method for r in study.outdated()] == ["pfeddst"]
    assert study.find().outdated == ["1 of 2 cells made before method pfeddst changed"]
    done = kept(tmp_path / "new", design.cells[1:], accuracy=0.6)
    study = Study(design, tmp_path / "runs", out=tmp_path, known=[tmp_path, done])
    assert [state for _, state in study.status()] == [State.KNOWN, State.KNOWN]
    study.report(sweeps=False)
    assert [r.values["accuracy"] for r in read_records(tmp_path / "cells.csv")] == [0.5, 0.6]


def test_a_row_stays_readable_however_often_its_method_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "METHODS", {"local": 2})
    (cell,) = tiny_plan(methods=["local"])
    kept(tmp_path, [cell])
    monkeypatch.setattr(versions, "METHODS", {"local": 4})
    monkeypatch.setattr(versions, "LOOP", 2)
    (record,) = read_records(tmp_path / "cells.csv")
    assert record.changed == ("round loop", "method local")
    monkeypatch.setattr(versions, "METHODS", {})
    with pytest.raises(StudyError, match="another run's"):
        read_records(tmp_path / "cells.csv")


def test_of_two_rows_of_one_config_the_newer_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = kept(tmp_path / "old", tiny_plan(methods=["rg", "local"]), accuracy=0.1)
    monkeypatch.setattr(versions, "METHODS", {"local": 2})
    new = kept(tmp_path / "new", tiny_plan(methods=["local"]), accuracy=0.2)
    for folders in ([old, new], [new, old]):
        found = {r.method: r.values["accuracy"] for r in Findings.read(papers.PAPER, folders).records}
        assert found == {"rg": 0.1, "local": 0.2}


def test_a_cell_in_another_precision_stands_in_until_the_planned_one_is_run(tmp_path: Path) -> None:
    cells = tiny_plan(methods=["rg", "local"])
    half = [replace(cell, config=in_precision(cell.config, "bfloat16")) for cell in cells]
    kept(tmp_path / "s-half", half, accuracy=0.3)
    study = Study(
        replace(papers.PAPER, cells=cells), tmp_path / "runs", out=tmp_path / "s", known=[tmp_path / "s-half"]
    )
    assert [state for _, state in study.status()] == [State.NOT_BEGUN, State.NOT_BEGUN]
    found = study.find()
    assert [r.values["accuracy"] for r in found.records] == [0.3, 0.3]
    assert ", in bfloat16" in found.scale[0]
    assert "computed in bfloat16: fmnist-mini/er/0.3" in found.answer[0]
    assert found.tables[0].caption.endswith("Computed in bfloat16: fmnist-mini/er/0.3.")
    assert found.notes == []
    study.report()
    config = json.loads((tmp_path / "s/study.json").read_text(encoding="utf-8"))
    assert ", in bfloat16" in config["scale"][0]
    kept(tmp_path / "s", cells[:1])
    both = Study(replace(papers.PAPER, cells=cells), tmp_path / "runs", known=[tmp_path / "s", tmp_path / "s-half"])
    assert [r.values["accuracy"] for r in both.records()] == [0.5, 0.3]
