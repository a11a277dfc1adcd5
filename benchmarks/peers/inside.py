"""How much of the sagefl workers' time is spent inside forward, backward and optimiser; what the rest is.

``python -m peers.inside --out FILE``. The real engine trains the real population; a stopwatch in the documented
training hooks adds up the three per client in the population's own shared memory.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import time
from pathlib import Path
from typing import Any

from sagefl.learning.tasks import Train
from sagefl.learning.training import LocalTraining
from sagefl.simulation.engines import Processes, Sequential

from .stopwatch import CLOCK, STEPS, Stopwatch, TrainTimed
from .track import MODELS, Track


def measure(track: Track) -> dict[str, float]:
    """Shares of the workers' time in the timed rounds; the whole is workers x wall time of the training phase."""
    engine = Processes(track.world, Stopwatch(), track.cores, extras={CLOCK: len(STEPS)})
    try:
        engine.population.reset(track.world.initial)
        busy = wall = 0.0
        for number in range(1 + track.rounds):
            if number == 1:  # the round before was the warm-up
                engine.population.extras[CLOCK].zero_()
                busy = wall = 0.0
            began = time.perf_counter()
            busy += sum(engine.map([TrainTimed(k, number) for k in range(track.clients)]))
            wall += time.perf_counter() - began
        steps = engine.population.extras[CLOCK].sum(0).tolist()
    finally:
        engine.close()
    whole = track.cores * wall
    shares = {name: steps[i] / whole for i, name in enumerate(STEPS)}
    inside = sum(shares.values())
    return shares | {"inside": inside, "around": busy / whole - inside, "waiting": 1 - busy / whole}


def surroundings(track: Track, top: int = 10) -> list[str]:
    """What one worker does beside the three steps: own time per function, as a share of its training."""
    engine = Sequential(track.world, LocalTraining())
    engine.population.reset(track.world.initial)
    tasks = [Train(k, 0) for k in range(track.clients)]
    engine.map(tasks[:5])  # warm-up
    with cProfile.Profile() as profile:
        engine.map(tasks)
    engine.close()
    stats = pstats.Stats(profile)
    whole = stats.total_tt  # type: ignore[attr-defined]
    found = []
    for (file, line, name), (_, count, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        found.append((own / whole, f"{name if file == '~' else f'{Path(file).name}:{line} {name}'} ({count} calls)"))
    return [f"{share:6.1%}  {what}" for share, what in sorted(found, reverse=True)[:top]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="fmnist")
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    found: dict[str, Any] = {}
    for name, model in (
        (f"the race's {args.model}", MODELS[args.model]),
        ("the built-in encoder-decoder", "encoder-decoder"),
    ):
        track = Track.build(args.dataset, args.clients, args.rounds, args.cores, model)
        found[name] = {"shares": measure(track), "profile": surroundings(track)}
    args.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
