"""A sandbox to type pages into."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import Sandbox, one_core


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    monkeypatch.chdir(tmp_path)  # and back
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands may make modules of the current folder importable
    with one_core():
        yield Sandbox(tmp_path)
