"""A swarm: real node processes on loopback with fresh identities, and one run directory that tells what they did.

`OUT/nodes/NAME` holds each node's config, identity, log and own run directory; `OUT/run` is all of them as one
run, in the format of the simulator, with each node's own count of rounds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from ..runs.columns import TABLES, Writer, columns, schema
from ..runs.config import RunConfig
from ..runs.losses import losses_path, perturbed_classes, read_losses, write_losses
from ..runs.recording import fitted
from ..runs.rundir import RunDirectory
from ..runs.summary import summarise
from ..topology import build
from .config import NodeConfig
from .errors import NodeError, need_posix
from .identity import Authority
from .setting import check_method
from .status import FINISHED, read_status

READS = ("degree", "samples", "loss", "age", "head", "last-layer", "sketch")  # one operator has nothing to hide here
GRACE = 20.0  # seconds a node has to end a round and write its checkpoint
KEPT_BACK = 64  # free ports
_kept_back: deque[int] = deque()  # their descriptors


@dataclass
class Swarm:
    """Nodes on this machine. Use as a context: leaving it ends every process."""

    out: Path
    nodes: int
    settings: Mapping[str, Any] = field(default_factory=dict)  # sections of every node's config
    degree: int = 4
    seed: int = 1
    start_seconds: float = 120.0  # how long nodes wait for each other at the beginning
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _logs: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.nodes < 2:
            raise NodeError(f"a swarm needs at least two nodes, got {self.nodes}")
        if self.out.exists() and any(self.out.iterdir()):
            raise NodeError(f"{self.out} is not empty: choose another --out")

    @property
    def names(self) -> list[str]:
        """The names of the nodes, by number."""
        return [f"node-{k}" for k in range(self.nodes)]

    def folder(self, name: str) -> Path:
        """A node's folder."""
        return self.out / "nodes" / name

    def run_directory(self, name: str) -> Path:
        """A node's run directory."""
        return self.folder(name) / "run"

    def prepare(self) -> None:
        """Make the federation: authority, identities, ports, a graph, a config per node.

        The configs come first, so that a mistake in them, or a method that nodes cannot use, leaves nothing behind.
        """
        need_posix()
        graph = _graph(self.nodes, self.degree, self.seed)
        addresses = [f"127.0.0.1:{port}" for port in free_ports(self.nodes)]
        around = [{f"node-{j}": {"address": addresses[j], "number": j} for j in graph[n]} for n in range(self.nodes)]
        configs = [self._config(n, name, addresses[n], around[n]) for n, name in enumerate(self.names)]
        check_method(configs[0])
        self.out.mkdir(parents=True, exist_ok=True)
        authority = Authority.create(self.out / "authority")
        for name, config in zip(self.names, configs, strict=True):
            folder = self.folder(name)
            authority.issue(name, folder / "identity")
            (folder / "node.toml").write_text(config.to_toml(), encoding="utf-8")

    def _config(self, number: int, name: str, address: str, neighbours: Mapping[str, Any]) -> NodeConfig:
        settings = dict(self.settings)
        exchange = {"wait": self.start_seconds, "deadline": 10.0, **settings.pop("exchange", {})}
        reads = [*READS, *(f"loss-of-{n}" for n in range(self.nodes))]
        degree = min(self.degree, self.nodes - 1)
        kind = {"kind": "complete"} if degree == self.nodes - 1 else {"kind": "regular", "k": degree}
        return NodeConfig.parse(
            {
                "name": name,
                "number": number,
                "clients": self.nodes,
                "seed": self.seed,
                "secret_order": False,  # one operator, and everything is to be repeated by the seed
                "listen": address,
                "neighbours": neighbours,
                "exchange": exchange,
                "topology": kind,
                "serve": {"inspect": True, "reads": reads},
                **settings,
            }
        )

    def start(self, name: str) -> None:
        """Start a node's process, or start it again."""
        if (before := self.processes.get(name)) is not None and before.stdin is not None:
            before.stdin.close()
        command = [sys.executable, "-m", "sagefl.node", "--tethered", str(self.folder(name) / "node.toml")]
        log = (self.folder(name) / "log.txt").open("ab")
        self._logs.append(log)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.processes[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def statuses(self) -> dict[str, dict[str, Any] | None]:
        """Every node's status; None where there is none yet."""
        found: dict[str, dict[str, Any] | None] = {}
        for name in self.names:
            try:
                found[name] = read_status(self.run_directory(name))
            except NodeError:
                found[name] = None
        return found

    def watch(
        self, show: Callable[[Mapping[str, dict[str, Any] | None]], None], seconds: float, every: float = 0.25
    ) -> None:
        """Show statuses until every node has finished; it is an error if one ends early or time runs out."""
        end = time.monotonic() + seconds
        while True:
            codes = {name: process.poll() for name, process in self.processes.items()}
            found = self.statuses()
            show(found)
            for name, code in codes.items():
                if code not in (None, FINISHED):
                    raise NodeError(f"{name} ended with status {code}: {self._last_words(name)}")
            if all(codes.get(n) == FINISHED or (s is not None and s["phase"] == "finished") for n, s in found.items()):
                return
            if time.monotonic() > end:
                raise NodeError(f"the swarm was not done after {seconds:.0f} s; logs are in {self.out}/nodes/*/log.txt")
            time.sleep(every)

    def stop(self) -> None:
        """End every process, by force if it does not end by itself."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        end = time.monotonic() + GRACE
        for process in self.processes.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(GRACE)
            if process.stdin is not None:
                process.stdin.close()
        for log in self._logs:
            log.close()
        self._logs.clear()

    def merge(self) -> dict[str, Any]:
        """Write all nodes as one run into `OUT/run`; returns its summary."""
        return merge_runs([self.run_directory(name) for name in self.names], self.out / "run")

    def __enter__(self) -> Swarm:
        self.prepare()
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _last_words(self, name: str) -> str:
        lines = (self.folder(name) / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"


def merge_runs(parts: Sequence[Path], out: Path) -> dict[str, Any]:
    """Several nodes' run directories as one; rounds are each node's own."""
    directories = [RunDirectory(path) for path in parts]
    config = RunConfig.parse(directories[0].config.model_dump())
    target = RunDirectory(out)
    target.prepare(config)
    tables = {name: _merged(name, [directory.table(name) for directory in directories]) for name in TABLES}
    for name, frame in tables.items():
        frame.write_parquet(out / f"{name}.parquet")
    _merge_losses(parts, out, tables["metrics"]["round"].to_list())
    _merge_events(parts, out)
    summary = {"method": config.method.id, **summarise(tables["metrics"], tables["decisions"])}
    target.finish(summary)
    return summary


def _merged(table: str, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows of clients are kept; rows of the same round become one, each column combined as it declares."""
    signs: dict[Writer, str] = {"values": "mae", "memory": "ever"}  # a column that tells what kind of run it is
    held = {name for part in parts for name in part.columns}
    writers: tuple[Writer, ...] = ("node", *(writer for writer, sign in signs.items() if sign in held))
    kinds = schema(table, *writers)
    rows = pl.concat([fitted(part, kinds) for part in parts])
    if table in ("decisions", "clients"):
        return rows.sort("round", "client")
    how = [getattr(pl.col(column.name), column.combine)() for column in columns(table, *writers) if column.combine]
    return rows.group_by("round").agg(how).sort("round").select(*kinds).cast(kinds)


def _merge_losses(parts: Sequence[Path], out: Path, rounds: Sequence[int]) -> None:
    for number in rounds:
        found = [path for part in parts if (path := losses_path(part, number)).is_file()]
        records = [record for path in found for record in read_losses(path)]
        if records:
            records.sort(key=lambda r: r.client)
            write_losses(losses_path(out, number), records, perturbed_classes(found[0]))


def _merge_events(parts: Sequence[Path], out: Path) -> None:
    lines = []
    for path in parts:
        for line in (path / "events.log").read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            lines.append((event["time"], json.dumps({**event, "node": path.parent.name})))
    (out / "events.log").write_text("".join(f"{line}\n" for _, line in sorted(lines)), encoding="utf-8")


def _graph(nodes: int, degree: int, seed: int) -> list[list[int]]:
    degree = min(degree, nodes - 1)
    if degree * nodes % 2:
        raise NodeError(f"{nodes} nodes cannot all have {degree} neighbours: one of the two must be even")
    graph = build("complete", nodes, seed) if degree == nodes - 1 else build("regular", nodes, seed, k=degree)
    return [[int(j) for j in graph.indices[graph.indptr[k] : graph.indptr[k + 1]]] for k in range(nodes)]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that are free.

    On Linux nobody else is given them before they are used, nor while a node is started again: they stay bound, without
    listening, until `KEPT_BACK` newer ones were asked for.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as whoever listens does
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    _kept_back.extend(each.detach() for each in sockets)
    while len(_kept_back) > (max(KEPT_BACK, count) if sys.platform == "linux" else 0):
        os.close(_kept_back.popleft())
    return ports
