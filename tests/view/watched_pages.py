"""A page that is served, and one that is watched in a browser."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from sagefl.view.server import application, listen
from sagefl.view.shelf import Shelf

TOKEN = "a-token-of-the-tests-0123456789"


class Served:
    """The page on a loopback port, served from a thread; it can go away and come back."""

    def __init__(self, *places: Path) -> None:
        self.places = places
        self.port: int | None = None
        self.start()

    def start(self) -> None:
        sock: socket.socket = listen(self.port or 0)
        self.port = sock.getsockname()[1]
        config = uvicorn.Config(application(Shelf(self.places), TOKEN), log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._sock = sock
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [sock]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._sock.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"


class Watched:
    """A page of the browser that keeps what went wrong on it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        settings = {"viewport": {"width": 1280, "height": 900}} | options
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self._logged(m) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _logged(self, message: Any) -> None:
        self.errors.append(f"{message.text} {message.location.get('url', '')}".strip())

    def open(self, address: str) -> Any:
        self.page.goto(address)
        self.page.wait_for_selector("body[data-ready=yes]")
        return self.page

    def foreign(self) -> list[str]:
        """Requests to anywhere but this machine."""
        own = ("http://127.0.0.1:", "data:", "blob:", "file:")
        return [url for url in self.requests if not url.startswith(own)]
