"""All exchanges of a round, pulled or pushed, as one sparse mixing matrix over {self} + peers.

Row k of the matrix is `Mix`: what client k keeps of its own shared block and which published blocks it adds. Mixing
is synchronous: every row reads the snapshot published after local training (eq:mix).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from ..selection import Outcome

__all__ = ["Mix", "client_of", "delivered", "resolve"]


@dataclass(frozen=True)
class Mix:
    """One receiver's row: `own` times its block plus weight times each pulled one, as (client, age, weight)."""

    own: float
    pulls: tuple[tuple[int, int, float], ...]

    @property
    def peers(self) -> tuple[int, ...]:
        """Whose blocks are merged."""
        return tuple(client for client, _, _ in self.pulls)


def resolve(outcomes: Mapping[int, Outcome], ages: Mapping[tuple[int, int], int], mixing: float) -> dict[int, Mix]:
    """The mixing matrix of a round; receivers that merge nothing are left out.

    A single pulled peer without weights gets the mixing coefficient (eq:mix). Pushed models are averaged uniformly
    with what the receiver has after its own pulls. `ages` tells how stale a link's snapshot is; links not named are
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
    """The outcomes without the pushes that a dead link loses; `peers` are those whom each client hears in the round.

    A rule sees the links on which it can ask; a push takes the opposite one, which may be down. What is lost was sent
    and stays on the sender's bill, but nobody merges it, and push-sum divides its weight among those it reached.
    """
    return {
        sender: o
        if o.direction != "push"
        else replace(o, peers=tuple(p for p in o.peers if sender in peers[client_of(p)]))
        for sender, o in outcomes.items()
    }


def client_of(peer: object) -> int:
    """The client a peer of the simulation is."""
    if isinstance(peer, bool) or not isinstance(peer, Integral):
        raise TypeError(f"simulated peers are client numbers, got {peer!r}")
    return int(peer)
