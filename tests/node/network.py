"""Hosts on a bridge, in network namespaces of our own; nothing of it can be reached from outside.

`python network.py HOST PORT TO FILE` is a switch that delays, for kernels without netem: what comes in at PORT goes to
port TO, in both directions as many seconds later as FILE says at that moment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

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


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, file: Path) -> None:
    """Everything in its order, each piece when it is due."""
    clock, under_way = asyncio.get_running_loop().time, asyncio.Queue[tuple[float, bytes]](1024)

    async def deliver() -> None:
        with suppress(OSError):
            while (piece := await under_way.get())[1]:
                await asyncio.sleep(max(0.0, piece[0] - clock()))
                sink.write(piece[1])
                await sink.drain()
        sink.close()

    delivering = asyncio.create_task(deliver())
    with suppress(OSError):
        while data := await source.read(1 << 16):
            await under_way.put((clock() + float(file.read_text() or 0), data))
    await under_way.put((0.0, b""))
    await delivering


async def delay(host: str, port: int, to: int, file: Path) -> None:
    """Serve for ever."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, back, file), _carry(there, writer, file))

    async with await asyncio.start_server(connected, host, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(delay(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
