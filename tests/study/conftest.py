"""One tiny study that is really run, once for all tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import tiny_plan

from sagefl.runs.config import Execution
from sagefl.study.design import Findings
from sagefl.study.matrix import Cell
from sagefl.study.pace import Pace
from sagefl.study.paper import PAPER
from sagefl.study.runner import run_cells
from sagefl.study.study import Study


@pytest.fixture(scope="session")
def tiny_cells() -> list[Cell]:
    return tiny_plan()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tiny_cells: list[Cell]) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    failures = run_cells(tiny_cells, folder, Pace(tiny_cells, folder), execution=Execution(engine="sequential"))
    assert failures == []
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_cells: list[Cell], tiny_folder: Path) -> Findings:
    return Study(replace(PAPER, cells=tiny_cells), tiny_folder, out=tiny_folder / "nowhere").find()
