"""Coverage-guided fuzzing of what reads others' bytes: `python fuzzing.py TARGET [libFuzzer options] [CORPUS]`.

An exception that a target does not expect is a finding: the process ends with a status other than 0.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import numpy as np
from google.protobuf.message import DecodeError

with atheris.instrument_imports(include=["sagefl.node", "sagefl.runs.parquet", "sagefl.selection"]):
    from federation import Federation, tiny

    from sagefl.node.account import KeptAccount
    from sagefl.node.audit import GENESIS, _chain, _hash
    from sagefl.node.client import PeerClient
    from sagefl.node.config import NeighbourConfig
    from sagefl.node.corelog import handshake_failure
    from sagefl.node.errors import Fault, NodeError
    from sagefl.node.gate import NAME_HEADER
    from sagefl.node.identity import Refused, _read_revocations
    from sagefl.node.joining import MEMBERS, granted, keep_members, kept_members, neighbours_in
    from sagefl.node.journal import Journal
    from sagefl.node.keeper import Keeper
    from sagefl.node.loop import Node
    from sagefl.node.registry import Registry
    from sagefl.node.roster import Roster
    from sagefl.node.service import PeerService
    from sagefl.node.status import FILE, read_status
    from sagefl.node.ticket import Ticket
    from sagefl.node.verify import decode_answers, decode_block, decode_values, fits
    from sagefl.node.wire import node_pb2 as wire
    from sagefl.node.wire.rpc import handlers_of
    from sagefl.runs.checkpoint import VERSION, _seal, latest
    from sagefl.runs.files import RunError
    from sagefl.runs.losses import Recorded, read_losses, write_losses
    from sagefl.runs.parquet import check_size
    from sagefl.selection.private import PrivateLabels, RandomisedResponse
    from sagefl.selection.scoring import Outputs, sent_as

HOME = Path(tempfile.mkdtemp(prefix="sagefl-fuzz-"))
FEDERATION = Federation(HOME)
CERTIFICATE, LIST = "CERTIFICATE", "X509 CRL"  # as the armour around them names them
WIRES = 4  # forms of answer: labels, probabilities, latents, values
Target = tuple[Callable[[bytes], None], list[bytes]]  # what takes any bytes, and seeds made from real messages


def node() -> Node:
    made = Node(FEDERATION.config("bob", ("alice",), limits={"requests_per_minute": 10**9, "bytes_per_minute": 2**50}),
                insecure=True, dataset=tiny())  # fmt: skip
    made._publish(*made.learner.train(0))
    return made


class Aborted(Exception):  # noqa: N818
    """How a call ends that was refused."""


class Context:
    """A call as gRPC presents it."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((NAME_HEADER, "alice"),)

    def auth_context(self) -> dict[str, Any]:
        return {}

    def peer(self) -> str:
        return "unix:"

    def cancel(self) -> None:
        return None

    def set_trailing_metadata(self, metadata: object) -> None:
        return None

    def abort(self, code: object, why: str) -> None:
        assert "internal error" not in why, why
        raise Aborted(why)


def gate() -> Target:
    """Any bytes as any call of a neighbour: refused or answered, never an internal error."""
    bob = node()
    handlers = sorted(handlers_of(PeerService(bob.published)).items())
    question = wire.PullRequest().SerializeToString()
    probe = wire.ProbeRequest(kind=0, count=2, inputs=bytes(2 * 64)).SerializeToString()

    def one(data: bytes) -> None:
        name, handler = handlers[data[0] % len(handlers)] if data else handlers[0]
        serve = bob.gate._stream if handler.response_streaming else bob.gate._unary
        try:
            answer = serve(name, handler, iter([data[1:]]), Context())
            if handler.response_streaming:
                list(answer)
        except Aborted:
            return

    return one, [bytes([n]) + seed for n in range(len(handlers)) for seed in (b"", question, probe)]


