"""The command line in this process, on small runs of real images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_commands import ONE, SMALL
from typer.testing import CliRunner, Result

from sagefl.cli import app


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sagefl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Callable[..., Result]:
    """Call a command in an empty folder; whatever it raises that is no exit fails the test."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return call


@pytest.fixture
def run(sagefl: Callable[..., Result]) -> Callable[..., Result]:
    """`sagefl run` of a small run into ./run."""

    def call(*arguments: str, code: int = 0) -> Result:
        return sagefl("run", *SMALL, *ONE, "--out", "run", *arguments, code=code)

    return call
