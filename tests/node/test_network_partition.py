"""A host that is cut off, in network namespaces of our own: the others go on at their pace."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import NAMES, Federation, tiny_arrays
from network import cut, hosts, mend, on

from sagefl.node.status import read_status

HOSTS = {"alice": "10.213.7.1", "bob": "10.213.7.2", "carol": "10.213.7.4"}


@pytest.fixture
def network() -> Iterator[None]:
    with hosts(HOSTS):
        yield


def _config(federation: Federation, name: str) -> Path:
    data = federation.home / "tiny.npz"
    if not data.exists():
        np.savez_compressed(data, **tiny_arrays(), classes=4)
    settings: dict[str, Any] = {
        "rounds": 100_000, "data": {"dataset": str(data)}, "method": {"id": "aq-128"},
        "listen": f"{HOSTS[name]}:7443",
        "exchange": {"deadline": 5.0, "transfer_deadline": 60.0, "pace": 0.5, "wait": 60.0},
        "neighbours": {n: {"address": f"{HOSTS[n]}:7443", "number": NAMES.index(n)} for n in HOSTS if n != name},
    }  # fmt: skip
    path = federation.home / f"{name}.toml"
    path.write_text(federation.config(name, (), **settings).to_toml())
    return path


def _rounds(federation: Federation) -> dict[str, int]:
    found = {}
    for name in HOSTS:
        try:
            found[name] = int(read_status(federation.home / "runs" / name)["round"])
        except Exception:
            found[name] = -1
    return found


def _made_in(federation: Federation, seconds: float) -> dict[str, int]:
    before = _rounds(federation)
    time.sleep(seconds)
    return {name: after - before[name] for name, after in _rounds(federation).items()}


@pytest.mark.slow
def test_no_healthy_pair_slows_down_by_half_because_a_third_is_cut_off(federation: Federation, network: None) -> None:
    """The cable is pulled in the middle of everything: packets vanish, no connection is closed."""
    command = [sys.executable, "-m", "sagefl.node"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*on(name), *command, str(_config(federation, name))],
            stdout=subprocess.DEVNULL, env=environment,
        )
        for name in HOSTS
    ]  # fmt: skip
    try:
        end = time.monotonic() + 240
        while min(_rounds(federation).values()) < 3:
            assert time.monotonic() < end
            time.sleep(0.2)
        whole = _made_in(federation, 40)
        cut("carol")
        without = _made_in(federation, 40)
        mend("carol")
        end = time.monotonic() + 240  # and it comes back
        while "carol" not in (read_status(federation.home / "runs" / "alice")["last"].get("chosen") or ()):
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
    for name in ("alice", "bob"):
        assert without[name] >= whole[name] / 2, (whole, without)
