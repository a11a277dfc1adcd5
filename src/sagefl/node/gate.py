"""The entrance to a node's service: who is calling, how much they may ask, and whether it is a message at all.

Every call passes through here before anything is read: the certificate is checked, the caller takes one of its own
places and pays for the call, says which protocol it speaks, and only then is its message waited for, for some seconds.
So a caller who has no business here is gone at once, and one that sends nothing holds nobody's place but its own. To
see a call before its message, every method is served as one with a stream of requests, of which the first is taken: on
the wire the two are the same. Whatever goes wrong becomes a status for the caller and an event here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from .doors import Doors
from .identity import Identity, Refused
from .journal import Journal
from .limits import Limits, Meter, OverLimit
from .verify import PROTOCOL_HEADER, other_protocol
from .watch import Watch

NAME_HEADER = "sagefl-name"  # who is calling, if there is no TLS (loopback only)


class Refusal(Exception):  # noqa: N818 (what the caller gets, not an error of ours)
    """End a call with a status."""

    def __init__(self, code: grpc.StatusCode, why: str, kind: str = "bad-request") -> None:
        super().__init__(why)
        self.code, self.kind = code, kind


class HalfOpen(Exception):  # noqa: N818 (a verdict, not an error)
    """A call that never came to its message: given up here after some seconds, or by its caller (0)."""

    def __init__(self, after: float) -> None:
        super().__init__(f"no message within {after:g} s of the call" if after else "the caller hung up")
        self.after = after


def refuse(code: grpc.StatusCode, why: str, kind: str = "bad-request") -> NoReturn:
    """End the current call with a status; `kind` is how the event is counted."""
    raise Refusal(code, why, kind)


@dataclass(frozen=True)
class Caller:
    """One admitted call: who is calling, and the caller's meter."""

    peer: str
    meter: Meter
    context: Any


class Gate(grpc.ServerInterceptor):  # type: ignore[misc]
    """Admits neighbours, and turns away everybody else with a clear status and an event."""

    def __init__(
        self, identity: Identity | None, neighbours: dict[str, str | None], limits: Limits, journal: Journal
    ) -> None:
        self.identity, self.limits, self.journal = identity, limits, journal
        self.meters = {} if identity is None else {identity.name: Meter(limits)}
        self.admit(neighbours)
        self.watch = Watch()
        self.doors = Doors(limits, journal, self.watch)
        self.traffic: Callable[[str, str, int, int], None] = lambda peer, method, received, sent: None

    def admit(self, neighbours: dict[str, str | None]) -> None:
        """From now on these may call, each with its pinned key, and nobody else."""
        for name in neighbours:
            self.meters.setdefault(name, Meter(self.limits))  # one who comes back has used up what it has used up
        self.neighbours = dict(neighbours)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Wrap the handler of a call; unknown methods have none."""
        handler = continuation(details)
        if handler is None:
            return None
        method = details.method.rpartition("/")[2]
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                lambda messages, context: self._stream(method, handler, messages, context)
            )
        return grpc.stream_unary_rpc_method_handler(
            lambda messages, context: self._unary(method, handler, messages, context)
        )

    def caller(self, context: Any, method: str = "") -> str:
        """The neighbour that is calling, according to the certificate that TLS has verified.

        With this node's own certificate its operator may ask for its health, and for nothing else.
        """
        if self.identity is None:
            name = dict(context.invocation_metadata()).get(NAME_HEADER, "")
            if name not in self.neighbours:
                raise Refused("not-a-neighbour", f"{name!r} is no neighbour in this node's config")
            return str(name)
        pems = context.auth_context().get("x509_pem_cert")
        if not pems:
            raise Refused("no-certificate", "a certificate of this federation is required")
        allowed = {**self.neighbours, self.identity.name: None} if method == "Check" else self.neighbours
        return self.identity.judge_pem(pems[0], allowed)

    @contextmanager
    def _admitted(self, method: str, messages: Iterator[bytes], context: Any) -> Iterator[tuple[Caller, bytes]]:
        """A call whose caller is a neighbour within its limits, and its message; whatever fails ends the call."""
        try:
            peer = self.caller(context, method)
            self.doors.enter(peer, context.peer())
            meter = self.meters[peer]
            with meter.call():
                version = dict(context.invocation_metadata()).get(PROTOCOL_HEADER, 2)
                if (why := other_protocol(version)) is not None:
                    refuse(grpc.StatusCode.FAILED_PRECONDITION, f"{peer} {why}", "other-protocol")
                raw = self._message(messages, context)
                meter.spend(len(raw))
                yield Caller(peer, meter, context), raw
        except Exception as error:
            self._turn_away(method, context, error)

    def _message(self, messages: Iterator[bytes], context: Any) -> bytes:
        with self.watch.limit(self.limits.open_seconds, context.cancel) as late:
            try:
                return next(messages)
            except StopIteration:
                refuse(grpc.StatusCode.INVALID_ARGUMENT, "a call carries exactly one message, this one has none")
            except grpc.RpcError:
                raise HalfOpen(self.limits.open_seconds if late.fired else 0.0) from None

    def _unary(self, method: str, handler: Any, messages: Iterator[bytes], context: Any) -> bytes:
        with self._admitted(method, messages, context) as (call, raw):
            answer: bytes = handler.response_serializer(
                handler.unary_unary(_parsed(handler.request_deserializer, raw), call)
            )
            call.meter.spend(len(answer))
            self.traffic(call.peer, method, len(raw), len(answer))
        return answer

    def _stream(self, method: str, handler: Any, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        sent = 0
        with self._admitted(method, messages, context) as (call, raw):
            request = _parsed(handler.request_deserializer, raw)
            with self.watch.limit(self.limits.stream_seconds, context.cancel):  # a stalled reader holds a thread
                for part in handler.unary_stream(request, call):
                    message: bytes = handler.response_serializer(part)
                    sent += len(message)
                    yield message
            self.traffic(call.peer, method, len(raw), sent)

    def _turn_away(self, method: str, context: Any, error: Exception) -> NoReturn:
        """The status and the event for whatever ended a call; never returns."""
        who = _who(context)
        if isinstance(error, Refused):
            self.journal.event(f"refused-{error.kind}", peer=who, method=method, why=str(error))
            self.doors.hang_up(context.peer())
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        elif isinstance(error, OverLimit):
            self.journal.event("over-limit", peer=who, method=method, why=str(error))
            context.set_trailing_metadata((("retry-after-ms", str(int(error.after * 1000) + 1)),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        elif isinstance(error, HalfOpen):
            if error.after:
                self.journal.event("half-open", peer=who, method=method, why=str(error))
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        elif isinstance(error, Refusal):
            if error.code != grpc.StatusCode.NOT_FOUND:  # an old snapshot is nobody's fault
                self.journal.event(error.kind, peer=who, method=method, why=str(error))
            context.abort(error.code, str(error))
        else:
            self.journal.event("internal-error", peer=who, method=method, why=f"{type(error).__name__}: {error}")
            context.abort(grpc.StatusCode.INTERNAL, "internal error; this node's operator finds it in its log")
        raise AssertionError("abort raises")


def _parsed(parse: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return parse(raw)
    except DecodeError as error:
        refuse(grpc.StatusCode.INVALID_ARGUMENT, f"not a message of this protocol: {error}")


def _who(context: Any) -> str:
    names = context.auth_context().get("x509_subject_alternative_name") or ()
    name = b",".join(names).decode(errors="replace") or dict(context.invocation_metadata()).get(NAME_HEADER, "")
    return str(name)[:64] or "unknown"
