"""The local page: loopback only, a secret in the address, read-only.

Every request must have the token as the first part of its path and a Host header that names this machine (against DNS
rebinding). Files are served from a fixed list and runs are looked up by id, so no part of a request becomes a path.

The page polls: if nothing has changed the answer is 304, otherwise the page fetches the rounds it has not seen yet. The
token is kept between starts, so that an open page finds the server again after a restart.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import SageflError
from . import tables
from .page import ASSETS, CSP, asset, live_page
from .plain import text
from .scouting import listed, offers, scouted
from .shelf import READING_ERRORS, Shelf
from .stopping import MapSettings, play
from .unfolding import unfold
from .world import world

DEFAULT_PORT = 8427
LOOPBACK = "127.0.0.1"
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class _Guard:
    """Refuses requests without the token or a local Host, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, answer)

    def _refusal(self, scope: Scope) -> Response | None:
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if host.rsplit(":", 1)[0] not in ("127.0.0.1", "localhost", "[::1]"):
            return PlainTextResponse("this page answers to 127.0.0.1 and localhost only", 421)
        given = scope["path"].split("/")[1].encode("utf-8", "replace")
        if not secrets.compare_digest(given, self.token.encode()):
            return PlainTextResponse("the address lacks its token: open the one that `sagefl view` printed", 403)
        return None


def application(shelf: Shelf, token: str) -> Starlette:
    """The page and its data as an ASGI application."""
    base = f"/{token}"
    routes = [
        Route(f"{base}/", _index),
        Route(f"{base}/static/{{name}}", _static),
        Route(f"{base}/api/state", _answered(lambda q: _state(shelf))),
        Route(f"{base}/api/rounds", _answered(lambda q: tables.rounds(shelf.run(q["run"]), _since(q)))),
        Route(f"{base}/api/decisions", _answered(lambda q: tables.decisions(shelf.run(q["run"]), _since(q)))),
        Route(f"{base}/api/clients", _answered(lambda q: tables.clients(shelf.run(q["run"])))),
        Route(f"{base}/api/world", _answered(lambda q: world(shelf.run(q["run"])))),
        Route(f"{base}/api/decision", _answered(lambda q: _decision(shelf, q))),
        Route(f"{base}/api/timeline", _answered(lambda q: tables.timeline(shelf.run(q["run"]), _number(q, "round")))),
        Route(f"{base}/api/scout", _answered(lambda q: scouted(shelf, q["id"]))),
        Route(f"{base}/api/map", _answered(lambda q: play(MapSettings.parse(q)))),
    ]
    middleware = [Middleware(_Guard, token=token), Middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)]
    return Starlette(routes=routes, middleware=middleware)


def _state(shelf: Shelf) -> dict[str, Any]:
    standings = shelf.standings()
    return {"runs": standings, "scouts": listed(offers(shelf, standings))}


def _decision(shelf: Shelf, query: dict[str, str]) -> dict[str, Any]:
    return unfold(shelf.run(query["run"]), _number(query, "round"), _number(query, "client"))


def _since(query: dict[str, str]) -> int:
    return _number(query, "since") if "since" in query else 0


def _number(query: dict[str, str], name: str) -> int:
    try:
        return int(query[name])
    except ValueError:
        raise SageflError(f"{name} must be a whole number, got {query[name]!r}") from None


def _answered(make: Callable[[dict[str, str]], Any]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that computes in a thread and answers with JSON and an ETag; errors are one sentence."""

    async def endpoint(request: Request) -> Response:
        try:
            body = text(await run_in_threadpool(make, dict(request.query_params)))
        except KeyError as error:
            return _problem(f"the query lacks {error}", 400)
        except READING_ERRORS as error:
            return _problem(str(error), 404)
        tag = f'W/"{hashlib.sha256(body.encode()).hexdigest()[:20]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return endpoint


def _problem(message: str, status: int) -> Response:
    return Response(text({"error": message}), status, {"cache-control": "no-store"}, "application/json")


async def _index(request: Request) -> Response:
    return Response(live_page(), media_type="text/html", headers={"cache-control": "no-cache"})


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        return PlainTextResponse("no such file", 404)
    kind = TYPES[Path(name).suffix]
    return Response(asset(name), media_type=f"{kind}; charset=utf-8", headers={"cache-control": "no-cache"})


# Starting -----------------------------------------------------------------------------------------------------------


def kept_token() -> str:
    """This user's secret, made at the first start and readable by nobody else; a new one if it cannot be stored."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "sagefl" / "view-token"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(24))
        held = path.read_text(encoding="ascii").strip()
        private = path.stat().st_mode & 0o077 == 0
    except (OSError, ValueError):
        return secrets.token_urlsafe(24)
    usable = private and len(held) >= 24 and all(c.isalnum() or c in "-_" for c in held)
    return held if usable else secrets.token_urlsafe(24)


def listen(port: int | None) -> socket.socket:
    """A loopback socket on the given port; by default on the usual port or, if that is taken, on any."""
    for candidate in (port,) if port is not None else (DEFAULT_PORT, 0):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((LOOPBACK, candidate))
        except OSError as error:
            made.close()
            if port is not None:
                raise SageflError(f"port {port} cannot be used: {error.strerror}; choose another --port") from None
            continue
        made.listen(128)
        return made
    raise SageflError("no loopback port is free")


def serve(shelf: Shelf, token: str, sock: socket.socket) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(
        application(shelf, token),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[sock])
