"""Hosts on a bridge, in network namespaces of our own; nothing of it can be reached from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

BRIDGE = "sagefl-br"


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, timeout=30).returncode == 0


def namespace(name: str) -> str:
    return f"sagefl-{os.getpid()}-{name}"  # another test process may have hosts of its own


def on(name: str) -> list[str]:
    """What runs a command on a host."""
    return ["ip", "netns", "exec", namespace(name)]


def cut(name: str) -> None:
    """Pull a host's cable: packets vanish, no connection is closed."""
    assert ip("-n", namespace("hub"), "link", "set", f"h-{name}", "nomaster")


def mend(name: str) -> None:
    assert ip("-n", namespace("hub"), "link", "set", f"h-{name}", "master", BRIDGE)


@contextmanager
def hosts(addresses: Mapping[str, str]) -> Iterator[None]:
    """A host for every name; skips the test where there can be none."""
    if shutil.which("ip") is None or os.geteuid() != 0 or not ip("netns", "add", namespace("hub")):
        pytest.skip("network namespaces cannot be made here (needs root and iproute2)")
    hub = ("-n", namespace("hub"))
    try:
        made = ip(*hub, "link", "add", BRIDGE, "type", "bridge") and ip(*hub, "link", "set", BRIDGE, "up")
        for name, address in addresses.items():
            here = ("-n", namespace(name))
            made = made and all(
                [
                    ip("netns", "add", namespace(name)),
                    ip("link", "add", f"s-{name}", "netns", namespace(name), "type", "veth",
                       "peer", "name", f"h-{name}", "netns", namespace("hub")),
                    ip(*here, "addr", "add", f"{address}/24", "dev", f"s-{name}"),
                    ip(*here, "link", "set", f"s-{name}", "up"),
                    ip(*here, "link", "set", "lo", "up"),
                    ip(*hub, "link", "set", f"h-{name}", "master", BRIDGE),
                    ip(*hub, "link", "set", f"h-{name}", "up"),
                ]
            )  # fmt: skip
        if not made:
            pytest.skip("this kernel has no bridges or veth pairs")
        yield
    finally:
        for name in (*addresses, "hub"):
            ip("netns", "del", namespace(name))
