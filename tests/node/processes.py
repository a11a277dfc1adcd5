"""Nodes as processes of their own, and what is seen of them from outside: events log, status, run folder, sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from sagefl.node.config import NodeConfig
from sagefl.node.loop import Node
from sagefl.node.status import FINISHED, read_status
from sagefl.runs.rundir import RunDirectory

ESTABLISHED = "01"  # in /proc/net/tcp


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def start(config: Path, first: str = "", **options: Any) -> subprocess.Popen[bytes]:
    """A node; `first`: Python that its process runs before."""
    what = (
        ["-m", "sagefl.node"] if not first else ["-c", f"{first}; from sagefl.node.__main__ import main; exit(main())"]
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *what, str(config)], env=environment, **options)


@contextmanager
def running(config: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A node from its first published model on; it must still be there, and end well, when the block ends."""
    process = start(config, stdout=subprocess.DEVNULL, **options)
    directory = Path(NodeConfig.read(config).directory)
    try:
        until(lambda: round_of(directory) >= 1)
        yield process
        process.terminate()
        assert process.wait(30) == FINISHED
    finally:
        process.kill()
        process.wait(30)


def round_of(directory: Path) -> int:
    """How many rounds the status tells; -1: there is none yet."""
    try:
        return int(read_status(directory)["round"])
    except Exception:
        return -1


def blamed(directory: Path) -> Counter[tuple[str, str]]:
    """How often (event, whose) is in the log, with those that it says were not written."""
    counts: Counter[tuple[str, str]] = Counter()
    for event in map(json.loads, (directory / "events.log").read_text(encoding="utf-8").splitlines()):
        if "peer" in event:
            counts[event["event"], event["peer"]] += 1 + event.get("unwritten", 0)
    return counts


def connections(address: str) -> int:
    """How many connections a node holds open on the address where it listens."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return sum(local.endswith(port) and state == ESTABLISHED for _, local, _, state, *_ in lines)


@dataclass(frozen=True)
class Left:
    """What a node's process has left behind."""

    config: Path

    @property
    def directory(self) -> Path:
        return Path(NodeConfig.read(self.config).directory)

    @cached_property
    def blamed(self) -> Counter[tuple[str, str]]:
        return blamed(self.directory)

    @cached_property
    def decisions(self) -> pl.DataFrame:
        return RunDirectory(self.directory).table("decisions")

    @cached_property
    def node(self) -> Node:
        """A node that has read the last checkpoint, and does nothing with it."""
        node = Node(NodeConfig.read(self.config))
        node.round, _ = node.recorder.resume(node.learner.population, node._checkpoint_identity)
        assert node.round == node.config.rounds
        return node


def lived(config: Path, first: str = "", seconds: float = 120.0) -> Left:
    """A node's whole life in a process of its own."""
    process = start(config, first, stdout=subprocess.DEVNULL)
    try:
        assert process.wait(seconds) == FINISHED
    finally:
        process.kill()
        process.wait(30)
    return Left(config)
