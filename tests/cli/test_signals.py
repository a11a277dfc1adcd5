"""The command as its own process: Ctrl-C, kill -9, a full disk, two at once; and nobody is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Call = Callable[..., Result]
COMMAND = [sys.executable, "-c", "from sagefl.cli import app; app()"]
RUN = [
    "run", "--clients", "6", "--rounds", "3000", "--eval-every", "500", "--max-batches", "1",
    "--set", "model.name=mlp", "--set", "model.options.hidden=8", "--checkpoint-every", "2", "--workers", "2",
]  # fmt: skip
SHORT = ["--rounds", "12", "--eval-every", "6"]
NOT_COMPARED = ("timings.parquet", "events.log", "environment.json", ".lock")  # clocks, and what it ran on


def files(directory: str) -> dict[str, bytes]:
    found = (p for p in Path(directory).rglob("*") if p.is_file() and p.name not in NOT_COMPARED)
    return {str(p.relative_to(directory)): p.read_bytes() for p in found}


def session(leader: int) -> list[int]:
    """Every living process of a session: the run, its workers, whoever makes and watches them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 90.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """A command in a session of its own."""

    def of(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return of


def checkpointed(directory: str) -> bool:
    return any(Path(directory, "checkpoint").glob("round-*"))


def test_ctrl_c_reaches_the_whole_group_and_ends_cleanly(
    start: Callable[..., subprocess.Popen[str]], sagefl: Call
) -> None:
    process = start(*RUN, "--engine", "processes", "--out", "run")
    assert wait_for(lambda: checkpointed("run") or process.poll() is not None)
    assert len(session(process.pid)) >= 3  # the run and its workers
    refusal = sagefl("resume", "run", "--engine", "sequential", code=2).stderr
    assert "run is being written by another process" in refusal
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, told = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "stopping after this round; once more stops at once" in told
    assert "sagefl: stopped after round" in told
    assert "go on with: sagefl resume run" in told
    assert "Traceback" not in told
    assert wait_for(lambda: not session(process.pid), 20), "somebody was left behind"


@pytest.mark.slow  # tests/simulation/test_killed.py kills runs in `make test`
def test_killed_and_resumed_it_ends_bit_for_bit_and_leaves_nobody_behind(
    start: Callable[..., subprocess.Popen[str]], sagefl: Call
) -> None:
    process = start(*RUN, *SHORT, "--engine", "processes", "--out", "run")
    assert wait_for(lambda: checkpointed("run") or process.poll() is not None)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=90)
    assert process.returncode == -signal.SIGKILL
    assert wait_for(lambda: not session(process.pid), 20), "somebody outlived the run"
    out = sagefl("resume", "run", "--engine", "sequential", "--checkpoint-every", "2").stdout
    assert "sage-os: going on at round" in out
    sagefl(*RUN, *SHORT, "--engine", "sequential", "--out", "whole", "-q")
    resumed, whole = files("run"), files("whole")
    assert sorted(resumed) == sorted(whole)
    assert [name for name in whole if resumed[name] != whole[name]] == []


def test_a_disk_that_really_is_full(tmp_path: Path) -> None:
    """A file system of one megabyte, in a mount namespace of its own."""
    unshare = shutil.which("unshare")
    probe = "mount -t tmpfs -o size=1m tmpfs " + str(tmp_path)
    if unshare is None or subprocess.run([unshare, "-rm", "sh", "-c", probe], capture_output=True).returncode:
        pytest.skip("needs unshare and the right to mount a tmpfs in a namespace of its own")
    run = " ".join([*RUN, "--engine", "sequential", "--checkpoint-every", "1", "--set", "model.options.hidden=16"])
    script = f"""
        {probe} && cd {tmp_path} && mkdir run
        run() {{ "$@" {run} --out run; }}
        run "$PYTHON" -c 'from sagefl.cli import app; app()'; echo "code $?"
        ls -A run run/checkpoint
    """
    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": sys.executable},
        timeout=120,
    )
    assert "code 2" in done.stdout, done.stdout + done.stderr
    assert "the disk is full. What was written before is intact; free some space, then `sagefl resume`" in done.stderr
    assert "Traceback" not in done.stderr
    assert "run.toml" in done.stdout
    assert ".partial" not in done.stdout
