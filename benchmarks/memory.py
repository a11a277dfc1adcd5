"""What remembering costs: the time of a `sage-m` decision, and of a round's decisions against its training.

    .venv/bin/python benchmarks/memory.py            # about a minute

A decision is one of degree 8 in ask-and-answer form, state passed from round to round, over runs of 60 rounds in which
half of the peers are foreign: rounds that ask and rounds that do not, as they come. Times are processor time, so that
other work on the machine disturbs them little. The share of a round is a ratio taken in one run: all decisions of a
round against one local epoch of its clients (the default model on the embedded data), inference for answers aside.
"""

from __future__ import annotations

import argparse
import statistics
from time import process_time

import numpy as np

from sagefl import SageM
from sagefl.learning.tasks import Train
from sagefl.methods import method
from sagefl.runs.config import RunConfig
from sagefl.simulation.engines import make_engine
from sagefl.simulation.world import World

DEGREE, POOL, ROUNDS, CLIENTS = 8, 50, 60, 20
MOST_SECONDS, MOST_SHARE = 1e-3, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a decision that remembers, and its share of a round.")
    parser.add_argument("--runs", type=int, default=60, help="clients whose runs are decided")
    arguments = parser.parse_args()
    asking, silent = decisions(arguments.runs)
    every = sorted(asking + silent)
    middle, late = statistics.median(every), every[int(0.95 * len(every))]
    print(f"a decision of degree {DEGREE}: median {1e3 * middle:.3f} ms, 95th percentile {1e3 * late:.3f} ms")
    asks = f"of {len(every)} decisions {len(asking)} ask"
    print(f"{asks}: median {1e3 * statistics.median(asking):.3f} ms; limit {1e3 * MOST_SECONDS:g} ms")
    seconds = training()
    share = CLIENTS * statistics.fmean(every) / seconds
    print(f"training of {CLIENTS} clients: {seconds:.2f} s a round; decisions on average: {share:.2%} of it; limit 1 %")
    if middle > MOST_SECONDS or share > MOST_SHARE:
        raise SystemExit("above the limit")


def decisions(runs: int) -> tuple[list[float], list[float]]:
    """Seconds of each decision: those that asked, and those that did not."""
    risks = np.linspace(0.1, 0.9, DEGREE)[:, None]
    rule, peers = SageM(), tuple(range(DEGREE))
    asking, silent = [], []
    for run in range(runs):
        rng, state = np.random.default_rng(run), None
        for t in range(ROUNDS):
            losses = (rng.random((DEGREE, POOL)) < risks).astype(float)
            start = process_time()
            decision = rule.begin(peers, POOL, (run, t), state=state, round=t, rounds=ROUNDS, ever=DEGREE, mine=0.2)
            while (probe := decision.request) is not None:
                decision.answer(losses[list(probe.peers), probe.start : probe.stop])
            seconds = process_time() - start
            outcome = decision.outcome
            (asking if outcome.evaluations else silent).append(seconds)
            state = outcome.state
    return asking, silent


def training(turns: int = 5) -> float:
    """Seconds in which the clients of a small world train one local epoch each, in one process; the median turn."""
    data = {"dataset": "fmnist-mini", "partition": "iid"}
    config = RunConfig.parse({"clients": CLIENTS, "rounds": turns, "data": data})
    world = World.build(config)
    roles = world.federation.roles
    engine = make_engine("sequential", world, method("rg").training)
    try:
        found = []
        for t in range(turns):
            start = process_time()
            engine.map([Train(k, t, len(roles[k].train)) for k in range(CLIENTS)])
            found.append(process_time() - start)
        return statistics.median(found)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
