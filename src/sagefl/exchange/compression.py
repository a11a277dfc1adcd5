"""Compressed exchange with replicas (CHOCO): small messages, from which everybody keeps the same replicas.

Every client k keeps its model x_k and a public replica x^_k, which all of its neighbours keep as well. In a round every
client sends one compressed message and moves its model towards the *replicas* of its neighbours:

    x^_k <- x^_k + C(x_k - x^_k)                        what k sends; everybody who holds x^_k does the same
    x_k  <- x_k + gamma * sum_j w_kj (x^_j - x^_k)

All holders of x^_k start from the same row and add the same messages, so one row per client is enough for all of them.
Only the shared block takes part; what the compressor drops stays in x_k - x^_k and is sent later (error feedback).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch

from ..learning.tasks import Row, Task, Tasks
from ..learning.workbench import Workbench
from ..selection.outcome import Outcome, Traffic
from ..selection.scoring import Scoring
from .accounting import Sizes, account
from .layer import ExchangeLayer
from .mixing import Mix

Compression = Literal["top-k", "sign", "identity"]
REPLICA = "replica"


class Compressor(ExchangeLayer):
    """CHOCO's exchange: `ratio` is the share of coordinates that top-k keeps, `gamma` the consensus step."""

    beyond: ClassVar[str] = "sends compressed changes of models"

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
        """Everybody starts from the same weights, so the first replicas need no message."""
        tasks.map([StartReplica(client) for client in range(clients)])

    def resolve(
        self, outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float
    ) -> dict[int, Mix]:
        """The mix as decided. Whoever takes part sends one message; clients that were away need those they missed."""
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
        """First everybody sends a message, then everybody steps towards the neighbours' replicas."""
        tasks.map([Send(k, round, self.compression, self.ratio) for k in self._talking(mixes)])
        tasks.map([Step(k, self.gamma, [(p, weight) for p, _, weight in mix.pulls]) for k, mix in mixes.items()])

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """One message per peer; several missed ones together never cost more than the whole block."""
        message = payload(self.compression, self.ratio, sizes.shared_block // 4)
        arrived = sum(min(missed * message, sizes.shared_block) for missed in self._arriving.get(client, ()))
        return replace(account(outcome, asked, sizes), models=arrived)

    def state(self) -> dict[str, Any]:
        """Who has received how many of whose messages."""
        return {"sent": self._sent, "heard": self._heard}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
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


# Tasks --------------------------------------------------------------------------------------------------------------


class StartReplica(Task[None]):
    """x^_k <- x_k, before anything was trained."""

    def run(self, bench: Workbench) -> None:
        """Copy the shared block."""
        p = bench.population
        p.extras[REPLICA][self.client].copy_(p.params[self.client, bench.layout.shared])


@dataclass(frozen=True, eq=False)
class Send(Task[None]):
    """x^_k <- x^_k + C(x_k - x^_k), from the row that was published."""

    round: int
    compression: Compression
    ratio: float

    def run(self, bench: Workbench) -> None:
        """Add the message to the replica."""
        p = bench.population
        replica = p.extras[REPLICA][self.client]
        published = p.snapshots[p.slot(self.round), self.client, bench.layout.shared]
        replica.add_(compress(self.compression, self.ratio, published - replica, real_coordinates(bench)))


@dataclass(frozen=True, eq=False)
class Step(Task[None]):
    """x_k <- x_k + gamma * sum_j w_kj (x^_j - x^_k); `peers` are (client, weight)."""

    gamma: float
    peers: Sequence[tuple[int, float]]

    def rows(self) -> Iterable[Row]:
        """The replicas around."""
        return [Row(f"extras.{REPLICA}", peer) for peer, _ in self.peers]

    def run(self, bench: Workbench) -> None:
        """Move towards them."""
        replicas = bench.population.extras[REPLICA]
        towards = torch.zeros_like(replicas[self.client])
        for peer, weight in self.peers:
            towards.add_(replicas[peer] - replicas[self.client], alpha=weight)
        bench.population.params[self.client, bench.layout.shared].add_(towards, alpha=self.gamma)


def real_coordinates(bench: Workbench) -> torch.Tensor:
    """1 where the shared block holds a parameter, 0 on the padding between them."""
    real = torch.zeros(bench.layout.shared_stop)
    for slot in bench.layout.slots:
        if slot.start < bench.layout.shared_stop:
            real[slot.start : slot.start + slot.size] = 1.0
    return real
