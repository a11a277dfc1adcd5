"""How fast clients train and answer, and how fast links are: drawn from a named distribution, or read from a file.

Every client has a training and an inference speed, an uplink, a downlink and a latency to the net; the latency of a
link is the sum of both ends'. The named networks are shapes to think with, not measurements: whoever knows their own
figures gives a file. Draws are keyed by the run's seed, so every method of a comparison meets the same machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..selection.registry import nearest
from ..streams import stream
from ..topology import TopologyError
from ..topology._common import numbered_fields

Floats = npt.NDArray[np.float64]
MEGABIT = 125_000.0  # bytes
FORWARD = 3.0  # a training step costs about three forward passes


class NetworkError(TopologyError):
    """Machines or links that cannot carry out a run; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Network:
    """Everybody's machine and links: one entry per client."""

    train: Floats  # samples a second, in training
    infer: Floats  # samples a second, in inference
    up: Floats  # bytes a second, shared by all that a client sends
    down: Floats  # bytes a second, shared by all that it receives
    latency: Floats  # seconds from the client to the net

    def __post_init__(self) -> None:
        for field in fields(self):
            values = np.asarray(getattr(self, field.name), dtype=np.float64)
            object.__setattr__(self, field.name, values)
            if bad := np.flatnonzero(~_possible(field.name, values)).tolist():
                raise NetworkError(_why(field.name, bad[0], values[bad[0]]))

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self.train)

    def between(self, one: int, other: int) -> float:
        """Seconds that a message takes on its way, whatever its size."""
        return float(self.latency[one] + self.latency[other])

    def training(self, client: int, samples: float) -> float:
        """Seconds that a client trains on so many samples."""
        return float(samples / self.train[client])

    def pulling(self, client: int, size: float) -> float:
        """About how many seconds a client takes to pull so many bytes from a typical peer that serves nobody else."""
        rate = min(float(self.down[client]), float(np.median(self.up)))
        return 2 * float(self.latency[client] + np.median(self.latency)) + size / rate

    def handing(self, client: int, size: float) -> float:
        """How many seconds a client takes to send or to get so many bytes, whichever is slower, one at a time."""
        return float(self.latency[client] + size / min(self.up[client], self.down[client]))

    def evaluation_seconds(self, degree: int, anchors: int, there: float, back: float) -> float:
        """Seconds per evaluation of a look in which a typical client asks `degree` peers about `anchors` each.

        `there` and `back` are the bytes of one input and of one answer. All inputs leave by one uplink; the round trip
        is paid once and falls on all evaluations of the look.
        """
        up, down, infer, latency = (float(np.median(v)) for v in (self.up, self.down, self.infer, self.latency))
        each = there * degree / up + 1 / infer + back / min(up, down / degree)
        return (4 * latency + anchors * each) / (anchors * degree)


def _possible(what: str, values: Floats) -> npt.NDArray[np.bool_]:
    if what == "latency":
        return np.isfinite(values) & (values >= 0)
    return (values > 0) & (np.isfinite(values) if what == "train" else ~np.isnan(values))


_WORDS = {
    "train": ("trains {:g} samples a second", "it would never finish a round, or in no time: give it a positive speed"),
    "infer": ("answers {:g} samples a second", "whoever asks it would wait for ever: give it a positive speed"),
    "up": ("has an uplink of {:g} Mbit/s", "nothing it sends would arrive: give it a positive bandwidth"),
    "down": ("has a downlink of {:g} Mbit/s", "nothing sent to it would arrive: give it a positive bandwidth"),
    "latency": ("has a latency of {:g} ms", "a latency is finite and not negative"),
}
_UNITS = {"up": 1 / MEGABIT, "down": 1 / MEGABIT, "latency": 1e3}


def _why(what: str, client: int, value: float) -> str:
    says, hint = _WORDS[what]
    return f"client {client} {says.format(value * _UNITS.get(what, 1.0))}: {hint}, or leave the client out"


