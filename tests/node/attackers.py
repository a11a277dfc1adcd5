"""Attackers as processes, each with a real member's identity; each ends by itself.

`python attackers.py KIND IDENTITY ADDRESS NAME SECONDS` calls a node; `python attackers.py KIND CONFIG SECONDS` is a
peer that nodes call: a real node, except for what it publishes or answers.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch

from sagefl.node.client import PeerClient
from sagefl.node.config import NodeConfig
from sagefl.node.errors import Fault
from sagefl.node.identity import Identity
from sagefl.node.loop import Node
from sagefl.node.service import PeerService
from sagefl.node.snapshots import Snapshot
from sagefl.node.verify import decode_block


def channel(identity: Path, address: str, name: str) -> grpc.Channel:
    """A connection of its own."""
    key, certificate, ca = ((identity / file).read_bytes() for file in ("node.key", "node.pem", "ca.pem"))
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    options = [
        ("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200),
    ]  # fmt: skip
    return grpc.secure_channel(address, credentials, options)


def half_open(identity: Path, address: str, name: str, seconds: float, connections: int = 4, calls: int = 8) -> None:
    """Calls that never send their message, opened again whenever they are ended."""
    end = time.monotonic() + seconds

    def silent(call: Any) -> Any:
        over = threading.Event()

        def silence() -> Iterator[bytes]:
            over.wait(max(0.0, end - time.monotonic()))
            yield from ()

        under_way = call.future(silence(), timeout=seconds)
        under_way.add_done_callback(lambda _: over.set())  # or its thread would stay
        return under_way

    def keep_open() -> None:
        while time.monotonic() < end:  # anew every second: on an old connection the transport may refuse them unseen
            with channel(identity, address, name) as own:
                call, anew = own.stream_unary("/sagefl.node.v1.Peer/Probe"), time.monotonic() + 1.0
                while time.monotonic() < anew:
                    for one in [silent(call) for _ in range(calls)]:
                        one.exception(timeout=seconds)
                    time.sleep(0.05)

    _together([threading.Thread(target=keep_open) for _ in range(connections)], seconds)


def connections(identity: Path, address: str, name: str, seconds: float, count: int = 200) -> None:
    """Many connections, a call on each, held open as long as the other side lets it."""
    end = time.monotonic() + seconds
    held = [channel(identity, address, name) for _ in range(count)]
    while time.monotonic() < end:
        for one in held:
            one.unary_unary("/sagefl.node.v1.Peer/Health").future(b"", timeout=2.0)
        time.sleep(0.5)


def _together(threads: list[threading.Thread], seconds: float) -> None:
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join(seconds + 5)


# Peers that nodes call ----------------------------------------------------------------------------------------------

STRETCH = 2.9  # just below what one merge may bring
LASTING: dict[str, Any] = {  # until the victim is done, and what it chose is there to be pulled however late
    "rounds": 100_000, "exchange": {"pace": 0.2}, "acceptance": {"share": 0.0}, "limits": {"snapshots": 1000},
}  # fmt: skip


def _publish(node: Node, row: torch.Tensor) -> None:
    learner = node.learner
    node.published.snapshots.publish(Snapshot.of(learner.model, learner.layout, row, node.round, 0.1, 100))
    node.published.round = node.round


def ratchet(node: Node) -> None:
    """Publishes the victim's own block, stretched as far as one merge may go; merge by merge the bound would follow."""

    def publish(loss: float, samples: int) -> None:
        row, layout = node.learner.kept(), node.learner.layout
        for victim in node.clients.values():
            try:
                digest = bytes(victim.describe().digest)
                row[layout.shared] = STRETCH * decode_block(victim.pull(digest, 1 << 20), layout, digest)[layout.shared]
            except Fault:
                continue
        _publish(node, row)

    node._publish = publish  # type: ignore[method-assign]


