"""What a node answers its neighbours, always from a published snapshot, while training continues on another row."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from ..learning.corpus import as_seen
from ..learning.layout import Layout
from ..learning.sketch import count_sketch
from ..learning.tasks import MODEL_PARTS
from ..records import record_parts, type_of
from ..selection.private import PrivateAnswers, perturbed
from ..selection.scoring import Outputs, Scoring, sent_as
from .account import KeptAccount
from .errors import NodeError
from .gate import Caller, Gate, refuse
from .identity import Identity
from .limits import KEEPALIVE, WINDOW, Limits
from .snapshots import Answering, Snapshot, Snapshots
from .verify import PROTOCOL
from .wire import node_pb2 as wire
from .wire.rpc import serve_calls

CHUNK = 256 * 1024
REMEMBERED = 65_536  # questions of one neighbour about one snapshot, to charge each only once
CONTROL = 16 * 1024  # space for the rest of a message around the inputs
HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING = 1, 2  # as that service numbers them
SPARE = 8  # threads for callers that have no place here, to tell them so
QUEUED = 1024  # calls that may wait for such a thread


@dataclass
class Published:
    """What the service needs to know about its node."""

    layout: Layout
    outputs: Outputs
    input_shape: tuple[int, ...]
    dtype: str
    limits: Limits
    snapshots: Snapshots
    threads: int  # how many answer at once; training needs some too
    inspect: bool = False
    reads: frozenset[str] = frozenset()
    private: PrivateAnswers | None = None
    account: KeptAccount | None = None
    budget: float = inf  # privacy loss towards one neighbour after which it gets no more answers
    round: int = 0
    degree: int = 0  # active neighbours in the newest round
    state: Mapping[str, Any] = field(default_factory=dict)  # what the method keeps
    closing: bool = False
    writing: bool = True  # whether the last checkpoint reached the disk

    @property
    def ready(self) -> bool:
        """Whether neighbours get answers here and nothing would be lost in a crash."""
        return not self.closing and self.writing and self.snapshots.find() is not None

    @property
    def input_bytes(self) -> int:
        """Bytes of one input."""
        return int(np.prod(self.input_shape)) * type_of(self.dtype).itemsize

    @property
    def max_message(self) -> int:
        """The size of the largest valid request."""
        return self.limits.anchors_per_request * self.input_bytes + CONTROL


class PeerService:
    """The six calls. Every caller has been admitted by the gate."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self._answering = Answering(published.threads)
        self._counted: dict[str, dict[bytes, set[bytes]]] = {}  # receiver -> snapshot -> inputs answered
        self._lock = threading.Lock()

    def Describe(self, request: wire.DescribeRequest, call: Caller) -> wire.Description:  # noqa: N802
        """What this node publishes, and its limits."""
        p = self.published
        newest = p.snapshots.find()
        private = p.private
        return wire.Description(
            layout=p.layout.digest,
            classes=p.outputs.classes,
            input=p.input_shape,
            dtype=p.dtype,
            round=p.round,
            digest=b"" if newest is None or p.closing else newest.digest,
            max_anchors=p.limits.anchors_per_request,
            max_model_bytes=p.limits.model_bytes,
            mechanism="none" if private is None else private.mechanism.mechanism,
            epsilon=0.0 if private is None else private.mechanism.epsilon,
            protocol=PROTOCOL,
        )

    def Probe(self, request: wire.ProbeRequest, call: Caller) -> wire.ProbeAnswer:  # noqa: N802
        """Answers to anchor inputs."""
        p = self.published
        form = self._form(request.kind)
        snapshot = self._snapshot(request.digest)
        inputs = self._inputs(request)
        seen = None if p.private is None else as_seen(inputs)
        if seen is not None:
            self._count(call.peer, snapshot.digest, seen)
        answers = form.answer(self._answering.ask(snapshot, inputs, form.part))
        if p.private is not None and seen is not None:
            answers = p.private.answer(answers, snapshot.digest.hex(), seen)
            form = perturbed(form, p.private.mechanism)
        return wire.ProbeAnswer(digest=snapshot.digest, answers=form.encode(answers, p.outputs))

    def Pull(self, request: wire.PullRequest, call: Caller) -> Iterator[wire.Chunk]:  # noqa: N802
        """The shared block of a snapshot."""
        yield from self._chunks(self._snapshot(request.digest).block, call)

    def Inspect(self, request: wire.PullRequest, call: Caller) -> Iterator[wire.Chunk]:  # noqa: N802
        """The whole model of a snapshot."""
        if not self.published.inspect:
            refuse(grpc.StatusCode.FAILED_PRECONDITION, "this node does not serve full models (serve.inspect = false)")
        yield from self._chunks(self._snapshot(request.digest).whole, call)

    def Read(self, request: wire.ReadRequest, call: Caller) -> wire.Reading:  # noqa: N802
        """A small published value."""
        what, p = request.what, self.published
        if what not in p.reads:
            known = ", ".join(sorted(p.reads)) or "nothing"
            refuse(grpc.StatusCode.FAILED_PRECONDITION, f"this node does not publish {what[:64]!r}, only {known}")
        values = self._reading(what, self._snapshot(request.digest))
        return wire.Reading(values=np.asarray(values, dtype="<f4").tobytes())

    def Health(self, request: wire.HealthRequest, call: Caller) -> wire.HealthReport:  # noqa: N802
        """Whether this node is there."""
        p = self.published
        return wire.HealthReport(serving=not p.closing, round=p.round, ready=p.ready)

    def Check(self, request: wire.HealthCheck, call: Caller) -> wire.HealthStatus:  # noqa: N802
        """The standard health service: "" and "live" while the process answers, "ready" while it can do its work."""
        p = self.published
        states = {"": not p.closing, "live": not p.closing, "ready": p.ready}
        if request.service not in states:
            refuse(grpc.StatusCode.NOT_FOUND, f"no service {request.service[:64]!r}; there are live and ready")
        return wire.HealthStatus(status=SERVING if states[request.service] else NOT_SERVING)

    def close(self) -> None:
        """Answer no more probes."""
        self._answering.close()

    # Pieces -------------------------------------------------------------------------------------------------------

    def _form(self, number: int) -> Scoring:
        p = self.published
        form = sent_as(number)
        if form is None:
            refuse(grpc.StatusCode.INVALID_ARGUMENT, f"unknown kind of probe {number}")
        foreign = (form.kind == "values") != (p.outputs.clip is not None) and form.part == "forward"
        if foreign or not form.size(p.outputs):
            refuse(grpc.StatusCode.FAILED_PRECONDITION, f"this node's model offers no {form.kind}")
        if not form.private and p.private is not None:
            refuse(grpc.StatusCode.FAILED_PRECONDITION, "this node answers privately: labels only")
        return form

    def _snapshot(self, digest: bytes) -> Snapshot:
        if len(digest) not in (0, 32):
            refuse(grpc.StatusCode.INVALID_ARGUMENT, f"a digest has 32 bytes, got {len(digest)}")
        found = self.published.snapshots.find(digest)
        if found is None:
            refuse(grpc.StatusCode.NOT_FOUND, "this snapshot is not, or no longer, kept here")
        return found

    def _inputs(self, request: wire.ProbeRequest) -> npt.NDArray[Any]:
        p = self.published
        if not 1 <= request.count <= p.limits.anchors_per_request:
            why = f"{request.count} anchors in one request, expected 1 to {p.limits.anchors_per_request}"
            refuse(grpc.StatusCode.INVALID_ARGUMENT, why)
        if len(request.inputs) != request.count * p.input_bytes:
            why = f"{len(request.inputs)} bytes for {request.count} inputs of {p.input_bytes}"
            refuse(grpc.StatusCode.INVALID_ARGUMENT, why)
        kind = type_of(p.dtype)
        flat = np.frombuffer(request.inputs, kind.newbyteorder("<")).astype(kind)
        parts = record_parts(kind, p.input_shape)
        floats = [flat[part.name] if part.name else flat for part in parts if part.dtype.kind == "f"]
        if not all(np.isfinite(values).all() for values in floats):
            refuse(grpc.StatusCode.INVALID_ARGUMENT, "inputs hold NaN or infinity")
        return flat.reshape(request.count, *p.input_shape)

    def _chunks(self, content: bytes, call: Caller) -> Iterator[wire.Chunk]:
        if len(content) > self.published.limits.model_bytes:
            refuse(grpc.StatusCode.FAILED_PRECONDITION, f"this model takes {len(content)} bytes, above the limit")
        call.meter.spend(len(content))
        for start in range(0, len(content), CHUNK):
            yield wire.Chunk(total=len(content) if start == 0 else 0, data=content[start : start + CHUNK])

    def _reading(self, what: str, snapshot: Snapshot) -> npt.ArrayLike:
        p = self.published
        if what in MODEL_PARTS:
            return _model_part(snapshot, what)
        if what == "degree":
            return p.degree
        if what in ("loss", "samples"):
            return snapshot.told(what)
        return np.asarray(p.state.get(what, 0.0), dtype=np.float64)

    def _count(self, receiver: str, digest: bytes, inputs: npt.NDArray[Any]) -> None:
        """Charge new answers to the privacy account; a repeated question gets the same noise and costs nothing.

        This is what protects labels: inputs that differ in the slightest get fresh noise, so only the number of
        answers bounds what a neighbour can find out.
        """
        account, snapshots = self.published.account, self.published.snapshots
        if account is None:
            return
        keys = {hashlib.blake2b(x.tobytes(), digest_size=16).digest() for x in inputs}
        with self._lock:
            books = self._counted.setdefault(receiver, {})
            for old in books.keys() - snapshots.digests() - {digest}:
                del books[old]
            known = books.setdefault(digest, set())
            new = keys - known
            spent, budget = account.spent(receiver, len(new)), self.published.budget
            if spent > budget:
                why = f"the privacy budget of {budget:g} towards {receiver} is used up: no more answers"
                refuse(grpc.StatusCode.FAILED_PRECONDITION, why, "privacy-budget")
            account.answered(receiver, len(new))
            if len(known) + len(new) <= REMEMBERED:  # beyond it a repeated question is charged again
                known |= new


