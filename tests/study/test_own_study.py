"""A study of one's own, from outside the package: a design is one value, a claim one entry, a chart one function."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import tiny_plan

from sagefl.runs.sections import ConfigError
from sagefl.study import Design, Study, figures, paper, paper_figures
from sagefl.study import study as studies
from sagefl.study.canvas import Drawn, drawing, save
from sagefl.study.claims import Claim, Exactly, Untestable
from sagefl.study.design import Findings
from sagefl.study.errors import StudyError
from sagefl.study.matrix import Cell
from sagefl.study.measures import column
from sagefl.study.runner import Failure, done
from sagefl.study.study import Absence, State

MINE = Claim(
    "gossip-moves-one-model",
    "Gossip moves one model a round",
    "my notes",
    Untestable("nothing of mine is published"),
    Exactly(column("rg", "comm_oh"), 1.0),
)


def my_chart(findings: Findings) -> Drawn | None:
    """Accuracy of every method as a bar."""
    if not findings.records:
        return None
    with drawing(4, 3) as figure:
        axes = figure.subplots()
        axes.bar([r.method for r in findings.records], [r.values["accuracy"] for r in findings.records])
        return save(figure, "my-chart", "Accuracy by method", "One bar per method.")


def claims_of(folder: Path) -> dict[str, str]:
    """The verdict on every claim by these runs."""
    with (folder / "claims.csv").open(newline="", encoding="utf-8") as file:
        return {row["id"]: row["runs"] for row in csv.DictReader(file)}


def test_a_design_of_ones_own_is_run_and_reported(tmp_path: Path) -> None:
    cells = tiny_plan(methods=("rg", "sage-os"))
    mine = Design("mine", "Does gossip gossip?", cells, claims=[MINE], charts=[*figures.CHARTS, my_chart])
    study = Study(mine, tmp_path / "cells", out=tmp_path / "out")
    assert [state for _, state in study.status()] == [State.NOT_BEGUN, State.NOT_BEGUN]
    report = study.run(workers=1).report()
    assert [state for _, state in study.status()] == [State.DONE, State.DONE]
    page = report.read_text(encoding="utf-8")
    assert "<h1>Does gossip gossip?</h1>" in page
    assert 'id="claim-gossip-moves-one-model"' in page
    assert "<b>Accuracy by method.</b> One bar per method." in page
    assert "Table I. Predictive performance" in page
    assert "its own tables" not in page  # nothing is published about it
    assert claims_of(tmp_path / "out") == {"gossip-moves-one-model": "holds"}
    assert (tmp_path / "out" / "figures" / "my-chart.png").is_file()
    assert len((tmp_path / "out" / "cells.csv").read_text(encoding="utf-8").splitlines()) == 1 + 2
    told = json.loads((tmp_path / "out" / "study.json").read_text(encoding="utf-8"))
    assert told["provenance"][0] == "Study('mine').run().report()"
    assert told["left_out"] == []


def test_a_claim_and_a_chart_are_added_to_the_papers_study_in_an_entry_each(
    tiny_cells: list[Cell], tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for charts in (figures, paper_figures):
        monkeypatch.setattr(charts, "save", lambda figure, name, title, caption: None)  # rendering takes long
    design = replace(
        paper.PAPER,
        cells=tiny_cells,
        claims=[*paper.PAPER.claims, MINE],
        charts=[*paper.PAPER.charts, my_chart],
    )
    page = Study(design, tiny_folder, out=tmp_path).report(sweeps=False).read_text(encoding="utf-8")
    assert page.count('class="claim"') == len(paper.PAPER.claims) + 1
    assert page.count("<figure>") == 1
    assert claims_of(tmp_path)["gossip-moves-one-model"] == "holds"


# What a study says of its cells ---------------------------------------------------------------------------------------


def test_every_missing_cell_is_left_out_for_one_reason(
    tiny_cells: list[Cell], tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cells without data, one that failed, one nobody has begun; a note that says failed changes no count."""
    lost = tiny_plan(methods=("pens", "fedfomo", "dpfl", "ocd-fl"))
    lost[0] = replace(lost[0], method="mine failed: often")
    monkeypatch.setattr(studies, "absent", lambda cells: [Absence("fmnist-mini", "ask", tuple(lost[:2]))])
    study = Study(Design("s", "S", [*tiny_cells, *lost]), tiny_folder, out=tmp_path)
    assert study.notes(len(tiny_cells)) == [f"4 of {len(tiny_cells) + 4} planned cells are not finished"]
    assert len(study.absent()) == 1
    study.failures = [Failure(lost[2], "no reason")]
    assert study.notes(len(tiny_cells)) == [
        "fmnist-mini is not on this machine: 2 cells left out "
        "(fmnist-mini/er/0.3 seed 1; each with mine failed: often, fedfomo)",
        "fmnist-mini/er/0.3 dpfl seed 1 failed: no reason",
        f"1 of {len(tiny_cells) + 4} planned cells are not finished",
    ]


