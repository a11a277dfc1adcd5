"""For all tests: no example of a property is judged by the clock; a real browser and Ray cluster for whoever asks."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sagefl import references

settings.register_profile("sagefl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sagefl")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)  # of the browser
STORE = 80 * 2**20  # bytes of a raylet's object store, about the least that Ray takes


@pytest.fixture(autouse=True)
def _own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins as a process in which no code of the user's was loaded, so that errors of tests are not its."""
    monkeypatch.setattr(references, "_loaded", set())


class Nodes:
    """A head without CPUs, where the tests are, and raylets with one CPU each; remembers every process it has seen."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._others = _below(os.getpid())  # pools that other tests keep
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._raylets: list[Any] = []
        self._seen: set[tuple[int, str]] = set()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def grow_to(self, count: int) -> None:
        """So many raylets with a CPU."""
        while len(self._raylets) < count:
            self._raylets.append(self._cluster.add_node(num_cpus=1, object_store_memory=STORE))
        self._cluster.wait_for_nodes()

    def kill_one(self) -> None:
        """SIGKILL the raylet that has been there longest."""
        self._look()
        self._cluster.remove_node(self._raylets.pop(0), allow_graceful=False)

    def end(self) -> None:
        """Everything down; nobody may stay."""
        import ray

        self._look()
        ray.shutdown()
        self._cluster.shutdown()
        until = time.monotonic() + 30
        while (left := {p for p in self._seen if _started(p[0]) == p[1]}) and time.monotonic() < until:
            time.sleep(0.1)
        assert not left, f"processes of the Ray cluster have stayed: {left}"

    def _look(self) -> None:
        ours = _below(os.getpid()) - self._others
        self._seen |= {(pid, began) for pid in ours if (began := _started(pid)) is not None}


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process began, so that a pid can be told from its next owner; None if there is no such process."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else fields[19]


def _below(root: int) -> set[int]:
    """All processes that this one has started, and those that they have."""
    parents = {
        int(p.name): int(s[1]) for p in Path("/proc").iterdir() if p.name.isdigit() and (s := _stat(int(p.name)))
    }
    found: set[int] = set()
    level = {root}
    while level := {pid for pid, parent in parents.items() if parent in level} - found:
        found |= level
    return found


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster with two raylets for the tests of one file; skipped where Ray is not installed."""
    pytest.importorskip("ray", reason="needs the extra ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Nodes()
    try:
        made.grow_to(2)
        yield made
    finally:
        made.end()


def chromium() -> str | None:
    """The system's browser; none is ever downloaded."""
    named = os.environ.get("SAGEFL_CHROMIUM")
    found = [named] if named else [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    return next((path for path in found if path), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium of the system, driven by Playwright."""
    path = chromium()
    if path is None:
        pytest.skip("no Chromium found: `apt-get install chromium` (Debian), or set SAGEFL_CHROMIUM to its path")
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright (the Python package is enough)")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield launched
        launched.close()
