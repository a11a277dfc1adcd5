"""The keeper: the one process of a federation that may sign. It lets in who has a ticket and tells members what is new.

HTTPS with JSON, four questions of members and one of newcomers. Members show their certificates, which must be among
those signed here for a name on the roster; newcomers show a ticket. No data, answers or models ever pass through here,
and nodes go on without it: while it is away nobody joins, and that is all.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509

from ..signals import stoppable
from .config import host_and_port, typed_address
from .errors import NodeError
from .identity import NOT_X509, names_in
from .journal import Journal
from .limits import Bucket, OverLimit
from .registry import MINUTES, Registry
from .roster import KEEPER
from .watch import Watch

LARGEST = 16 * 1024  # bytes of a question
SECONDS = 10.0  # for a connection, from its first byte to its last
AT_ONCE, PER_HOST = 64, 16  # connections
QUESTIONS = 600  # of one member, a minute
INVITATIONS = 24  # of one member, a day
Route = Callable[[dict[str, Any], x509.Certificate | None], dict[str, Any]]


class Keeper:
    """Answers questions about one federation; `invites`: members may invite, too."""

    def __init__(self, registry: Registry, journal: Journal, *, invites: bool = False) -> None:
        self.registry, self.journal, self.invites = registry, journal, invites
        self._lock = threading.Lock()
        self._meters: dict[tuple[str, str], Bucket] = {}
        self._routes: dict[str, Route] = {
            "/v1/join": self._join,
            "/v1/news": lambda asked, shown: self.registry.news(self._member(shown), _text(asked, "address")),
            "/v1/renew": self._renew,
            "/v1/invite": self._invite,
            "/v1/leave": self._leave,
        }

    def answer(self, path: str, raw: bytes, certificate: bytes | None, host: str) -> tuple[int, dict[str, Any]]:
        """Status and answer to one question; `certificate` is the caller's, verified by TLS, if it showed one."""
        route = self._routes.get(path)
        if route is None:
            return 404, {"error": f"no such question; there are {', '.join(self._routes)}"}
        try:
            asked = json.loads(raw)
            shown = None if not certificate else x509.load_der_x509_certificate(certificate)
            return 200, route(asked if isinstance(asked, dict) else {}, shown)
        except NodeError as error:
            self.journal.event("refused", peer=host, method=path, why=str(error))
            return 403, {"error": str(error)}
        except OverLimit as error:
            self.journal.event("over-limit", peer=host, method=path, why=str(error))
            return 429, {"error": str(error)}
        except (RecursionError, *NOT_X509) as error:
            self.journal.event("bad-request", peer=host, method=path, why=str(error)[:200])
            return 400, {"error": f"this question cannot be understood: {str(error)[:200]}"}

    # Questions -----------------------------------------------------------------------------------------------------

    def _join(self, asked: dict[str, Any], shown: x509.Certificate | None) -> dict[str, Any]:
        found = self.registry.join(_text(asked, "secret"), _text(asked, "request"), _text(asked, "address"))
        self.journal.event("joined", peer=found["name"], number=found["number"], neighbours=list(found["neighbours"]))
        return found

    def _renew(self, asked: dict[str, Any], shown: x509.Certificate | None) -> dict[str, Any]:
        name = self._member(shown)
        assert shown is not None
        found = self.registry.renew(name, shown)
        if found.pop("new"):
            self.journal.event("renewed", peer=name)
        return found

    def _invite(self, asked: dict[str, Any], shown: x509.Certificate | None) -> dict[str, Any]:
        by, name = self._member(shown), _text(asked, "name")
        if not self.invites:
            raise NodeError("members do not invite here: ask the keeper (sagefl node keep --members-invite allows it)")
        self._meter(by, INVITATIONS, 24 * 3600, "invitations a day")
        ticket = self.registry.invite(name, float(asked.get("minutes", MINUTES)))
        self.journal.event("invited", peer=name, by=by)
        return {"ticket": str(ticket)}

    def _leave(self, asked: dict[str, Any], shown: x509.Certificate | None) -> dict[str, Any]:
        name = self._member(shown)
        self.registry.dismiss(name)
        self.journal.event("left", peer=name)
        return {}

    def _member(self, shown: x509.Certificate | None) -> str:
        """The member who asks."""
        if shown is None:
            raise NodeError("only members may ask this: show a certificate of this federation")
        name = ", ".join(names_in(shown))
        self._meter(name, QUESTIONS, 60, "questions a minute")  # TLS has verified the name
        with self.registry.open() as roster:
            member = roster.members.get(name)
        if member is None or shown.serial_number not in member.serials:
            raise NodeError(f"{name or 'a certificate without a name'} is no member of this federation, or no longer")
        return name

    def _meter(self, name: str, most: int, seconds: float, what: str) -> None:
        """One more of something that a name may do so often."""
        with self._lock:
            bucket = self._meters.setdefault((name, what), Bucket(most / seconds, most))
            if (after := bucket.wait(1)) > 0:
                raise OverLimit(f"{most} {what}", after)
            bucket.take(1)


