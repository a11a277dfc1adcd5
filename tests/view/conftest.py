"""A served shelf, watched pages, and runs to look at."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs the extra view")
pytest.importorskip("uvicorn", reason="the page needs the extra view")
sys.path.insert(0, str(Path(__file__).parent))

from made_runs import make_run
from watched_pages import Served, Watched


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def begin(*places: Path) -> Served:
        started.append(Served(*places))
        return started[-1]

    yield begin
    for served in started:
        served.stop()


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs of one world, under one folder."""
    folder = tmp_path_factory.mktemp("runs")
    for name, method in (("rg", "rg"), ("os", "sage-os"), ("e", "sage-e")):
        make_run(folder / name, method=method)
    return folder


@pytest.fixture
def watch(browser: Any) -> Iterator[Callable[..., Watched]]:
    """Pages; at the end none of them may have logged an error or asked another host."""
    watched: list[Watched] = []

    def begin(**options: Any) -> Watched:
        watched.append(Watched(browser, **options))
        return watched[-1]

    yield begin
    for each in watched:
        each.context.close()
    assert [error for each in watched for error in each.errors] == []
    assert [url for each in watched for url in each.foreign()] == []
