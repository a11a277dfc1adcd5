"""How busy a machine is with the work of others, before and while something is timed on it.

A load average counts one's own processes, and for a minute after they have ended. Here the processor time that this
process and its children have had is taken from what all cores have had; where the system does not say (no /proc), the
share of every core that busy threads of our own get stands in for it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENOUGH = 0.85  # share of the cores that must be left for us to call a machine idle
PROC = Path("/proc")
TICKS = 100.0 if not hasattr(os, "sysconf") else float(os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True)
class Load:
    """How busy a machine is: cores, how many of them others keep busy (None: not known), what our own threads get."""

    cores: int
    foreign: float | None
    share: float

    @property
    def idle(self) -> bool:
        """Whether times mean something here."""
        return self.share >= ENOUGH and (self.foreign or 0.0) <= (1 - ENOUGH) * self.cores

    def __str__(self) -> str:
        found = f"{self.cores} cores, of which busy threads of ours get {self.share:.0%}"
        if self.foreign is not None:
            found = f"{self.cores} cores, {self.foreign:.1f} of them busy with others' work; ours gets {self.share:.0%}"
        if self.idle:
            return f"{found}: idle enough."
        return f"{found}: others are computing, so take the ratios as hints and race again when it is idle."


class Others:
    """What others compute from here on."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), foreign_seconds()

    def cores(self) -> float | None:
        """How many cores they have kept busy on average; None where the system does not say."""
        used = foreign_seconds()
        if used is None or self._used is None:
            return None
        return max(used - self._used, 0.0) / (time.perf_counter() - self._began)


def look(cores: int, seconds: float = 0.5, others: Others | None = None) -> Load:
    """Keep every core busy for a moment; `others` have been watched since they were made, by default for as long."""
    others = others or Others()
    began, used = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=_busy, args=(began + seconds,)) for _ in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    share = (time.process_time() - used) / (cores * (time.perf_counter() - began))
    return Load(cores, others.cores(), min(share, 1.0))


def _busy(until: float) -> None:
    data = bytes(1 << 20)
    while time.perf_counter() < until:
        hashlib.sha256(data)  # without the interpreter's lock


def foreign_seconds() -> float | None:
    """Processor seconds that others have had on our cores since the machine started."""
    try:
        return _all_seconds() - _own_seconds()
    except (OSError, ValueError, IndexError):
        return None


def _all_seconds() -> float:
    """Busy time of the cores that this process may use; time stolen by a host's other guests is busy, too."""
    ours = {f"cpu{n}" for n in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else None
    total = 0
    for line in (PROC / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and (name in ours if ours is not None else name != "cpu"):
            user, nice, system, _idle, _waiting, *rest = map(int, fields[:8])
            total += user + nice + system + sum(rest)
    return total / TICKS


def _own_seconds() -> float:
    """Of this process and all that descend from it, those that have ended included."""
    ticks = {pid: (parent, spent) for pid, parent, spent in _processes()}
    family, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in ticks.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return sum(ticks[pid][1] for pid in family if pid in ticks) / TICKS


def _processes() -> Iterator[tuple[int, int, int]]:
    """Number, parent, and processor time, that of children it has seen end included."""
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            yield int(folder.name), int(fields[1]), sum(map(int, fields[11:15]))