def answers() -> Target:
    """Any bytes as answers of any form, and as a value that is read."""

    classes, values = Outputs(4, 8), Outputs(3, 8, clip=2.0)
    forms = [(sent_as(wire), values if wire == WIRES - 1 else classes) for wire in range(WIRES)]
    forms += [(PrivateLabels(RandomisedResponse(1.0, 4, m)), classes) for m in ("k-rr", "bitwise")]
    assert not [form for form, _ in forms if form is None]
    assert sent_as(WIRES) is None  # one more form would be one that nobody fuzzes

    def one(data: bytes) -> None:
        form, outputs = forms[data[0] % len(forms) if data else 0]
        count = 1 + data[1] % 32 if len(data) > 1 else 1
        with contextlib.suppress(Fault):
            told = decode_answers(form, data[2:], count, outputs)  # type: ignore[arg-type]
            assert len(told) == count
        with contextlib.suppress(Fault):
            assert np.isfinite(decode_values("degree", data, 8)).all()

    quarter = np.full(16, 0.25, "<f4").tobytes()
    seeds = [bytes([n, 3]) + (quarter * 8)[: 4 * form.size(outputs)] for n, (form, outputs) in enumerate(forms)]  # type: ignore[union-attr]
    return one, [*seeds, bytes([0, 3, 0, 1, 2, 3]), bytes([WIRES, 3, 3, 2, 1, 0])]


class Stream(list[Any]):
    """Chunks as gRPC hands them over."""

    def cancel(self) -> None:
        """Nobody is sending."""


def block() -> Target:
    """Any bytes as a model, as the pieces it comes in, and as a description."""
    bob, alice = node(), PeerClient("bob", "127.0.0.1:1", None, me="alice")
    layout, newest = bob.learner.layout, bob.published.snapshots.find()
    assert newest is not None
    described = wire.Description(layout=layout.digest, classes=4, input=(1, 8, 8), dtype="uint8", protocol=2)

    def one(data: bytes) -> None:
        for raw in (data, newest.block[: len(data)] + data, data + newest.block[len(data) :]):
            try:
                decode_block(raw, layout, newest.digest)
            except Fault:
                continue
        with contextlib.suppress(Fault, DecodeError):
            fits(wire.Description.FromString(data), layout, 4, (1, 8, 8), "uint8", None)
        with contextlib.suppress(Fault, DecodeError):
            size = 1 + data[0] if data else 1
            pieces = [data[at : at + size] for at in range(1, len(data), size)]
            whole = alice._gather(Stream(map(wire.Chunk.FromString, pieces)), 1000)
            assert 0 < len(whole) <= 1000

    chunks = [wire.Chunk(total=8, data=bytes(4)).SerializeToString() for _ in range(2)]
    return one, [newest.block[:2000], described.SerializeToString(), bytes([len(chunks[0]) - 1]) + b"".join(chunks)]


def files() -> Target:
    """Any bytes as a Parquet footer, a revocation list, a certificate (in armour or not) or a line of gRPC's log."""
    path, bob = HOME / "any", FEDERATION.identity("bob")

    def one(data: bytes) -> None:
        path.write_bytes(data + len(data).to_bytes(4, "little") + b"PAR1")
        with contextlib.suppress(RunError), path.open("rb") as file:
            check_size(file, path)
        armoured = ssl.DER_cert_to_PEM_cert(data)
        for listed in (data, armoured.replace(CERTIFICATE, LIST).encode()):
            path.write_bytes(listed)
            with contextlib.suppress(NodeError):
                _read_revocations(path, bob._authority)
        for certificate in (data, armoured.encode()):
            with contextlib.suppress(Refused):
                bob.judge_pem(certificate, {"alice": None})
        handshake_failure(data.decode(errors="replace"))

    pems = [(FEDERATION.home / "bob" / name).read_text() for name in ("revoked.pem", "node.pem")]
    ders = [ssl.PEM_cert_to_DER_cert(pem.replace(LIST, CERTIFICATE)) for pem in pems]
    return one, [*(pem.encode() for pem in pems), *ders]


def keeper() -> Target:
    """Any bytes as a question of a stranger to the keeper, as its answer, and as a ticket."""
    asked = Keeper(Registry.create(HOME / "kept", "127.0.0.1:7440"), Journal())
    paths = sorted(asked._routes)

    def one(data: bytes) -> None:
        path = paths[data[0] % len(paths)] if data else paths[0]
        request = json.dumps({"secret": "00", "address": "a:1", "request": data.decode(errors="replace")}).encode()
        for raw in (data[1:], request):
            status, _ = asked.answer(path, raw, None, "somewhere")
            assert status in (400, 403), status
        for code in (200, 403):
            with contextlib.suppress(NodeError):
                assert isinstance(neighbours_in(granted(code, data)), dict)
        with contextlib.suppress(NodeError):
            Ticket.parse(data.decode(errors="replace"))

    told = b'{"number": 2, "neighbours": {"bob": {"address": "a:1", "number": 1, "key": null}}, "revoked": ""}'
    return one, [told, *(bytes([n]) + b'{"secret": "00", "address": "a:1", "request": "r"}' for n in range(len(paths)))]


