"""Drive a selector without a simulator: somebody answers its requests with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from sagefl.selection import Decision, Inspect, Outcome, Probe, Read, Request

Answer = Callable[[Request], Any]


def drive(decision: Decision, answer: Answer) -> Outcome:
    """Answer until the decision is finished."""
    while (asked := decision.request) is not None:
        decision.answer(answer(asked))
    return decision.outcome


class Given:
    """Answers from tables: losses per peer for probes, per-metric values for inspections, per-name values for reads.

    `asked` keeps every request, so that a test can also say what was asked for.
    """

    def __init__(
        self,
        probes: Mapping[Any, Sequence[float]] | None = None,
        inspections: Mapping[str, Mapping[Any, Any]] | None = None,
        readings: Mapping[str, Mapping[Any, Any]] | None = None,
    ) -> None:
        self.probes, self.inspections, self.readings = probes or {}, inspections or {}, readings or {}
        self.asked: list[Request] = []

    def __call__(self, asked: Request) -> Any:
        self.asked.append(asked)
        if isinstance(asked, Probe):
            return np.array([self.probes[p] for p in asked.peers])[:, asked.start : asked.stop]
        if isinstance(asked, Inspect):
            return np.array([self.inspections[asked.metric][p] for p in asked.peers])
        return [self.readings[asked.what][p] for p in asked.peers]


class Anything:
    """Reproducible answers to whatever is asked: every number depends on (seed, what, peer) only."""

    def __init__(self, seed: int = 0, samples: int = 5) -> None:
        self.seed, self.samples = seed, samples
        self._made: dict[tuple[str, Any, int], np.ndarray] = {}

    def __call__(self, asked: Request) -> Any:
        if isinstance(asked, Probe):
            losses = np.array(
                [self._numbers(f"{asked.scoring.kind}-{asked.scoring.loss}", p, asked.stop) for p in asked.peers]
            )
            return losses[:, asked.start :].round() if asked.scoring.loss == "error" else losses[:, asked.start :]
        if isinstance(asked, Inspect):
            rows = [self._numbers(asked.metric, e, self.samples) for e in asked.entries]
            return np.array(rows if asked.metric == "losses" else [row[0] for row in rows])
        assert isinstance(asked, Read)
        if asked.what in ("head", "last-layer"):
            return [self._numbers(asked.what, p, 4) - 0.5 for p in asked.peers]
        return [float(int(100 * self._numbers(asked.what, p, 1)[0])) for p in asked.peers]

    def _numbers(self, what: str, peer: Any, count: int) -> np.ndarray:
        key = (what, peer, count)
        if key not in self._made:
            self._made[key] = np.random.default_rng([self.seed, crc32(f"{what} {peer!r}".encode())]).random(count)
        return self._made[key]