# Named networks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machines:
    """A kind of machine: medians, and the spread (sigma of the logarithm) around them."""

    train: float  # samples a second
    up: float  # Mbit/s
    down: float  # Mbit/s
    latency: float  # ms
    spread: float = 0.0  # of speeds
    jitter: float = 0.0  # of links


NETWORKS: Mapping[str, tuple[str, tuple[tuple[float, Machines], ...]]] = {
    "equal": ("everybody alike, on a good line", ((1.0, Machines(2000, 100, 100, 5)),)),
    "phones": ("slow and very different, with narrow uplinks", ((1.0, Machines(200, 8, 40, 30, 0.7, 0.6)),)),
    "wan": ("alike, far apart: hospitals, banks", ((1.0, Machines(2000, 100, 100, 20, 0.2, 0.4)),)),
    "edge": (
        "every fifth in a data centre, the others small boxes",
        ((0.8, Machines(100, 20, 50, 15, 0.4, 0.4)), (0.2, Machines(5000, 1000, 1000, 4, 0.1, 0.1))),
    ),
}
"""By name: a summary, and the shares of clients with their kind of machine."""


def network(name: str, clients: int | None, seed: int) -> Network:
    """The network of a name or of a file; of 50 clients or as many as the file has lines where no number is given."""
    if name in NETWORKS:
        return _drawn(NETWORKS[name][1], 50 if clients is None else clients, seed)
    if Path(name).is_file():
        return _read(name, clients)
    if len(Path(name).parts) > 1 or Path(name).suffix:
        raise NetworkError(f"{name}: no such file; clock.network is {', '.join(NETWORKS)}, or such a file")
    raise NetworkError(
        f"unknown network {name!r}{nearest(name, NETWORKS)}; known: {', '.join(NETWORKS)}, or a file with a line per "
        "client"
    )


def _drawn(kinds: tuple[tuple[float, Machines], ...], clients: int, seed: int) -> Network:
    def spread(purpose: str, sigma: Floats) -> Floats:
        return np.exp(sigma * stream(seed, f"network-{purpose}").standard_normal(clients))

    ends = np.cumsum([share for share, _ in kinds])
    ranks = (stream(seed, "network-kind").permutation(clients) + 0.5) / clients
    of = np.minimum(np.searchsorted(ends, ranks), len(kinds) - 1)
    named = {f.name: np.array([getattr(k, f.name) for _, k in kinds], dtype=np.float64)[of] for f in fields(Machines)}
    train = named["train"] * spread("train", named["spread"])
    return Network(
        train=train,
        infer=FORWARD * train,
        up=named["up"] * MEGABIT * spread("up", named["jitter"]),
        down=named["down"] * MEGABIT * spread("down", named["jitter"]),
        latency=named["latency"] / 1e3 * spread("latency", named["jitter"]),
    )


FILE = "train (samples/s), inference (samples/s), uplink (Mbit/s), downlink (Mbit/s), latency (ms)"


def _read(path: str, clients: int | None) -> Network:
    """A line per client with five numbers; `inf` is fine for what takes no time."""
    rows: list[list[float]] = []
    for line, words in numbered_fields(path, "network file"):
        try:
            row = [float(word) for word in words]
        except ValueError:
            row = []
        if len(row) != 5 or any(map(math.isnan, row)):
            raise NetworkError(f"{path!r}, line {line}: expected five numbers, {FILE}; got {' '.join(words)!r}")
        rows.append(row)
    if not rows:
        raise NetworkError(f"{path!r} describes no client: give a line for each, {FILE}")
    if clients is not None and len(rows) != clients:
        raise NetworkError(f"{path!r} describes {len(rows)} clients, the run has {clients}: give a line for each")
    train, infer, up, down, latency = np.array(rows).T
    return Network(train, infer, up * MEGABIT, down * MEGABIT, latency / 1e3)
