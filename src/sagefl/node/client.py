"""A node's calls to one neighbour, each with a deadline, bounded retries and bounded messages.

Before the first call the neighbour's certificate is fetched by a TLS handshake and checked (CA, name, dates,
revocation, pinned key). The channel then trusts that certificate and nothing else, so calls go to the peer that was
checked. Every failure is a `Fault`, whatever the neighbour did.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ..selection.scoring import Scoring
from .config import NodeConfig, host_and_port
from .errors import Fault
from .gate import NAME_HEADER
from .identity import Identity, Refused
from .limits import KEEPALIVE, WINDOW
from .verify import PROTOCOL, PROTOCOL_HEADER, decode_values
from .watch import Watch
from .wire import node_pb2 as wire
from .wire.rpc import PeerStub

BACKOFF = 0.05  # seconds before the first retry, doubled each time
PROGRESS = 64 * 1024  # bytes of a model that must arrive within each deadline, unless fewer are left
MESSAGE = 4 * 2**20  # largest single message accepted; answers and chunks are far smaller


class PeerClient:
    """One neighbour as this node sees it. Calls may come from several threads."""

    def __init__(
        self,
        name: str,
        address: str,
        identity: Identity | None,
        *,
        me: str,
        key: str | None = None,
        deadline: float = 5.0,
        transfer_deadline: float = 60.0,
        retries: int = 1,
        max_answer: int = MESSAGE,
    ) -> None:
        self.name, self.address, self.identity, self.me, self.key = name, address, identity, me, key
        self.deadline, self.transfer_deadline, self.retries = deadline, transfer_deadline, retries
        self.max_answer = max(max_answer, MESSAGE)
        self.sent = self.received = 0  # bytes of messages
        self._channel: grpc.Channel | None = None
        self._calls: Any = None  # the stub over that channel
        self._certificate: x509.Certificate | None = None
        self._lock = threading.Lock()
        self._over = False  # no more calls
        self._left = float("inf")  # seconds of answering time that are left in this decision
        self._watch = Watch()

    def allow(self, seconds: float) -> None:
        """From now on the neighbour has so much time for all its answers together; a call that exceeds it fails."""
        self._left = seconds

    def give_up(self) -> None:
        """End every call under way, and make no more."""
        self._over = True
        self.close()

    # Calls --------------------------------------------------------------------------------------------------------

    def describe(self) -> wire.Description:
        """What the neighbour publishes."""
        found: wire.Description = self._unary("Describe", wire.DescribeRequest())
        return found

    def health(self) -> wire.HealthReport:
        """Whether the neighbour is there."""
        found: wire.HealthReport = self._unary("Health", wire.HealthRequest())
        return found

    def probe(self, form: Scoring, inputs: npt.NDArray[Any], digest: bytes) -> bytes:
        """Its raw answers to inputs, from exactly the snapshot `digest`."""
        little = np.ascontiguousarray(inputs, dtype=inputs.dtype.newbyteorder("<"))
        request = wire.ProbeRequest(kind=form.wire, count=len(inputs), inputs=little.tobytes(), digest=digest)
        answer: wire.ProbeAnswer = self._unary("Probe", request)
        if answer.digest != digest:
            raise Fault("wrong-digest", "the answer came from another snapshot than the one asked for")
        return bytes(answer.answers)

    def read(self, what: str, digest: bytes, most: int) -> npt.NDArray[np.float32]:
        """A small value that it publishes, of at most `most` numbers."""
        reading: wire.Reading = self._unary("Read", wire.ReadRequest(what=what, digest=digest))
        return decode_values(what, reading.values, most)

    def pull(self, digest: bytes, most: int, *, full: bool = False) -> bytes:
        """The shared block (or the full model) of a snapshot as safetensors, at most `most` bytes."""
        request = wire.PullRequest(digest=digest)
        method = "Inspect" if full else "Pull"
        end = time.monotonic() + self.transfer_deadline

        def attempt(remaining: float) -> bytes:
            stream = getattr(self._stub(remaining), method)(request, timeout=remaining, metadata=self._metadata())
            try:
                return self._gather(stream, most)
            finally:
                stream.cancel()  # frees the neighbour's place at once if something was wrong

        content: bytes = self._attempts(attempt, end)
        self._count(request.ByteSize(), len(content))
        return content

    def recheck(self) -> None:
        """Check the certificate in use again: it may have been revoked or expired in the meantime."""
        certificate, identity = self._certificate, self.identity
        if certificate is not None and identity is not None:
            try:
                identity.judge(certificate, {self.name: self.key})
            except Refused as refused:
                self.close()
                raise Fault(f"refused-{refused.kind}", str(refused)) from None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            channel, self._channel, self._certificate = self._channel, None, None
        if channel is not None:
            channel.close()

    # Making a call -------------------------------------------------------------------------------------------

    def _unary(self, method: str, request: Any) -> Any:
        def attempt(remaining: float) -> Any:
            stub = self._stub(remaining)
            return getattr(stub, method)(request, timeout=remaining, metadata=self._metadata())

        began = time.monotonic()
        if self._left <= 0:
            raise Fault("too-slow", "it has used up its time in this decision")
        try:
            answer = self._attempts(attempt, began + min(self.deadline, self._left))
        finally:
            self._left -= time.monotonic() - began
        self._count(request.ByteSize(), answer.ByteSize())
        return answer

    def _attempts(self, attempt: Callable[[float], Any], end: float) -> Any:
        """Try until it works, the neighbour refuses, or time is up."""
        for number in range(self.retries + 1):
            if self._over:
                raise Fault("no-answer", "this node is stopping")
            pause = BACKOFF * 2**number
            try:
                return attempt(max(end - time.monotonic(), 0.001))
            except (OSError, ssl.SSLError) as error:
                fault = Fault("no-answer", f"cannot connect: {error}")
            except grpc.RpcError as error:
                fault = _fault(error)
                if fault.kind == "no-answer":
                    self.close()  # the next attempt connects and checks again
                pause = max(pause, _retry_after(error))
            if fault.kind not in ("no-answer", "over-limit") or number == self.retries:
                raise fault
            if time.monotonic() + pause >= end:
                raise fault
            time.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _gather(self, stream: Any, most: int) -> bytes:
        """All chunks of a stream that keeps coming; it ends as soon as too little arrives within a deadline."""
        parts: list[bytes] = []
        size = total = due = 0
        stalled = self._watch.later(self.deadline, stream.cancel)
        try:
            for chunk in stream:
                total, size = self._check_chunk(chunk, size, total, most, first=not parts)
                parts.append(chunk.data)
                if size - due >= PROGRESS:
                    stalled.call_off()
                    stalled, due = self._watch.later(self.deadline, stream.cancel), size
        except grpc.RpcError:
            if stalled.fired:
                kind, little = ("too-slow", f"less than {PROGRESS} bytes") if parts else ("no-answer", "nothing")
                raise Fault(kind, f"{little} of its model in {self.deadline:g} s") from None
            raise
        finally:
            stalled.call_off()
        if size != total or not parts:
            raise Fault("truncated", f"it sent {size} of {total} bytes")
        return b"".join(parts)

    @staticmethod
    def _check_chunk(chunk: wire.Chunk, size: int, total: int, most: int, *, first: bool) -> tuple[int, int]:
        """The bytes announced and the bytes so far, with this chunk."""
        if first:
            total = chunk.total
            if not 0 < total <= most:
                raise Fault("oversized", f"it announces {total} bytes, expected 1 to {most}")
        if not chunk.data:
            raise Fault("malformed", "it sent an empty chunk")
        if size + len(chunk.data) > total:
            raise Fault("endless", f"it sent more than the {total} bytes it announced")
        return total, size + len(chunk.data)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        version = (PROTOCOL_HEADER, str(PROTOCOL))
        return (version,) if self.identity is not None else (version, (NAME_HEADER, self.me))

    def _count(self, sent: int, received: int) -> None:
        with self._lock:
            self.sent += sent
            self.received += received

    # Connecting ----------------------------------------------------------------------------------------------

    def _stub(self, remaining: float) -> Any:
        with self._lock:
            if self._channel is None:
                self._channel = self._connect(min(remaining, self.deadline))
                self._calls = PeerStub(self._channel)
            return self._calls

    def _connect(self, remaining: float) -> grpc.Channel:
        options = [
            *WINDOW,
            *KEEPALIVE,
            ("grpc.max_receive_message_length", self.max_answer),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.enable_retries", 0),
        ]
        if self.identity is None:
            return grpc.insecure_channel(self.address, options)
        certificate = self._introduce(self.identity, remaining)
        self._certificate = certificate
        trusted = certificate.public_bytes(Encoding.PEM)
        credentials = grpc.ssl_channel_credentials(trusted, self.identity.key, self.identity.certificate)
        return grpc.secure_channel(self.address, credentials, [*options, ("grpc.ssl_target_name_override", self.name)])

    def _introduce(self, identity: Identity, remaining: float) -> x509.Certificate:
        """The neighbour's certificate, checked; TLS itself has verified that the neighbour holds its key."""
        try:
            with (
                socket.create_connection(host_and_port(self.address), timeout=remaining) as plain,
                identity.tls().wrap_socket(plain, server_hostname=self.name) as secure,
            ):
                found = secure.getpeercert(binary_form=True)
        except ssl.SSLCertVerificationError as error:
            raise Fault("refused-untrusted", f"its certificate does not verify: {error.verify_message}") from None
        certificate = x509.load_der_x509_certificate(found or b"")
        try:
            identity.judge(certificate, {self.name: self.key})
        except Refused as refused:
            raise Fault(f"refused-{refused.kind}", str(refused)) from None
        return certificate


