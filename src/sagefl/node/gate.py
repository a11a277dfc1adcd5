"""The entrance to a node's service: who is calling, how much they may ask, and whether it is a message at all.

Every call passes through here before anything is parsed: the certificate is checked, the caller's buckets are charged,
and only then are the bytes read as a message. Whatever goes wrong becomes a status for the caller and an event here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from .identity import Identity, Refused
from .journal import Journal
from .limits import Limits, Meter, OverLimit

__all__ = ["Call", "Gate", "Refusal", "refuse"]

NAME_HEADER = "sagefl-name"  # who is calling, if there is no TLS (loopback only)


class Refusal(Exception):  # noqa: N818 (what the caller gets, not an error of ours)
    """End a call with a status."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def refuse(code: grpc.StatusCode, why: str) -> NoReturn:
    """End the current call with a status."""
    raise Refusal(code, why)


@dataclass(frozen=True)
class Call:
    """One admitted call: who is calling, and the caller's meter."""

    peer: str
    meter: Meter
    context: Any


class Gate(grpc.ServerInterceptor):  # type: ignore[misc]
    """Admits neighbours, and turns away everybody else with a clear status and an event."""

    def __init__(
        self, identity: Identity | None, neighbours: dict[str, str | None], limits: Limits, journal: Journal
    ) -> None:
        self.identity, self.neighbours, self.limits, self.journal = identity, neighbours, limits, journal
        self.meters = {name: Meter(limits) for name in neighbours}
        self.traffic: Callable[[str, str, int, int], None] = lambda peer, method, received, sent: None

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Wrap the handler of a call; unknown methods have none."""
        handler = continuation(details)
        if handler is None:
            return None
        method = details.method.rpartition("/")[2]
        parse, write = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:

            def stream(raw: bytes, context: Any) -> Iterator[bytes]:
                yield from self._stream(method, handler.unary_stream, parse, write, raw, context)

            return grpc.unary_stream_rpc_method_handler(stream)

        def unary(raw: bytes, context: Any) -> bytes:
            return self._unary(method, handler.unary_unary, parse, write, raw, context)

        return grpc.unary_unary_rpc_method_handler(unary)

    def caller(self, context: Any) -> str:
        """The neighbour that is calling, according to the certificate that TLS has verified."""
        if self.identity is None:
            name = dict(context.invocation_metadata()).get(NAME_HEADER, "")
            if name not in self.neighbours:
                raise Refused("not-a-neighbour", f"{name!r} is no neighbour in this node's config")
            return str(name)
        pems = context.auth_context().get("x509_pem_cert")
        if not pems:
            raise Refused("no-certificate", "a certificate of this federation is required")
        return self.identity.judge_pem(pems[0], self.neighbours)

    def _unary(self, method: str, behaviour: Any, parse: Any, write: Any, raw: bytes, context: Any) -> bytes:
        try:
            peer = self.caller(context)
            meter = self.meters[peer]
            with meter.call(len(raw)):
                answer: bytes = write(behaviour(_parsed(parse, raw), Call(peer, meter, context)))
                meter.spend(len(answer))
            self.traffic(peer, method, len(raw), len(answer))
            return answer
        except Exception as error:
            self._turn_away(method, context, error)

    def _stream(self, method: str, behaviour: Any, parse: Any, write: Any, raw: bytes, context: Any) -> Iterator[bytes]:
        timer = threading.Timer(self.limits.stream_seconds, context.cancel)  # a stalled reader must not hold a thread
        timer.daemon = True
        sent = 0
        try:
            peer = self.caller(context)
            meter = self.meters[peer]
            with meter.call(len(raw)):
                timer.start()
                for part in behaviour(_parsed(parse, raw), Call(peer, meter, context)):
                    message: bytes = write(part)
                    sent += len(message)
                    yield message
            self.traffic(peer, method, len(raw), sent)
        except Exception as error:
            self._turn_away(method, context, error)
        finally:
            timer.cancel()

    def _turn_away(self, method: str, context: Any, error: Exception) -> NoReturn:
        """The status and the event for whatever ended a call; never returns."""
        who = _who(context)
        if isinstance(error, Refused):
            self.journal.event(f"refused-{error.kind}", peer=who, method=method, why=str(error))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        elif isinstance(error, OverLimit):
            self.journal.event("over-limit", peer=who, method=method, why=str(error))
            context.set_trailing_metadata((("retry-after-ms", str(int(error.after * 1000) + 1)),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        elif isinstance(error, Refusal):
            if error.code != grpc.StatusCode.NOT_FOUND:  # an old snapshot is nobody's fault
                self.journal.event("bad-request", peer=who, method=method, why=str(error))
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
