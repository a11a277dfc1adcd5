"""Compressed exchange with replicas (CHOCO): small messages, and everybody knows what was said.

Every client k keeps its model x_k and, like all of its neighbours, a public replica x^_k. A round sends one compressed
message per client and moves the models towards the *replicas* around:

    x^_k <- x^_k + C(x_k - x^_k)                        what k sends; whoever holds x^_k does the same
    x_k  <- x_k + gamma * sum_j w_kj (x^_j - x^_k)

All holders of x^_k start from the same row and add the same messages, so one row per client stands for all of them.
Only the shared block takes part; what the compressor drops stays in x_k - x^_k and is sent later (error feedback).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from ..selection import Outcome
from .accounting import Sizes, Traffic, account
from .layer import Bench, ExchangeLayer, Row, Tasks, reads
from .mixing import Mix

__all__ = ["Compression", "Compressor", "compress", "payload"]

Compression = Literal["top-k", "sign", "identity"]
REPLICA = "replica"


class Compressor(ExchangeLayer):
    """CHOCO's exchange: `ratio` is the share of coordinates that top-k keeps, `gamma` the consensus step."""

    def __init__(self, compression: Compression, ratio: float, gamma: float) -> None:
        if compression not in get_args(Compression):
            raise ValueError(f"compression must be one of {', '.join(get_args(Compression))}, got {compression!r}")
        if not 0 < ratio <= 1 or not 0 < gamma <= 1:
            raise ValueError(f"ratio and gamma must lie in (0, 1], got {ratio} and {gamma}")
        self.compression, self.ratio, self.gamma = compression, ratio, gamma
        self._sent: dict[int, int] = {}  # messages each client has sent so far
        self._heard: dict[int, dict[int, int]] = {}  # receiver -> sender -> how many of them have arrived
        self._arriving: dict[int, list[int]] = {}  # receiver -> messages it needs from each peer this round

    def extras(self, width: int, shared: int) -> dict[str, int]:
        """The public replica of each client's shared block."""
        return {REPLICA: shared}

    def begin(self, tasks: Tasks, clients: int) -> None:
        """Everybody starts from the same weights, so replicas hold them without a message."""
        tasks.map("apply", [(client, start_replica) for client in range(clients)])

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """The mix as decided; whoever takes part sends one message, and late-comers need the ones they missed."""
        mixes = super().resolve(outcomes, ages, mixing)
        for client in self._talking(mixes):
            self._sent[client] = self._sent.get(client, 0) + 1
        self._arriving = {}
        for client, mix in mixes.items():
            heard = self._heard.setdefault(client, {})
            self._arriving[client] = [self._sent[peer] - heard.get(peer, 0) for peer in mix.peers]
            heard |= {peer: self._sent[peer] for peer in mix.peers}
        return mixes

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """First everybody's message, then everybody's step towards the replicas around."""
        tasks.map("apply", [(k, send, round, self.compression, self.ratio) for k in self._talking(mixes)])
        steps = [(k, step, self.gamma, [(peer, weight) for peer, _, weight in mix.pulls]) for k, mix in mixes.items()]
        tasks.map("apply", steps)

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[str, int], sizes: Sizes) -> Traffic:
        """One message per peer; several missed ones together never cost more than the whole block."""
        message = payload(self.compression, self.ratio, sizes.shared_block // 4)
        arrived = sum(min(missed * message, sizes.shared_block) for missed in self._arriving.get(client, ()))
        return replace(account(outcome, asked, sizes), models=arrived)

    def state(self) -> dict[str, Any]:
        """Who has heard how much of whom."""
        return {"sent": self._sent, "heard": self._heard}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self._sent, self._heard = dict(state["sent"]), {k: dict(v) for k, v in state["heard"].items()}

    @staticmethod
    def _talking(mixes: Mapping[int, Mix]) -> list[int]:
        return sorted({*mixes, *(peer for mix in mixes.values() for peer in mix.peers)})


def payload(compression: Compression, ratio: float, size: int) -> int:
    """Bytes of one message about `size` coordinates: kept values with their positions, or signs and one scale."""
    if compression == "top-k":
        return kept(ratio, size) * (4 + 4)
    return -(-size // 8) + 4 if compression == "sign" else 4 * size


def kept(ratio: float, size: int) -> int:
    """How many coordinates top-k keeps."""
    return max(1, round(ratio * size))


def compress(compression: Compression, ratio: float, difference: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """C(difference); `real` is 1 on true coordinates and 0 on padding, which stays zero."""
    if compression == "identity":
        return difference
    size = int(real.sum())
    if compression == "sign":
        scale = difference.abs().sum() / size
        return torch.where(difference < 0, -scale, scale) * real
    keep = torch.topk(difference.abs(), kept(ratio, size)).indices
    message = torch.zeros_like(difference)
    message[keep] = difference[keep]
    return message


def start_replica(bench: Bench, client: int) -> None:
    """x^_k <- x_k, before anything was trained."""
    bench.population.extras[REPLICA][client].copy_(bench.population.params[client, bench.layout.shared])


def send(bench: Bench, client: int, round: int, compression: Compression, ratio: float) -> None:
    """x^_k <- x^_k + C(x_k - x^_k), from the row that was published."""
    p = bench.population
    replica, published = p.extras[REPLICA][client], p.snapshots[p.slot(round), client, bench.layout.shared]
    replica.add_(compress(compression, ratio, published - replica, real_coordinates(bench)))


@reads(lambda gamma, peers: [Row(f"extras.{REPLICA}", peer) for peer, _ in peers])
def step(bench: Bench, client: int, gamma: float, peers: Sequence[tuple[int, float]]) -> None:
    """x_k <- x_k + gamma * sum_j w_kj (x^_j - x^_k)."""
    replicas = bench.population.extras[REPLICA]
    towards = torch.zeros_like(replicas[client])
    for peer, weight in peers:
        towards.add_(replicas[peer] - replicas[client], alpha=weight)
    bench.population.params[client, bench.layout.shared].add_(towards, alpha=gamma)


def real_coordinates(bench: Bench) -> torch.Tensor:
    """1 where the shared block holds a parameter, 0 on the padding between them."""
    real = torch.zeros(bench.layout.shared_stop)
    for slot in bench.layout.slots:
        if slot.start < bench.layout.shared_stop:
            real[slot.start : slot.start + slot.size] = 1.0
    return real
