"""A served shelf, a real browser, and runs to look at."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs the extra view: pip install 'sagefl[view]'")
pytest.importorskip("uvicorn", reason="the page needs the extra view: pip install 'sagefl[view]'")
sys.path.insert(0, str(Path(__file__).parent))

import uvicorn
from made_runs import make_run

from sagefl.view.server import application, listen
from sagefl.view.shelf import Shelf

TOKEN = "a-token-of-the-tests-0123456789"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


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


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def begin(*places: Path) -> Served:
        started.append(Served(*places))
        return started[-1]

    yield begin
    for served in started:
        served.stop()


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs of one world, under one folder."""
    folder = tmp_path_factory.mktemp("runs")
    for name, method in (("rg", "rg"), ("os", "sage-os"), ("e", "sage-e")):
        make_run(folder / name, method=method)
    return folder


def chromium() -> str | None:
    """The system's browser; none is ever downloaded."""
    named = os.environ.get("SAGEFL_CHROMIUM")
    found = [named] if named else [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    return next((path for path in found if path), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium found: `apt-get install chromium` (Debian), or set SAGEFL_CHROMIUM to its path")
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright (the Python package is enough)")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield launched
        launched.close()


class Watched:
    """A page of the browser that keeps what went wrong on it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        settings = {"viewport": {"width": 1280, "height": 900}} | options
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str) -> Any:
        self.page.goto(address)
        self.page.wait_for_selector("body[data-ready=yes]")
        return self.page

    def foreign(self) -> list[str]:
        """Requests to anywhere but this machine."""
        own = ("http://127.0.0.1:", "data:", "blob:", "file:")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture
def watch(browser: Any) -> Iterator[Callable[..., Watched]]:
    """Pages; at the end none of them may have logged an error or asked another host."""
    watched: list[Watched] = []

    def begin(**options: Any) -> Watched:
        watched.append(Watched(browser, **options))
        return watched[-1]

    yield begin
    for each in watched:
        each.context.close()
    assert [error for each in watched for error in each.errors] == []
    assert [url for each in watched for url in each.foreign()] == []
