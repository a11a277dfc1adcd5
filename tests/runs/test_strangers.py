"""Run folders from strangers: how much would be read is known beforehand, and none of their code runs unasked."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagefl.runs import parquet
from sagefl.runs.config import RunConfig
from sagefl.runs.files import RunError
from sagefl.runs.rundir import RunDirectory, read_table

FRAME = pl.DataFrame({"round": list(range(1000)), "risks": [[0.5] * 5] * 1000, "reason": ["gossip"] * 1000})


def test_an_ordinary_table_is_read_and_its_footer_understood(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    FRAME.write_parquet(path)
    with path.open("rb") as file:
        values, size = parquet._announced(file, path)
    assert values == 1000 + 5000 + 1000
    assert 0 < size < 1_000_000
    assert read_table(path).equals(FRAME)


@pytest.mark.parametrize("kind", ["rows", "one list"])
def test_a_small_file_that_unfolds_to_gigabytes_is_refused_before_it_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "metrics.parquet"
    count = parquet.MOST_VALUES + 1
    column = pl.repeat(True, count, dtype=pl.Boolean)
    pl.select(x=column if kind == "rows" else column.implode()).write_parquet(path, compression="zstd")
    assert path.stat().st_size < 1_000_000
    code = (
        "import resource, sys; from pathlib import Path; from sagefl.runs.rundir import read_table\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_table(Path(sys.argv[1]))\nexcept Exception as error:\n    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    told = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert "more than any run has" in told
    assert int(told.split()[-1]) < 50_000  # kB


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 400), st.integers(0, 255))
def test_whatever_a_footer_holds_ends_in_an_error_of_ours(noise: bytes, at: int, byte: int) -> None:
    made = io.BytesIO()
    FRAME.head(3).write_parquet(made)
    content = bytearray(made.getvalue())
    content[-9 - at % 300] = byte
    for raw in (bytes(content), noise, noise + len(noise).to_bytes(4, "little") + b"PAR1"):
        try:
            parquet.check_size(io.BytesIO(raw), Path("table"))
        except RunError:
            continue


def test_a_run_of_a_billion_clients_is_not_read(tmp_path: Path) -> None:
    text = RunConfig(clients=3, rounds=3).to_toml().replace("clients = 3", "clients = 1000000000")
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(RunError, match="1,000,000,000 clients"):
        _ = RunDirectory(tmp_path).config


def test_resume_runs_code_named_in_a_folder_only_when_told_to(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "theirs.py").write_text("open('ran', 'w').close()\n")
    config = RunConfig.parse({"clients": 3, "rounds": 1, "data": {"dataset": "theirs:data"}})
    (run / "run.toml").write_text(config.to_toml())
    assert config.code == ("theirs:data",)
    command = [sys.executable, "-c", "from sagefl.cli import app; app()", "resume", "run"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 2
    assert "names code that would be run: theirs:data" in told.stderr
    assert not (tmp_path / "ran").exists()
    allowed = subprocess.run([*command, "--allow-code"], cwd=tmp_path, capture_output=True, text=True)
    assert "names code that would be run" not in allowed.stderr  # what it says now comes from looking at the code
    assert "theirs:data" in allowed.stderr
