"""A sagefl selector inside fluke-fl's gossip client: the decision core fits other people's frameworks.

    pip install -e . fluke-fl
    python examples/fluke_adapter.py

fluke's `GossipClient` pushes its model to a random neighbour. `AskingClient` pulls instead, and asks first: before a
local update it sends some of its held-out inputs to its neighbours, scores their labels at home and pulls the model of
the peer that the selector decides for. All that moves goes through fluke's own channel, so its observers see it;
training, rounds, optimisers and data loaders stay fluke's. The adapter is `AskingClient`; the rest is a small world to
show it in: two groups of clients that label the same inputs differently, so that a random neighbour is often a bad one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import networkx
import numpy as np
import torch
from fluke.algorithms.decentralized import GossipDFL, Topology
from fluke.algorithms.decentralized.client import AbstractDFLClient, GossipClient
from fluke.comm import Message
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.utils.model import aggregate_models
from torch import Tensor, nn

from sagefl import LABEL_ERRORS, Outcome, Probe, RandomGossip, SageOS, Selector


class AskingClient(GossipClient):
    """A gossip client that lets a sagefl selector decide whom to pull from. Its `test_set` is its anchor pool.

    `roster` (index -> client) is how it reaches its neighbours; `eta` is fluke's mixing weight of what was pulled.
    """

    def __init__(self, *args: Any, selector: Selector, roster: dict[int, AskingClient], **kwargs: Any) -> None:
        super().__init__(*args, policy="aggregate", **kwargs)
        self.selector, self.roster = selector, roster
        self.outcomes: list[Outcome] = []
        self._memory: dict[str, Any] | None = None
        roster[self.index] = self

    def local_update(self, round: int) -> None:
        """Pull, train. fluke's gossip client would wait for a model that somebody pushes."""
        super(AbstractDFLClient, self).local_update(round)

    def send_model(self) -> None:
        """Nothing is pushed."""

    def receive_model(self) -> None:
        """Decide, pull what was decided, mix: eq:mix of the paper with alpha_mix = eta."""
        if self._last_round == 0:  # nothing has been trained that could be worth pulling; fluke's client waits too
            return
        outcome = self._decide()
        if outcome.peers:
            weights = outcome.weights or dict.fromkeys(outcome.peers, self.hyper_params.eta / len(outcome.peers))
            pulled = [self._pull(peer) for peer in outcome.peers]
            total = sum(weights.values())
            aggregate_models(self.model, pulled, [weights[p] / total for p in outcome.peers], eta=total)

    def _decide(self) -> Outcome:
        round = len(self.outcomes)
        order = np.random.default_rng((round, self.index)).permutation(len(self.test_set.tensors[1]))
        x, y = (tensor[order] for tensor in self.test_set.tensors)  # a new order every round, fixed before asking
        decision = self.selector.begin(
            self.neighbours, len(y), seed=(round, self.index), state=self._memory, round=round, me=self.index
        )
        while (request := decision.request) is not None:
            if not isinstance(request, Probe) or request.scoring != LABEL_ERRORS:
                raise TypeError(f"this adapter answers probes for labels, and the selector asked for {request}")
            asked = slice(request.start, request.stop)
            wrong = [self._ask(peer, x[asked]) != y[asked] for peer in request.peers]
            losses = torch.stack(wrong).double().numpy()
            decision.answer(losses if request.mask is None else np.where(request.mask, losses, np.nan))
        outcome = decision.outcome
        if outcome.direction != "pull":
            raise TypeError(f"this adapter pulls, and {self.selector.id or type(self.selector).__name__} pushes")
        self._memory = outcome.state if outcome.state is not None else self._memory
        self.outcomes.append(outcome)
        return outcome

    # What goes over the channel -----------------------------------------------------------------------------------

    def _ask(self, peer: int, inputs: Tensor) -> Tensor:
        self.channel.send(Message(inputs, "anchors", self.index), peer)
        self.roster[peer].answer(self.index)
        labels: Tensor = self.channel.receive(self.index, peer, "labels").payload
        return labels

    def answer(self, asker: int) -> None:
        """Label the inputs that have arrived; the asker's own labels never leave it."""
        inputs = self.channel.receive(self.index, asker, "anchors").payload
        self.model.eval()
        with torch.inference_mode():
            labels = self.model(inputs).argmax(1)
        self.channel.send(Message(labels, "labels", self.index), asker)

    def _pull(self, peer: int) -> nn.Module:
        self.channel.send(Message(self.roster[peer].model, "model", peer), self.index)
        model: nn.Module = self.channel.receive(self.index, peer, "model").payload
        return model


# A small world to show it in --------------------------------------------------------------------------------------

CLIENTS, CLASSES, SAMPLES, ANCHORS = 8, 4, 40, 128


def group(client: int) -> int:
    """Even clients label one way, odd clients another."""
    return client % 2


def samples(client: int, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Points around one centre per class; the second group has its labels turned by one class."""
    y = rng.integers(CLASSES, size=count)
    angle = 2 * np.pi * y / CLASSES
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.25 * rng.normal(size=(count, 2))
    return torch.from_numpy(x).float(), torch.from_numpy((y + group(client)) % CLASSES)


def federation(selector: Selector, seed: int = 1) -> GossipDFL:
    """fluke's gossip federation on a complete graph, made of clients that ask."""
    rng, roster = np.random.default_rng(seed), {}
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (fluke draws from it)
    topology = Topology(networkx.complete_graph(CLIENTS))
    for k in range(CLIENTS):
        train, anchors = samples(k, SAMPLES, rng), samples(k, ANCHORS, rng)
        AskingClient(
            index=k,
            model=nn.Linear(2, CLASSES),
            neighbours=topology[k],
            train_set=FastDataLoader(*train, num_labels=CLASSES, batch_size=16, shuffle=True),
            test_set=FastDataLoader(*anchors, num_labels=CLASSES, batch_size=ANCHORS),
            optimizer_cfg=OptimizerConfigurator({"name": "Adam", "lr": 0.1}),
            loss_fn=nn.CrossEntropyLoss(),
            local_epochs=2,
            eta=0.5,
            selector=selector,
            roster=roster,
        )
    return GossipDFL(CLIENTS, None, {}, topology=topology, clients=list(roster.values()))


def kindred(clients: Sequence[AskingClient]) -> float:
    """Share of the pulls that came from the puller's own group."""
    pulls = [group(peer) == group(c.index) for c in clients for outcome in c.outcomes for peer in outcome.peers]
    return sum(pulls) / len(pulls)


def accuracy(clients: Sequence[AskingClient], fresh: int = 500) -> float:
    """Mean accuracy on samples that nobody has seen."""
    rng, found = np.random.default_rng(0), []
    for client in clients:
        x, y = samples(client.index, fresh, rng)
        found.append((client.model(x).argmax(1) == y).double().mean().item())
    return sum(found) / len(found)


def main() -> None:
    for selector in (RandomGossip(), SageOS(probe_cost=1e-4)):
        run = federation(selector)
        run.run(6)
        outcomes = [outcome for client in run.clients for outcome in client.outcomes]
        print(
            f"{selector.id}: {kindred(run.clients):.0%} of pulls from the own group, accuracy "
            f"{accuracy(run.clients):.1%}, {sum(o.evaluations for o in outcomes)} evaluations, "
            f"{dict(Counter(o.reason.value for o in outcomes))}"
        )


if __name__ == "__main__":
    main()
