"""The protocol's calls, made from its description; `node.proto` is the one place that lists them."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from .node_pb2 import DESCRIPTOR

_SERVICE = DESCRIPTOR.services_by_name["Peer"]
_MESSAGES = {m.name: (GetMessageClass(m.input_type), GetMessageClass(m.output_type)) for m in _SERVICE.methods}


class PeerStub:
    """A peer as seen by its callers: an attribute for every call."""

    def __init__(self, channel: grpc.Channel) -> None:
        for call in _SERVICE.methods:
            asked, answered = _MESSAGES[call.name]
            kind = channel.unary_stream if call.server_streaming else channel.unary_unary
            path = f"/{_SERVICE.full_name}/{call.name}"
            setattr(self, call.name, kind(path, asked.SerializeToString, answered.FromString))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"node.proto has no call {name!r}")


def handlers_of(servicer: object) -> dict[str, Any]:
    """How `servicer` answers the calls that it has a method for."""
    handlers = {}
    for call in _SERVICE.methods:
        if answer := getattr(servicer, call.name, None):
            asked, answered = _MESSAGES[call.name]
            kind = (grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler)[call.server_streaming]
            handlers[call.name] = kind(answer, asked.FromString, answered.SerializeToString)
    return handlers


def serve_calls(servicer: object, server: grpc.Server) -> None:
    """Let `servicer` answer what it can; gRPC refuses other calls as not implemented."""
    handlers = handlers_of(servicer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))
