"""All exchanges of a round, pulled or pushed, as one sparse mixing matrix over {self} + peers.

Row k of the matrix is a `Mix`: how much client k keeps of its own shared block and which published blocks it adds.
Mixing is synchronous: every row reads the snapshots published after local training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from ..selection import Outcome


@dataclass(frozen=True)
class Mix:
    """One receiver's row: `own` times its own block, plus the pulled blocks as (client, age, weight)."""

    own: float
    pulls: tuple[tuple[int, int, float], ...]

    @property
    def peers(self) -> tuple[int, ...]:
        """Whose blocks are merged."""
        return tuple(client for client, _, _ in self.pulls)


def resolve(outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float) -> dict[int, Mix]:
    """The mixing matrix of a round; receivers that merge nothing are left out.

    A pulled peer without a weight gets the mixing coefficient. Pushed models are averaged uniformly with what the
    receiver has after its own pulls. `ages` says how old the snapshot of a link is; links that it does not name are
    current.
    """
    terms: dict[int, list[tuple[int, int, float]]] = {}
    pushed: dict[int, list[int]] = {}
    for client, outcome in outcomes.items():
        if outcome.direction == "push":
            for receiver in outcome.peers:
                pushed.setdefault(client_of(receiver), []).append(client)
            continue
        for peer in outcome.peers:
            weight = mixing if outcome.weights is None else outcome.weights[peer]
            sender = client_of(peer)
            terms.setdefault(client, []).append((sender, ages.get((client, sender), 0), weight))
    for receiver, senders in pushed.items():
        weight = 1.0 / (len(senders) + 1)
        pulled = [(peer, age, weight * own) for peer, age, own in terms.get(receiver, [])]
        terms[receiver] = pulled + [(s, ages.get((receiver, s), 0), weight) for s in sorted(senders)]
    return {client: Mix(1.0 - sum(w for _, _, w in pulls), tuple(pulls)) for client, pulls in sorted(terms.items())}


def delivered(outcomes: Mapping[int, Outcome], peers: Sequence[Collection[int]]) -> dict[int, Outcome]:
    """The outcomes without the pushes that are lost on dead links; `peers` are those each client hears this round.

    A rule sees the links on which it can ask; a push takes the opposite direction, which may be down. The sender still
    pays for a lost push, but nobody merges it, and push-sum divides the weight among the receivers it reached.
    """
    return {
        sender: o
        if o.direction != "push"
        else replace(o, peers=tuple(p for p in o.peers if sender in peers[client_of(p)]))
        for sender, o in outcomes.items()
    }


def client_of(peer: object) -> int:
    """A simulated peer as a client number."""
    if isinstance(peer, bool) or not isinstance(peer, Integral):
        raise TypeError(f"simulated peers are client numbers, got {peer!r}")
    return int(peer)
