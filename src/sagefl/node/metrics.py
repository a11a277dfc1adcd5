"""Metrics for Prometheus: rounds, accuracy, events, traffic, privacy. On loopback unless configured otherwise."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from ..runs.columns import shown
from .config import host_and_port
from .errors import NodeError


class Metrics:
    """One node's metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._round = Gauge("sagefl_round", "Rounds trained", registry=self.registry)
        self._value = Gauge("sagefl_value", "Latest value by name", ["name"], registry=self.registry)
        self._neighbours = Gauge("sagefl_active_neighbours", "Neighbours in the last round", registry=self.registry)
        self._events = Counter("sagefl_events", "Events by kind and peer", ["kind", "peer"], registry=self.registry)
        self._calls = Counter("sagefl_calls", "Calls answered", ["method", "peer"], registry=self.registry)
        self._bytes = Counter("sagefl_bytes", "Bytes of messages", ["direction", "peer"], registry=self.registry)
        self._seconds = Counter(
            "sagefl_phase_seconds", "Seconds by phase of a round", ["phase"], registry=self.registry
        )
        self._epsilon = Gauge("sagefl_epsilon", "Privacy loss by basic composition", ["over"], registry=self.registry)
        self._days = Gauge("sagefl_certificate_days", "Days until the certificate ends", registry=self.registry)
        self._spent = Gauge(
            "sagefl_privacy_spent", "Share of the privacy budget used up", ["peer"], registry=self.registry
        )
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self.port = 0

    def serve(self, address: str) -> None:
        """Open the endpoint."""
        host, port = host_and_port(address)
        try:
            server, thread = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise NodeError(
                f"cannot serve metrics on {address}: {error.strerror}; choose another metrics.address"
            ) from None
        self._server = (server, thread)
        self.port = int(server.server_port)

    def close(self) -> None:
        """Close the endpoint."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join(2)
            self._server = None

    def event(self, kind: str, peer: str) -> None:
        """Count an event."""
        self._events.labels(kind, peer).inc()

    def answered(self, peer: str, method: str, received: int, sent: int) -> None:
        """Count an answered call and its bytes."""
        self._calls.labels(method, peer).inc()
        self._bytes.labels("in", peer).inc(received)
        self._bytes.labels("out", peer).inc(sent)

    def round(self, number: int, active: int, record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
        """Publish the values of a finished round."""
        self._round.set(number)
        self._neighbours.set(active)
        for column in shown("node"):
            if record.get(column.name) is not None:
                self._value.labels(column.name).set(record[column.name])
        for phase, spent in seconds.items():
            self._seconds.labels(phase).inc(max(spent, 0.0))

    def privacy(self, report: Mapping[str, float]) -> None:
        """Publish the privacy account."""
        for over, epsilon in report.items():
            self._epsilon.labels(over).set(epsilon)

    def spent(self, peer: str, epsilon: float, budget: float) -> None:
        """Publish how much of its budget a neighbour has used up."""
        self._spent.labels(peer).set(epsilon / budget)

    def certificate(self, days: float) -> None:
        """Publish how long this node's certificate is still valid."""
        self._days.set(days)
