"""Coverage-guided fuzzing for a bounded time; what is found becomes an ordinary test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 30


def test_every_target_takes_its_seeds_and_what_becomes_of_them() -> None:
    pytest.importorskip("atheris", reason="atheris is there for Linux alone")
    command = [sys.executable, "fuzzing.py", "smoke"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gate", "answers", "block", "files", "keeper", "records"])
def test_nothing_that_others_send_raises_what_is_not_expected(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is there for Linux alone")
    (tmp_path / "corpus").mkdir()
    command = [
        sys.executable,
        "fuzzing.py",
        target,
        f"-max_total_time={SECONDS}",
        "-max_len=2048",
        "-rss_limit_mb=4096",
    ]
    done = subprocess.run(
        [*command, f"-artifact_prefix={tmp_path}/", str(tmp_path / "corpus")],
        cwd=Path(__file__).parent, capture_output=True, text=True, timeout=SECONDS + 180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done " in done.stderr
