"""What the network costs: probe throughput over loopback TLS, and bytes on the wire per round.

    python benchmarks/node.py [--seconds 20] [--rounds 5]

Throughput: 128 uint8 anchors a request, 4 in flight, one thread for inference on either side, against local batched
inference of the same anchors on the same model (target: at least 70 %). The server is a process of its own.

Bytes: everything that crosses the loopback sockets of a node in both directions, TLS and HTTP/2 included, counted by a
forwarder in front of each neighbour, against the simulator's accounting of the same decisions (target: within 5 %).
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sagefl.learning.memory import keep_freed_memory
from sagefl.node.client import PeerClient
from sagefl.node.config import NodeConfig
from sagefl.node.identity import Authority, Identity
from sagefl.node.loop import Node
from sagefl.node.service import Server
from sagefl.node.swarm import free_ports
from sagefl.selection.scoring import LABEL_ERRORS

ANCHORS, IN_FLIGHT = 128, 4
TURNS = 21
NAMES = ("alice", "bob", "carol", "dave")
GENEROUS = {"requests_per_minute": 10_000_000, "bytes_per_minute": 2**40}


def config(home: Path, name: str, addresses: dict[str, str], known: dict[str, str], **settings: Any) -> NodeConfig:
    document: dict[str, Any] = {
        "name": name,
        "number": NAMES.index(name),
        "clients": len(NAMES),
        "directory": str(home / "runs" / name),
        "identity": str(home / name),
        "listen": addresses[name],
        "data": {"partition": "iid"},
        "training": {"max_batches": 10},
        "limits": GENEROUS,
        "neighbours": {n: {"address": a, "number": NAMES.index(n)} for n, a in known.items()},
    }
    return NodeConfig.parse(document | settings)


def serve(home: Path, name: str, addresses: dict[str, str], ready: Any, stop: Any) -> None:
    """A peer that has trained a little and answers, in a process of its own, as `run_node` sets one up."""
    torch.set_num_threads(1)
    keep_freed_memory()
    known = {n: a for n, a in addresses.items() if n != name}
    node = Node(config(home, name, addresses, known))
    node._publish(*node.learner.train(0))
    server = Server(node.published, node.gate, node.identity, node.config.listen, len(known))
    server.start()
    ready.set()
    stop.wait()
    server.stop(0.1)


@contextmanager
def peers(home: Path, addresses: dict[str, str], names: tuple[str, ...]) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    stop, started = context.Event(), []
    for name in names:
        ready = context.Event()
        process = context.Process(target=serve, args=(home, name, addresses, ready, stop), daemon=True)
        process.start()
        started.append((process, ready))
    try:
        for _, ready in started:
            if not ready.wait(120):
                raise RuntimeError("a peer did not start")
        yield
    finally:
        stop.set()
        for process, _ in started:
            process.join(10)


def throughput(home: Path, addresses: dict[str, str], seconds: float) -> None:
    node = Node(config(home, "alice", addresses, {"bob": addresses["bob"]}))
    node._publish(*node.learner.train(0))
    snapshot, inputs = node.published.snapshots.find(), node.learner.dataset.train_x[:ANCHORS]
    assert snapshot is not None

    def local(until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            LABEL_ERRORS.answer(snapshot.infer(inputs))
            done += ANCHORS
        return done

    with peers(home, addresses, ("bob",)), ThreadPoolExecutor(IN_FLIGHT) as pool:
        client = PeerClient("bob", addresses["bob"], Identity.load(home / "alice"), me="alice")
        digest = bytes(client.describe().digest)

        def remote(until: float) -> int:
            done = 0
            while time.perf_counter() < until:
                client.probe(LABEL_ERRORS, inputs, digest)
                done += ANCHORS
            return done

        local(time.perf_counter() + 0.5)
        remote(time.perf_counter() + 0.5)
        local_rates, remote_rates = [], []
        span = seconds / (2 * TURNS)
        for _ in range(TURNS):  # in turns, each share of two neighbouring spans: the machine's speed changes
            local_rates.append(local(time.perf_counter() + span) / span)
            until = time.perf_counter() + span
            asked = [pool.submit(remote, until) for _ in range(IN_FLIGHT)]
            remote_rates.append(sum(each.result() for each in asked) / span)
        client.close()
    tell(local_rates, remote_rates)


def tell(local: list[float], remote: list[float]) -> None:
    shares = sorted(there / here for there, here in zip(remote, local, strict=True))
    low, middle, high = (shares[int(q * (len(shares) - 1))] for q in (0.25, 0.5, 0.75))
    print(f"local inference   {median(local):10.0f} anchors/s   (encoder-decoder, batches of {ANCHORS}, one thread)")
    print(f"over loopback TLS {median(remote):10.0f} anchors/s   ({IN_FLIGHT} requests in flight)")
    print(f"share             {middle:10.1%}   (median of {TURNS} pairs of spans, quartiles {low:.1%} and {high:.1%})")
    print("target            at least 70 %")


class Forwarder:
    """Passes bytes on to an address and counts them, both ways."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.count = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
                callee = socket.create_connection(self.target)
            except OSError:
                return
            for source, sink in ((caller, callee), (callee, caller)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                with self._lock:
                    self.count += len(content)
                sink.sendall(content)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def bytes_per_round(home: Path, addresses: dict[str, str], rounds: int) -> None:
    names = NAMES[1:]
    with peers(home, addresses, names):
        forwarders = {name: Forwarder(addresses[name]) for name in names}
        known = {name: f.address for name, f in forwarders.items()}
        settings = {"rounds": rounds, "method": {"id": "aq-128"}, "exchange": {"linger": 0.0}}
        node = Node(config(home, "alice", addresses, known, **settings))
        node.run()
        time.sleep(0.2)
        wire = sum(f.count for f in forwarders.values())
        for forwarder in forwarders.values():
            forwarder.close()
    metrics = node.recorder.directory.table("metrics")
    kinds = ("probe_input_bytes", "probe_answer_bytes", "model_bytes", "control_bytes")
    said = sum(int(metrics[kind].sum()) for kind in kinds)
    payload = int(metrics["wire_bytes"].sum())
    print(f"\n{rounds} rounds, {len(names)} neighbours, {metrics['evaluations'].sum()} evaluations, {rounds} models")
    print(f"accounting        {said / rounds:12.0f} bytes a round   (the simulator's encodings)")
    print(f"messages          {payload / rounds:12.0f} bytes a round   {payload / said - 1:+.2%}")
    print(f"on the wire       {wire / rounds:12.0f} bytes a round   {wire / said - 1:+.2%}   (target: within 5 %)")
    print("on the wire: all handshakes, TLS records and HTTP/2 frames; TCP and IP headers are not counted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring throughput")
    parser.add_argument("--rounds", type=int, default=5, help="of counting bytes")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        authority = Authority.create(home / "authority")
        for name in NAMES:
            authority.issue(name, home / name)
        addresses = {n: f"127.0.0.1:{p}" for n, p in zip(NAMES, free_ports(len(NAMES)), strict=True)}
        throughput(home, addresses, asked.seconds)
        bytes_per_round(home, addresses, asked.rounds)


if __name__ == "__main__":
    main()
