"""Honest nodes in one process and in step: the node's own training, blocks, mixing and acceptance test, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sagefl.data import Dataset
from sagefl.exchange import Mix
from sagefl.methods import method
from sagefl.node.acceptance import Acceptance
from sagefl.node.config import NodeConfig
from sagefl.node.deciding import ConsultationResult
from sagefl.node.journal import Journal
from sagefl.node.learner import Learner
from sagefl.streams import stream


class _Around:
    """Nobody is ever left alone here: every merge is tried."""

    def __init__(self, nodes: int) -> None:
        self.names, self.presence = {k: f"node-{k}" for k in range(nodes)}, self

    def leave_alone(self, number: int, reason: str, round: int) -> int:
        return 0

    def did_well(self, number: int, reason: str) -> None:
        return None


@dataclass
class Lockstep:
    """What happened: every tested merge, and the accuracy of every node in every round."""

    tested: list[tuple[int, int, int]] = field(default_factory=list)  # errors before, after, of so many samples
    rolled_back: int = 0
    accuracies: list[list[float]] = field(default_factory=list)  # by node, by round

    @classmethod
    def run(cls, settings: Mapping[str, Any], graph: Sequence[Sequence[int]], data: Dataset, rounds: int) -> Lockstep:
        """Each node trains, then merges with one neighbour drawn at random."""
        nodes, found = len(graph), cls()
        configs = [
            NodeConfig.parse({"name": f"node-{k}", "number": k, "clients": nodes, **settings}) for k in range(nodes)
        ]
        rule = method("rg")
        learners = [Learner(config, rule, data) for config in configs]
        tests: list[Any] = [
            Acceptance(config, learner, _Around(nodes), Journal())  # type: ignore[arg-type]
            for config, learner in zip(configs, learners, strict=True)
        ]
        for learner, around in zip(learners, graph, strict=True):
            learner.seat(around)
        draws, found.accuracies = stream(configs[0].seed, "lockstep"), [[] for _ in range(nodes)]
        for number in range(rounds):
            for learner in learners:
                learner.train(number)
            rows = [learner.kept() for learner in learners]
            for k, learner in enumerate(learners):
                peer, weight = int(draws.choice(np.array(graph[k]))), configs[k].training.mixing
                learner.hold(peer, rows[peer], full=False)
                mix = Mix(1.0 - weight, ((peer, 0, weight),))
                result = tests[k].merge(number, ConsultationResult(None, {}, mix, {}, 0, 0, 0))  # type: ignore[arg-type]
                found.tested.append(result.tested)
                found.rolled_back += result.rolled_back
                found.accuracies[k].append(float(np.mean(learner.evaluate(last=True).accuracy)))  # type: ignore[union-attr]
        return found