def records() -> Target:
    """Any bytes as what a node or keeper finds in its own folders: roster, account, members, losses, checkpoint, audit
    log, status."""
    home = HOME / "records"
    checkpoint = home / "checkpoint" / "round-000001"
    checkpoint.mkdir(parents=True)
    account, losses = home / "account.json", home / "losses" / "round-00000.safetensors"
    told = Recorded(0, np.arange(2, dtype=np.int32), 3, np.array([[0.0, 1.0, np.nan], [1.0, 0.5, 0.0]]), sent_as(0))
    write_losses(losses, [told])
    roster = Roster()
    roster.invite("alice", bytes(16), 0.0, 1.0)
    roster.admit(bytes(16), "k" * 64, "a:1", 0.5)
    keep_members(home, {"bob": NeighbourConfig(address="a:1", number=1)}, {1: "bob"})
    content = {"version": VERSION, "round": 1, "identity": "x", "chunks": {}, "states": {}}

    def one(data: bytes) -> None:
        with contextlib.suppress(NodeError):
            Roster.from_json(data.decode(errors="replace"))
        account.write_bytes(data)
        with contextlib.suppress(NodeError):
            kept = KeptAccount(1.0, account)
            kept.load()
            assert kept.spent("alice") >= 0
        (home / MEMBERS).write_bytes(data)
        with contextlib.suppress(NodeError):
            kept_members(home)
        losses.write_bytes(data)
        with contextlib.suppress(RunError):
            read_losses(losses)
        manifest = checkpoint / "manifest.json"
        manifest.write_bytes(data)
        assert latest(home, "x")[0] is None or b"digest" in data
        for log in (home / "audit.log", home / FILE):
            log.write_bytes(data)
        with contextlib.suppress(NodeError):
            _chain(home / "audit.log")
        with contextlib.suppress(NodeError):
            read_status(home)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return
        manifest.write_text(json.dumps({"content": found, "digest": _seal(found)}))  # under a seal that is right
        latest(home, "x")
        line = {**found, "prev": GENESIS} if isinstance(found, dict) else {"prev": GENESIS}
        (home / "audit.log").write_text(json.dumps({**line, "hash": _hash(line)}))
        with contextlib.suppress(NodeError):
            _chain(home / "audit.log")

    texts = [roster.to_json(), '{"epsilon": 1.0, "answers": {"alice": 3}}', json.dumps(content)]
    sealed = json.dumps({"content": content, "digest": _seal(content)})
    texts += ['{"pid": 1, "time": 0.0}', '{"round": 0, "row": "00"}', '{"resumed": 1}']
    files = [(home / MEMBERS).read_bytes(), losses.read_bytes()]
    return one, [*(text.encode() for text in (*texts, sealed)), *files]


TARGETS = {"gate": gate, "answers": answers, "block": block, "files": files, "keeper": keeper, "records": records}


def smoke() -> None:
    """Every target on its seeds, and on each of them cut, doubled and with bytes changed; without libFuzzer."""
    rng = np.random.default_rng(1)
    for make in TARGETS.values():
        one, seeds = make()
        for seed in [b"", *seeds]:
            changed = [bytearray(seed) for _ in range(10)]
            for content in changed if seed else ():
                content[int(rng.integers(len(content)))] = int(rng.integers(256))
            for content in (seed, seed[: len(seed) // 2], seed + seed, b"[" * 1500, *map(bytes, changed)):
                one(content)


if __name__ == "__main__" and sys.argv[1] == "smoke":
    smoke()
elif __name__ == "__main__":
    target, corpus = TARGETS[sys.argv.pop(1)]()
    for number, content in enumerate(corpus):  # made from real messages; the last argument is the corpus
        (Path(sys.argv[-1]) / f"seed-{number}").write_bytes(content)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
