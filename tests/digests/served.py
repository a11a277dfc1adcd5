"""What others get to see: the page's JSON over HTTP, a node's answers over gRPC, the records of a swarm."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from commands import Lab, apart, sagefl
from digesting import Parts, columns, part, run_parts
from small_worlds import run

# Of a run on the page: where it lies, when it was written, how fast it was; and names that are no numbers.
BY_CHANCE = {"id", "family", "version", "written", "folder", "path", "per_round", "seconds"}
SLIDERS = ("", "degree=3&delta=.05&probe_cost=0", "degree=10&lead=.8&draw=4")

# The page -------------------------------------------------------------------------------------------------------------


def page(lab: Lab) -> Parts:
    """Every answer of `sagefl view` for three runs, and the data that `sagefl report` puts into its page."""
    runs = {name: run(lab, f"method {name}") for name in ("rg", "sage-os", "sage-e")}
    found: dict[str, Any] = {}
    with _viewed(lab, *runs.values()) as address:
        found["state"] = _get(f"{address}api/state")["runs"]
        ids = {standing["method"]: standing["id"] for standing in found["state"]}
        for name, id in ids.items():
            for table in ("rounds", "decisions", "clients", "world"):
                found[f"{name}: {table}"] = _get(f"{address}api/{table}?run={id}")
            asked = [f"round={r}&client={c}" for r in range(3) for c in range(8)]
            found[f"{name}: decision"] = [_get(f"{address}api/decision?run={id}&{which}") for which in asked]
        found["map"] = [_get(f"{address}api/map?{sliders}") for sliders in SLIDERS]
    report = lab.made("report.html", lambda out: sagefl("report", *runs.values(), "--out", out))
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', report.read_text("utf-8"))
    frozen = json.loads(data)
    found |= {f"report: {name}": frozen["data"][id] for name, id in ids.items()} | {"report: map": frozen["map"]}
    return {name: part(_without(held, BY_CHANCE), len(held)) for name, held in found.items()}


@contextmanager
def _viewed(lab: Lab, *runs: Path) -> Iterator[str]:
    """The address of a page that is served meanwhile."""
    process = apart("view", *runs, "--no-browser", "--port", "0", env=os.environ | {"XDG_STATE_HOME": str(lab.folder)})
    try:
        assert process.stdout is not None
        yield re.findall(r"http://\S+", process.stdout.readline())[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def _get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


def _without(value: Any, names: set[str]) -> Any:
    """Plain values without what lies under some keys."""
    if isinstance(value, dict):
        return {k: _without(v, names) for k, v in value.items() if k not in names}
    return [_without(v, names) for v in value] if isinstance(value, list) else value


# A node ---------------------------------------------------------------------------------------------------------------

NODE = """
name = "alice"
directory = "run"
identity = "federation/alice"
listen = "{address}"
rounds = 1
clients = 4
model = {{name = "mlp", options = {{hidden = 8}}}}
training = {{max_batches = 2}}
method = {{id = "local"}}
evaluation = {{subset = 100}}
serve = {{inspect = true, reads = ["degree", "samples", "loss", "head", "last-layer"]}}
neighbours.bob = {{address = "127.0.0.1:1", number = 1}}
"""
KINDS = {"labels": 0, "latents": 1, "probs": 2}
IMAGES = 100


def node(lab: Lab) -> Parts:
    """What a node that has trained for a round says to a neighbour, byte by byte."""
    from internals import load

    with _one_node(lab.folder / "node") as call:
        inputs = load("fmnist-mini").test_x[:IMAGES].tobytes()
        asked = {"describe": ("Describe", b""), "health": ("Health", b"")}
        for kind, number in KINDS.items():
            asked[f"probe {kind}"] = ("Probe", _field(1, number) + _field(2, IMAGES) + _field(3, inputs))
        asked |= {"pull": ("Pull", b""), "inspect": ("Inspect", b"")}
        asked |= {
            f"read {what}": ("Read", _field(1, what.encode())) for what in ("samples", "loss", "head", "last-layer")
        }
        answers = {name: call(*question) for name, question in asked.items()}
    return {name: part(raw, len(raw)) for name, raw in answers.items()}


def _field(number: int, value: int | bytes) -> bytes:
    """One field of a protobuf message, as its specification says."""
    if isinstance(value, int):
        return bytes([number << 3]) + _varint(value)
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + _varint(value // 128)


@contextmanager
def _one_node(home: Path) -> Iterator[Callable[[str, bytes], bytes]]:
    """A node in a process of its own that has ended its rounds and serves; gives a way to call it as its neighbour."""
    import grpc

    sagefl("node", "init", home / "federation", "alice", "bob")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (home / "alice.toml").write_text(NODE.format(address=address), encoding="utf-8")
    process = apart("node", "run", home / "alice.toml")
    try:
        _until(lambda: _phase(home / "run") == "finished" or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        ca, key, certificate = ((home / "federation" / "bob" / name).read_bytes() for name in IDENTITY)
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        with grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", "alice")]) as channel:

            def call(method: str, content: bytes) -> bytes:
                path, streamed = f"/sagefl.node.v1.Peer/{method}", method in ("Pull", "Inspect")
                if streamed:
                    return b"".join(channel.unary_stream(path)(content, timeout=30))
                return bytes(channel.unary_unary(path)(content, timeout=30))

            yield call
    finally:
        process.terminate()
        process.communicate(timeout=60)


IDENTITY = ("ca.pem", "node.key", "node.pem")


def _phase(run: Path) -> str | None:
    path = run / "status.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["phase"]) if path.is_file() else None


def _until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# A swarm --------------------------------------------------------------------------------------------------------------

SWARM = [
    "--nodes", "3", "--degree", "2", "--rounds", "3", "--set", "model.name=mlp", "--set", "model.options.hidden=8",
    "--set", "training.max_batches=4", "--set", "evaluation.subset=100", "--set", "exchange.deadline=60",
]  # fmt: skip


def swarm(lab: Lab) -> Parts:
    """Nodes that exchange nothing train as ever; which snapshot meets which is chance as soon as they do exchange."""
    out = _swarm(lab, "local")
    found: Parts = {}
    for name in ("node-0", "node-1", "node-2"):
        held = run_parts(out / "nodes" / name / "run")
        found |= {f"{name} {what}": held[what] for what in ("metrics", "decisions", "clients", "weights")}
    tables = columns(_swarm(lab, "sage-os") / "run")
    return found | {f"columns of {table}": part(list(c.items()), len(c)) for table, c in tables.items()}


def replayed_swarm(lab: Lab) -> tuple[list[str], list[str]]:
    """What a swarm under SAGE-OS recorded of its decisions, and what `sagefl replay` makes of its losses."""
    out = _swarm(lab, "sage-os") / "run"
    decisions = pl.read_parquet(out / "decisions.parquet")
    said = sagefl("replay", out, "--method", "sage-os").splitlines()
    (row,) = [line.split() for line in said if line.startswith("sage-os")]
    shares = [(decisions["reason"] == reason).to_numpy().mean() for reason in REASONS]
    mean = decisions["evaluations"].cast(pl.Float64).to_numpy().mean()
    recorded = ["100.0%", *(f"{share:.1%}" for share in shares), f"{mean:.1f}"]
    return recorded, [row[k] for k in (1, 2, 4, 5, 6, 8)]


REASONS = ("certified", "cost", "exhausted", "no-anchors")  # beside committed, which SAGE-OS never is, and unasked


def _swarm(lab: Lab, method: str) -> Path:
    return lab.made(f"swarm {method}", lambda out: sagefl("swarm", *SWARM, "--method", method, "--out", out))
