"""The race: this simulator against the loop that most people write themselves, on their own model, on this machine.

Everybody trains the same clients on the same samples, starts from the same weights and pulls one random neighbour's
model a round. Contestants take turns, so that a slow spell hits all of them, and a ratio is the median of the ratios
within a turn. How busy others keep the machine (`crowding`) is measured before and during it and said first: a ratio of
a busy machine means little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import SageflError
from ..learning.corpus import model_input, sliced
from ..learning.models import copied, training_loss
from ..runs.config import RunConfig, merged
from .benching import PLAIN, EngineChoice, measure
from .world import World

OURS = "sagefl"


@dataclass(frozen=True)
class Laps:
    """Training samples per second of every contestant, turn by turn."""

    speeds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """The median speed of one contestant."""
        return statistics.median(self.speeds[name])

    def lead(self, name: str) -> float:
        """How many times as fast as this one the simulator is."""
        return statistics.median(a / b for a, b in zip(self.speeds[OURS], self.speeds[name], strict=True))

    @property
    def fastest(self) -> str:
        """The fastest alternative."""
        return max((name for name in self.speeds if name != OURS), key=self.median)


def race(
    config: RunConfig,
    way: EngineChoice,
    threads: int,
    *,
    rounds: int = 3,
    turns: int = 3,
    told: Callable[[str, float], None] = lambda *_: None,
) -> Laps:
    """Let everybody run the world of `config`; `way` is how the simulator does, the loops have up to `threads`."""
    quiet = {"rounds": rounds + 1, "evaluation": {"every": 1_000_000, "losses": "none"}, "method": {"id": PLAIN}}
    world = World.build(RunConfig.parse(merged(config.model_dump(), quiet)))

    def ours() -> float:
        found = measure(world, PLAIN, way, rounds)
        if found.seconds is None:
            raise SageflError(f"{way.flags} does not work here: {found.problem}")
        return found.samples / found.seconds

    runners: dict[str, Callable[[], float]] = {
        OURS: ours,
        "plain loop": lambda: plain_loop(world, rounds, threads, fused=False),
        "plain loop, fused Adam": lambda: plain_loop(world, rounds, threads, fused=True),
    }
    if threads > 1:  # for small models, or where others compute, the fastest loop is one that waits for no other thread
        runners["plain loop, fused Adam, one thread"] = lambda: plain_loop(world, rounds, 1, fused=True)
    speeds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(turns):
        for name, run in runners.items():
            speeds[name].append(run())
            told(name, speeds[name][-1])
    return Laps(speeds)


def plain_loop(world: World, rounds: int, threads: int, *, fused: bool) -> float:
    """One module and one Adam per client, one after another; samples per second. The first round does not count."""
    t, before = world.config.training, torch.get_num_threads()
    torch.set_num_threads(threads)
    data, rng = world.dataset, np.random.default_rng(1)
    shards = [(data.train_x[r.train], data.train_y[r.train]) for r in world.federation.roles]
    tensors = [(model_input(x), torch.from_numpy(y)) for x, y in shards]
    models = [copied(world.model) for _ in tensors]
    optimisers = [torch.optim.Adam(model.parameters(), lr=t.learning_rate, fused=fused) for model in models]
    seconds = []
    for _ in range(1 + rounds):
        began, samples = time.perf_counter(), 0
        for model, optimiser, (x, y) in zip(models, optimisers, tensors, strict=True):
            for _ in range(t.epochs):
                order = torch.randperm(len(x))[: (t.max_batches or len(x)) * t.batch_size]
                for start in range(0, len(order), t.batch_size):
                    picked = order[start : start + t.batch_size]
                    optimiser.zero_grad()
                    with torch.autocast("cpu", torch.bfloat16, enabled=t.precision == "bfloat16"):
                        loss = training_loss(model, sliced(x, picked), y[picked])
                    torch.autograd.backward(loss)
                    optimiser.step()
                samples += len(order)
        _gossip(world, models, rng)
        seconds.append(time.perf_counter() - began)
    torch.set_num_threads(before)
    return samples / statistics.median(seconds[1:])


def _gossip(world: World, models: list[torch.nn.Module], rng: np.random.Generator) -> None:
    mixing = world.config.training.mixing
    held = [[p.detach().clone() for p in model.parameters()] for model in models]
    with torch.no_grad():
        for k, model in enumerate(models):
            near = world.graph.neighbours(k)
            for mine, theirs in zip(model.parameters(), held[rng.choice(near)] if len(near) else (), strict=False):
                mine.mul_(1 - mixing).add_(theirs, alpha=mixing)
