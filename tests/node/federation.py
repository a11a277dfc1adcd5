"""A federation in one process: identities, tiny data, honest peers that stand still, peers that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from sagefl.data import Dataset
from sagefl.node.client import PeerClient
from sagefl.node.config import NodeConfig
from sagefl.node.identity import Authority, Identity
from sagefl.node.loop import Node
from sagefl.node.service import PeerService, Server
from sagefl.node.swarm import free_ports
from sagefl.node.wire.rpc import serve_calls

NAMES = ("alice", "bob", "mallory", "carol")
CLASSES = 4


def tiny_arrays(samples: int = 1600) -> dict[str, Any]:
    """Images of 8 x 8 whose class is a bright quarter: learnable in a few batches."""
    rng = np.random.default_rng(5)
    y = rng.integers(CLASSES, size=samples + 200)
    x = rng.integers(0, 80, size=(len(y), 1, 8, 8), dtype=np.uint8)
    for k in range(CLASSES):
        top, left = 4 * (k // 2), 4 * (k % 2)
        x[y == k, :, top : top + 4, left : left + 4] += 100
    return {"x_train": x[:samples], "y_train": y[:samples], "x_test": x[samples:], "y_test": y[samples:]}


def tiny() -> Dataset:
    a = tiny_arrays()
    return Dataset.from_arrays("tiny", a["x_train"], a["y_train"], a["x_test"], a["y_test"], CLASSES)


SETTINGS: Mapping[str, Any] = {
    "rounds": 2,
    "seed": 3,
    "clients": len(NAMES),
    "data": {"partition": "iid", "dataset": "tiny"},
    "model": {"name": "mlp", "options": {"hidden": 8}},
    "training": {"max_batches": 3},
    "exchange": {"deadline": 20.0, "transfer_deadline": 30.0, "linger": 0.0},
}


@dataclass
class Federation:
    """Identities and addresses of a few nodes."""

    home: Path
    authority: Authority = field(init=False)
    addresses: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.authority = Authority.create(self.home / "authority")
        for name in NAMES:
            self.authority.issue(name, self.home / name)
        self.addresses = {n: f"127.0.0.1:{p}" for n, p in zip(NAMES, free_ports(len(NAMES)), strict=True)}

    def identity(self, name: str) -> Identity:
        return Identity.load(self.home / name)

    def config(self, name: str, known: tuple[str, ...], **settings: Any) -> NodeConfig:
        document = {
            **SETTINGS,
            "name": name,
            "number": NAMES.index(name),
            "directory": str(self.home / "runs" / name),
            "identity": str(self.home / name),
            "listen": self.addresses[name],
            "neighbours": {n: {"address": self.addresses[n], "number": NAMES.index(n)} for n in known},
        }
        for key, value in settings.items():
            document[key] = {**document[key], **value} if isinstance(value, dict) and key in document else value
        return NodeConfig.parse(document)

    def node(self, name: str, known: tuple[str, ...], **settings: Any) -> Node:
        return Node(self.config(name, known, **settings), dataset=tiny())

    def client(self, me: str, name: str, **options: Any) -> PeerClient:
        return PeerClient(name, self.addresses[name], self.identity(me), me=me, **{"deadline": 20.0, **options})

    @contextmanager
    def honest(self, name: str, known: tuple[str, ...] = NAMES, rounds: int = 1, **settings: Any) -> Iterator[Node]:
        """A peer that has trained a little, published, and answers; it does not train on."""
        node = self.node(name, tuple(n for n in known if n != name), **settings)
        for node.round in range(rounds):
            loss, samples = node.learner.train(node.round)
            node._publish(loss, samples)
        server = Server(node.published, node.gate, node.identity, node.config.listen, len(node.clients))
        server.start()
        try:
            yield node
        finally:
            server.stop(0.1)

    @contextmanager
    def bad(self, name: str, service: Callable[[PeerService], object], **settings: Any) -> Iterator[Node]:
        """A peer whose service is `service(honest service)`, over the real transport with a real identity."""
        node = self.node(name, tuple(n for n in NAMES if n != name), **settings)
        node._publish(*node.learner.train(0))
        threads = ThreadPoolExecutor(8)
        server, servicer = grpc.server(threads), service(PeerService(node.published))
        serve_calls(servicer, server)
        pair = [(node.identity.key, node.identity.certificate)]
        credentials = grpc.ssl_server_credentials(pair, node.identity.ca, require_client_auth=True)
        server.add_secure_port(node.config.listen, credentials)
        server.start()
        try:
            yield node
        finally:
            servicer.over.set()
            assert server.stop(0.1).wait(30)
            threads.shutdown(wait=False, cancel_futures=True)


def raw_call(federation: Federation, me: str, name: str) -> Callable[..., Any]:
    """Send any bytes to any method, with a real identity."""
    identity = federation.identity(me)
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    channel = grpc.secure_channel(
        federation.addresses[name], credentials, [("grpc.ssl_target_name_override", name), ("grpc.enable_retries", 0)]
    )

    def call(method: str, content: bytes, timeout: float = 30.0) -> Any:
        path = f"/sagefl.node.v1.Peer/{method}"
        if method in ("Pull", "Inspect"):
            return b"".join(channel.unary_stream(path)(content, timeout=timeout))
        return channel.unary_unary(path)(content, timeout=timeout)

    call.channel = channel  # type: ignore[attr-defined]
    return call


def in_thread(node: Node) -> threading.Thread:
    thread = threading.Thread(target=node.run, daemon=True)
    thread.start()
    return thread