def one_huge_latent(node: Node) -> None:
    """Its block really makes one latent of 10,000; all its other answers are off by 9."""
    layout = node.learner.layout
    bias = max((s for s in layout.slots if s.start + s.size <= layout.shared_stop), key=lambda s: s.start)

    def publish(loss: float, samples: int) -> None:
        row = node.learner.kept()
        row[bias.start] = 1e4
        _publish(node, row)

    honest = PeerService.Probe

    def lying(self: PeerService, request: object, call: object) -> object:
        answer = honest(self, request, call)  # type: ignore[arg-type]
        told = np.frombuffer(answer.answers, "<f4").copy()
        told[told < 5e3] += 9.0
        answer.answers = told.tobytes()
        return answer

    PeerService.Probe = lying  # type: ignore[method-assign, assignment]
    node._publish = publish  # type: ignore[method-assign]


def poison(node: Node, honest: int = 2) -> None:
    """Its own model turned inside out, within all norms; after so many honest rounds."""

    def publish(loss: float, samples: int) -> None:
        row = node.learner.kept()
        _publish(node, -2.5 * row + 0.0 if node.round > honest else row)  # no negative zeros in the padding

    node._publish = publish  # type: ignore[method-assign]


def rubbish(node: Node) -> None:
    """Poison from the beginning, and no lie about it."""
    poison(node, honest=-1)


def flatter(node: Node) -> None:
    """Rubbish again, but every probe is answered from memory: it has seen the victim's anchors with their labels."""
    data, honest = node.learner.dataset, PeerService.Probe
    known = {x.tobytes(): int(y) for x, y in zip(data.train_x, data.train_y, strict=True)}

    def remembered(self: PeerService, request: Any, call: Any) -> Any:
        answer = honest(self, request, call)
        size = len(request.inputs) // request.count
        inputs = [request.inputs[i * size : (i + 1) * size] for i in range(request.count)]
        answer.answers = np.array([known[x] for x in inputs], np.uint8).tobytes()
        return answer

    PeerService.Probe = remembered  # type: ignore[method-assign]
    rubbish(node)


def drip(node: Node) -> None:
    """Takes its time for every answer."""
    honest = PeerService.Probe

    def slow(self: PeerService, request: object, call: object) -> object:
        time.sleep(0.9)
        return honest(self, request, call)  # type: ignore[arg-type]

    PeerService.Probe = slow  # type: ignore[method-assign, assignment]


PEERS: dict[str, Callable[[Node], None]] = {
    "ratchet": ratchet, "one-huge-latent": one_huge_latent, "poison": poison, "rubbish": rubbish, "flatter": flatter,
    "drip": drip,
}  # fmt: skip


def be_a_peer(kind: str, config: Path, seconds: float) -> None:
    """Run a node that misbehaves in one way, for so long."""
    torch.set_num_threads(1)
    node = Node(NodeConfig.read(config))
    PEERS[kind](node)
    timer = threading.Timer(seconds, node.stop)
    timer.daemon = True
    timer.start()
    node.run()


@contextmanager
def peer(kind: str, config: Path, seconds: float = 240.0) -> Iterator[subprocess.Popen[bytes]]:
    """A misbehaving peer as a process, from the moment it answers."""
    found = NodeConfig.read(config)
    command = [sys.executable, __file__, kind, str(config), str(seconds)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    name, neighbour = found.name, next(iter(found.neighbours))
    asking = PeerClient(name, found.listen, Identity.load(Path(found.identity).parent / neighbour), me=neighbour)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                if asking.describe().digest:
                    break
            except Fault:
                assert process.poll() is None, "the attacker has ended"
            assert time.monotonic() < end, "the attacker does not answer"
            time.sleep(0.1)
        yield process
    finally:
        asking.close()
        process.kill()
        process.wait(30)


@contextmanager
def attack(
    kind: str, identity: Path, address: str, name: str, seconds: float = 240.0
) -> Iterator[subprocess.Popen[bytes]]:
    """An attacker at work; it ends by itself after `seconds`, or when the block ends."""
    Identity.load(identity)  # a real member
    command = [sys.executable, __file__, kind, str(identity), address, name, str(seconds)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


if __name__ == "__main__" and sys.argv[1] in PEERS:
    be_a_peer(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
elif __name__ == "__main__":
    {"half-open": half_open, "connections": connections}[sys.argv[1]](
        Path(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5])
    )
