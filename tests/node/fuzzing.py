"""Coverage-guided fuzzing of what reads others' bytes: `python fuzzing.py TARGET [libFuzzer options] [CORPUS]`.

An exception that a target does not expect is a finding: the process ends with a status other than 0.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["sagefl.node", "sagefl.runs.parquet", "sagefl.selection"]):
    from federation import Federation, tiny

    from sagefl.node.audit import _chain
    from sagefl.node.corelog import handshake_failure
    from sagefl.node.errors import Fault, NodeError
    from sagefl.node.gate import NAME_HEADER
    from sagefl.node.identity import Refused, _read_revocations
    from sagefl.node.journal import Journal
    from sagefl.node.keeper import Keeper
    from sagefl.node.loop import Node
    from sagefl.node.registry import Registry
    from sagefl.node.service import PeerService
    from sagefl.node.ticket import Ticket
    from sagefl.node.verify import decode_answers, decode_block, fits
    from sagefl.node.wire import node_pb2 as wire
    from sagefl.node.wire.rpc import handlers_of
    from sagefl.runs.files import RunError
    from sagefl.runs.parquet import check_size
    from sagefl.selection.scoring import Outputs, sent_as

HOME = Path(tempfile.mkdtemp(prefix="sagefl-fuzz-"))
FEDERATION = Federation(HOME)


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


def gate() -> Callable[[bytes], None]:
    """Any bytes as any call of a neighbour: refused or answered, never an internal error."""
    bob = node()
    handlers = sorted(handlers_of(PeerService(bob.published)).items())

    def one(data: bytes) -> None:
        name, handler = handlers[data[0] % len(handlers)] if data else handlers[0]
        serve = bob.gate._stream if handler.response_streaming else bob.gate._unary
        try:
            answer = serve(name, handler, iter([data[1:]]), Context())
            if handler.response_streaming:
                list(answer)
        except Aborted:
            return

    return one


def answers() -> Callable[[bytes], None]:
    """Any bytes as answers of any form."""

    def one(data: bytes) -> None:
        form = sent_as(data[0] % 3 if data else 0)
        assert form is not None
        try:
            decode_answers(form, data[2:], 1 + data[1] % 32 if len(data) > 1 else 1, Outputs(4, 8))
        except Fault:
            return

    return one


def block() -> Callable[[bytes], None]:
    """Any bytes as a model, and as a description."""
    bob = node()
    layout, newest = bob.learner.layout, bob.published.snapshots.find()
    assert newest is not None

    def one(data: bytes) -> None:
        for raw in (data, newest.block[: len(data)] + data, data + newest.block[len(data) :]):
            try:
                decode_block(raw, layout, newest.digest)
            except Fault:
                continue
        try:
            fits(wire.Description.FromString(data), layout, 4, (1, 8, 8), "uint8", None)
        except (Fault, Exception) as error:
            if not isinstance(error, Fault) and type(error).__name__ != "DecodeError":
                raise

    return one


def files() -> Callable[[bytes], None]:
    """Any bytes as a Parquet footer, an audit log, a revocation list, a certificate or a line of gRPC's log."""
    path, bob = HOME / "any", FEDERATION.identity("bob")

    def one(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(RunError):
            check_size(io.BytesIO(data + len(data).to_bytes(4, "little") + b"PAR1"), path)
        with contextlib.suppress(NodeError):
            _chain(path)
        with contextlib.suppress(NodeError):
            _read_revocations(path, bob._authority)
        with contextlib.suppress(Refused):
            bob.judge_pem(data, {"alice": None})
        handshake_failure(data.decode(errors="replace"))

    return one


def keeper() -> Callable[[bytes], None]:
    """Any bytes as a question of a stranger to the keeper, and as a ticket."""
    asked = Keeper(Registry.create(HOME / "kept", "127.0.0.1:7440"), Journal())
    paths = sorted(asked._routes)

    def one(data: bytes) -> None:
        path = paths[data[0] % len(paths)] if data else paths[0]
        request = json.dumps({"secret": "00", "address": "a:1", "request": data.decode(errors="replace")}).encode()
        for raw in (data[1:], request):
            status, _ = asked.answer(path, raw, None, "somewhere")
            assert status in (400, 403), status
        with contextlib.suppress(NodeError):
            Ticket.parse(data.decode(errors="replace"))

    return one


TARGETS = {"gate": gate, "answers": answers, "block": block, "files": files, "keeper": keeper}


if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]()
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
