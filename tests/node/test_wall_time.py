"""The virtual clock against real nodes: processes that train at known speeds, over links of known delay and rate."""

from __future__ import annotations

import json
import socket
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import polars as pl
import pytest
import tomli_w

from sagefl.node.swarm import Swarm
from sagefl.runs.config import Execution, RunConfig, method_config
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator

# Training samples a second: 2 to 4 s a round, and a sixth to a half of the round is spent on the line. What the clock
# leaves out, a node's greetings and its own disk, takes about 0.1 s.
SPEEDS = (100.0, 128.0, 64.0)
UP, LATENCY = 2.0, 10.0  # Mbit/s, and ms from a node to the net
ROUNDS = 6
SHARED = {
    "rounds": ROUNDS,
    "data": {"dataset": "fmnist-mini", "partition": "iid"},
    "training": {"max_batches": 4, "batch_size": 64},
    "evaluation": {"every": 4, "subset": 50},
}
PACED = """
import time
from math import prod
from torch import nn

class Paced(nn.Module):
    def __init__(self, shape, classes, speed=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU(), nn.Linear(64, classes))
        self.speed = speed

    def forward(self, x):
        if self.training and self.speed:
            time.sleep(len(x) / self.speed)
        return self.layers(x)
"""


class Uplink:
    """What a node sends goes out at a fixed rate, shared equally by all connections that have something to send."""

    def __init__(self) -> None:
        self.free, self.lock = 0.0, threading.Lock()

    def arrival(self, size: int) -> float:
        """When a piece is there; comes back when it goes out, so that others get in before the next one."""
        with self.lock:
            begins = max(self.free, time.monotonic())
            self.free = ends = begins + size / (UP * 125_000)
        time.sleep(max(0.0, begins - time.monotonic()))
        return ends + 2 * LATENCY / 1e3


@contextmanager
def link(target: str, caller: Uplink, callee: Uplink) -> Iterator[str]:
    """An address that leads to `target` over the two uplinks."""
    host, _, port = target.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    opened = [listener]

    def carry(source: socket.socket, sink: socket.socket, uplink: Uplink) -> None:
        waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def deliver() -> None:
            with suppress(OSError):
                while content := (due := waiting.get())[1]:
                    time.sleep(max(0.0, due[0] - time.monotonic()))
                    sink.sendall(content)
                sink.shutdown(socket.SHUT_WR)

        threading.Thread(target=deliver, daemon=True).start()
        with suppress(OSError):
            while content := source.recv(4096):
                waiting.put((uplink.arrival(len(content)), content))
        waiting.put((0.0, b""))

    def connect(near: socket.socket) -> None:
        try:
            far = socket.create_connection((host, int(port)))
        except OSError:  # not there yet
            near.close()
            return
        opened.append(far)
        for ends in ((near, far, caller), (far, near, callee)):
            threading.Thread(target=carry, args=ends, daemon=True).start()

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                opened.append(near)
                connect(near)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for one in opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes whoever waits on it
            one.close()


def measured(folder: Path, model: str, rule: str) -> list[float]:
    """How long each of the real nodes took from its first round's end to its last one's."""
    settings = SHARED | {"model": {"name": model}, "method": method_config(rule)}
    swarm = Swarm(folder, len(SPEEDS), settings, degree=2)
    swarm.prepare()
    uplinks = {name: Uplink() for name in swarm.names}
    configs = {name: tomllib.loads((swarm.folder(name) / "node.toml").read_text()) for name in swarm.names}
    with ExitStack() as links:
        for (name, config), speed in zip(configs.items(), SPEEDS, strict=True):
            config["model"]["options"] = {"speed": speed}
            for other, neighbour in config["neighbours"].items():
                way = link(neighbour["address"], uplinks[name], uplinks[other])
                neighbour["address"] = links.enter_context(way)
            (swarm.folder(name) / "node.toml").write_text(tomli_w.dumps(config))
        try:
            for name in swarm.names:
                swarm.start(name)
            swarm.watch(lambda found: None, 180)
        finally:
            swarm.stop()
    logs = [(swarm.run_directory(name) / "events.log").read_text().splitlines() for name in swarm.names]
    ends = [[e["time"] for e in map(json.loads, log) if e["event"] == "round"] for log in logs]
    assert [len(times) for times in ends] == [ROUNDS] * len(SPEEDS)
    return [times[-1] - times[0] for times in ends]


def predicted(folder: Path, model: str, rule: str) -> list[float]:
    """The same of clients at their own pace in virtual time."""
    (folder / "net.txt").write_text("".join(f"{speed} inf {UP} inf {LATENCY}\n" for speed in SPEEDS))
    settings: dict[str, Any] = SHARED | {
        "clients": len(SPEEDS),
        "rounds": 3 * ROUNDS,  # the slowest has enough turns by then
        "topology": {"kind": "complete"},
        "model": {"name": model},
        "method": method_config(rule),
        "clock": {"network": str(folder / "net.txt"), "schedule": "async"},
    }
    Simulator(RunConfig.parse(settings), RunDirectory(folder / "run"), Execution(engine="sequential")).run()
    table = RunDirectory(folder / "run").table("decisions")
    ends = [table.filter(pl.col("client") == k).sort("turn")["ended_at"].to_list() for k in range(len(SPEEDS))]
    return [times[ROUNDS - 1] - times[0] for times in ends]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "paced.py"
    path.write_text(PACED)
    return f"{path}:Paced"


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["rg", "aq-128", "sage-m"])
def test_the_clock_predicts_every_node_of_a_swarm_within_15_percent(rule: str, model: str, tmp_path: Path) -> None:
    real, virtual = measured(tmp_path / "swarm", model, rule), predicted(tmp_path, model, rule)
    told = [f"{r:.2f} s, {v:.2f} predicted" for r, v in zip(real, virtual, strict=True)]
    assert real == pytest.approx(virtual, rel=0.15), told