def _text(asked: dict[str, Any], what: str) -> str:
    found = asked.get(what)
    if not isinstance(found, str) or len(found) > LARGEST:
        raise ValueError(f"{what} is missing")
    return found


class KeeperServer(ThreadingHTTPServer):
    """The keeper on a socket: TLS in the connection's own thread, and a bound on everything a caller could drag out."""

    daemon_threads = True
    request_queue_size = AT_ONCE

    def __init__(self, keeper: Keeper, listen: str) -> None:
        self.keeper, self.watch = keeper, Watch()
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()
        home = keeper.registry.folder
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._tls.load_cert_chain(home / KEEPER / "node.pem", home / KEEPER / "node.key")
        self._tls.load_verify_locations(home / KEEPER / "ca.pem")
        self._tls.verify_mode = ssl.CERT_OPTIONAL  # newcomers have none yet
        host, port = host_and_port(listen)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Question)
        except OSError as error:
            raise NodeError(f"cannot listen on {listen}: {error.strerror}; is another keeper running there?") from None

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for another connection from there."""
        host = str(client_address[0])
        with self._lock:
            if self._open[host] >= PER_HOST or self._open.total() >= AT_ONCE:
                self.keeper.journal.event("over-limit", peer=host, why=f"{self._open[host]} connections at once")
                return False
            self._open[host] += 1
            return True

    def finish_request(self, request: Any, client_address: Any) -> None:
        """One connection, one question."""
        try:
            request.settimeout(SECONDS)
            secure = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            with secure, self.watch.limit(SECONDS, lambda: socket.socket.shutdown(secure, socket.SHUT_RDWR)):
                secure.do_handshake()
                _Question(secure, client_address, self)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self.keeper.journal.event("refused-handshake", peer=str(client_address[0]), why=str(error)[:200])
        finally:
            with self._lock:
                self._open[str(client_address[0])] -= 1
                self._open += Counter()  # forgets hosts without connections

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A question that failed on our side is an event; the keeper goes on."""
        self.keeper.journal.event("internal-error", peer=str(client_address[0]))

    def stop(self) -> None:
        """Answer nobody any more; called from another thread than `serve_forever`."""
        self.shutdown()
        self.server_close()
        self.watch.close()


class _Question(BaseHTTPRequestHandler):
    timeout = SECONDS
    server: KeeperServer

    def do_POST(self) -> None:
        """One question and its answer."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST:
            status, answer = 413, {"error": f"a question has at most {LARGEST} bytes, and says how many"}
        else:
            shown = self.connection.getpeercert(binary_form=True)
            raw = self.rfile.read(int(length))
            status, answer = self.server.keeper.answer(self.path, raw, shown, str(self.client_address[0]))
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Events are written down, requests are not."""


def run_keeper(folder: Path, listen: str, address: str | None, degree: int | None, *, invites: bool) -> None:
    """Serve a federation's keeper until it is stopped."""
    registry = Registry.create(folder, address or typed_address(listen), degree)
    journal = Journal(folder / "events.log", sys.stdout)
    server = KeeperServer(Keeper(registry, journal, invites=invites), listen)
    over = threading.Event()
    threading.Thread(target=server.serve_forever, name="keeper", daemon=True).start()
    journal.event("keeping", address=address or listen, pid=os.getpid())
    with stoppable(over.set):
        over.wait()
    server.stop()
    journal.flush()