def test_what_is_known_is_not_run_and_what_is_done_comes_first(
    tiny: Findings, tiny_cells: list[Cell], tiny_folder: Path, tmp_path: Path
) -> None:
    """Five cells known from a folder, one of them wrongly; nothing of that folder is run again elsewhere."""
    known = [replace(tiny.records[0], values=tiny.records[0].values | {"accuracy": 0.0}), *tiny.records[1:5]]
    Findings(Design("known", "K"), known).write(tmp_path / "known")
    design = Design("s", "S", tiny_cells[:5])
    elsewhere = Study(design, tmp_path / "cells", out=tmp_path / "out", known=[tmp_path / "known"])
    assert {state for _, state in elsewhere.status()} == {State.KNOWN}
    assert elsewhere.run().failures == []
    assert not (tmp_path / "cells").exists()
    assert [r.values["accuracy"] for r in elsewhere.records()] == [r.values["accuracy"] for r in known]
    here = Study(design, tiny_folder, out=tmp_path / "out", known=[tmp_path / "known"])
    assert {state for _, state in here.status()} == {State.DONE}
    assert here.contradicted() == 1
    assert here.records() == list(tiny.records[:5])


def test_an_account_that_keeps_its_cells_is_never_written_with_fewer(
    tiny: Findings, tiny_cells: list[Cell], tiny_folder: Path, tmp_path: Path
) -> None:
    """Those whose runs are still there are not lost."""
    kept, gone = tmp_path / "some", tiny_cells[2:]
    shutil.copytree(tiny_folder, kept)
    for cell in gone:
        shutil.rmtree(cell.folder(kept))
    fewer = Study(Design("s", "S", tiny_cells[:2], keeps=True), kept, out=tmp_path)
    Findings(Design("whole", "W"), tiny.records).write(tmp_path)
    before = (tmp_path / "cells.csv").read_bytes()
    for step in (fewer.run, fewer.report):
        with pytest.raises(StudyError, match=rf"holds 5 of 7 cells that this account would drop: `--known {tmp_path}`"):
            step()
    assert (tmp_path / "cells.csv").read_bytes() == before


def test_a_study_without_data_or_results_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = tiny_plan(methods=("rg",))
    study = Study(Design("s", "S", cells), tmp_path, out=tmp_path / "out")
    with pytest.raises(StudyError, match="no cell is finished, so there is nothing to report\n1 of 1 planned"):
        study.report()
    with pytest.raises(ConfigError, match="workers"):
        study.run(workers=0)
    monkeypatch.setattr(studies, "absent", lambda cells: [Absence("fmnist-mini", "ask", tuple(cells))])
    with pytest.raises(StudyError, match="none of the study's data sets is on this machine"):
        Study(Design("s", "S", cells), tmp_path).run()


def test_a_bug_in_a_cell_leaves_its_traceback_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's mistake is told in its sentence alone."""
    monkeypatch.setattr("sagefl.simulation.world.World.build", lambda *_: 1 + "1")  # type: ignore[operator]
    cells = tiny_plan(methods=("rg",))
    study = Study(Design("s", "S", cells), tmp_path / "cells", out=tmp_path / "out").run(workers=1)
    (failure,) = study.failures
    assert failure.why == "TypeError: unsupported operand type(s) for +: 'int' and 'str'"
    assert not done(cells[0], tmp_path / "cells")
    text = (tmp_path / "out" / "failures.txt").read_text(encoding="utf-8")
    assert "fmnist-mini/er/0.3 rg seed 1\nTraceback" in text