class Server:
    """The gRPC server around a service: mutual TLS (or, on loopback, plaintext), message limits, a bounded pool."""

    def __init__(
        self, published: Published, gate: Gate, identity: Identity | None, listen: str, neighbours: int
    ) -> None:
        self.published = published
        self._gate, self._shown = gate, b"" if identity is None else identity.certificate
        # A thread for every place that neighbours have, so that none waits for another's; threads start when needed.
        places = published.limits.calls_at_once * max(neighbours, 1)
        self._pool = ThreadPoolExecutor(places + SPARE, thread_name_prefix="serve")
        options = [
            *WINDOW,
            ("grpc.max_receive_message_length", published.max_message),
            ("grpc.max_send_message_length", max(2 * CHUNK, published.max_message)),
            ("grpc.max_concurrent_streams", published.limits.calls_at_once),
            ("grpc.max_metadata_size", 8 * 1024),
            ("grpc.so_reuseport", 0),
            ("grpc.http2.max_ping_strikes", 3),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
            ("grpc.server_handshake_timeout_ms", 5000),
            *KEEPALIVE,
        ]
        self._server = grpc.server(
            self._pool, interceptors=(gate,), options=options, maximum_concurrent_rpcs=places + QUEUED
        )
        self._service = PeerService(published)
        serve_calls(self._service, self._server)
        self._server.add_generic_rpc_handlers((_health(self._service),))
        self.port = self._bind(identity, listen)

    def _bind(self, identity: Identity | None, listen: str) -> int:
        try:
            if identity is None:
                port = self._server.add_insecure_port(listen)
            else:
                credentials = grpc.dynamic_ssl_server_credentials(_tls(identity), lambda: self._renewed(identity), True)
                port = self._server.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise NodeError(f"cannot listen on {listen}: {error}; is another node running there?") from None
        return int(port)

    def _renewed(self, identity: Identity) -> Any:
        """Called at every handshake: what to show from now on, or None for no change."""
        identity.refresh()
        if identity.certificate == self._shown:
            return None
        self._shown = identity.certificate
        return _tls(identity)

    def start(self) -> None:
        """Start serving."""
        self._server.start()
        self._gate.doors.open(self.port)

    def stop(self, grace: float = 2.0) -> None:
        """Tell callers, let current calls finish, then close."""
        self.published.closing = True
        self._server.stop(grace).wait(grace + 1)
        self._gate.watch.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._service.close()


def _tls(identity: Identity) -> Any:
    """What the server shows, and whom it trusts."""
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.certificate)], identity.ca)


def _health(service: PeerService) -> Any:
    """`grpc.health.v1.Health`, as load balancers and orchestrators ask for it."""
    check = grpc.unary_unary_rpc_method_handler(
        service.Check, wire.HealthCheck.FromString, wire.HealthStatus.SerializeToString
    )
    return grpc.method_handlers_generic_handler(HEALTH, {"Check": check})


def _model_part(snapshot: Snapshot, what: str) -> npt.NDArray[np.float32]:
    if what == "sketch":
        return count_sketch(snapshot.row[snapshot.layout.shared])
    part = snapshot.layout.local_part(snapshot.row, last_layer=what == "last-layer")
    if part is None:
        refuse(grpc.StatusCode.FAILED_PRECONDITION, f"this node's model has no {what}: all of it is shared")
    values: npt.NDArray[np.float32] = part.numpy()
    return values