def ask_health(config: NodeConfig, service: str) -> str:
    """What a node on this machine says of itself: serving, not serving, or why it cannot be asked."""
    identity = Identity.load(Path(config.identity))
    host, port = host_and_port(config.listen)
    address = f"127.0.0.1:{port}" if host in ("0.0.0.0", "::") else config.listen
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", config.name), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(address, credentials, options) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", wire.HealthCheck.SerializeToString, wire.HealthStatus.FromString
        )
        try:
            status = check(wire.HealthCheck(service=service), timeout=config.exchange.deadline).status
        except grpc.RpcError as error:
            hint = ": is the node running?" if error.code() == grpc.StatusCode.UNAVAILABLE else ""
            return f"no answer from {address}: {error.code().name}{hint}"
    return "serving" if status == 1 else "not serving"


def _fault(error: grpc.RpcError) -> Fault:
    """A gRPC status as a fault."""
    code, details = error.code(), (error.details() or "")[:300]
    kinds = {
        grpc.StatusCode.UNAVAILABLE: "no-answer",
        grpc.StatusCode.DEADLINE_EXCEEDED: "no-answer",
        grpc.StatusCode.CANCELLED: "no-answer",
        grpc.StatusCode.NOT_FOUND: "gone",
        grpc.StatusCode.PERMISSION_DENIED: "refused",
        grpc.StatusCode.UNAUTHENTICATED: "refused",
        grpc.StatusCode.FAILED_PRECONDITION: "refused",
        grpc.StatusCode.RESOURCE_EXHAUSTED: "over-limit",
    }
    kind = kinds.get(code, "peer-error")
    if kind == "over-limit" and "larger than max" in details:
        kind = "oversized"
    if "deserializing" in details:
        kind = "malformed"
    return Fault(kind, f"{code.name}: {details}")


def _retry_after(error: grpc.RpcError) -> float:
    with suppress(TypeError, ValueError):
        for key, value in error.trailing_metadata() or ():
            if key == "retry-after-ms":
                return min(max(int(value), 0), 3_600_000) / 1000
    return 0.0
