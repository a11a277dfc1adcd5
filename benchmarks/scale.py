"""How the simulator scales with the number of clients: memory, wall and core time per client-round, phase by phase.

python benchmarks/scale.py [--quick] [--engine stacked,processes] [--clients 1000,3000,10000]

A small perceptron (hidden 8) and SAGE-OS on an Erdos-Renyi graph of mean degree 10, two label shards a client. The
embedded images are too few for 10,000 clients, so 48 a client are drawn from them *with replacement*: 32 anchors, 4 to
evaluate on, 12 to train on. Copies of an image may thus be with several clients: this measures cost, not learning.
Three rounds; the first is left out of the times, since workers start and memory is touched in it. `evaluate` is what
one evaluation before and after mixing takes (100 test images and own samples), `checkpoint` what one checkpoint takes.
Core times are of the second round, which has neither: what is done on rows (`rows`: training, answers, mixing) and what
the round loop does itself (`loop`: decisions, who asks whom, records). `stacked` has one thread,
`processes` all cores.
Every row is a process of its own. About 3 minutes on two idle cores; `--quick`: 300 and 1,000 clients, seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from simulator import PeakMemory, _family

from sagefl.data import Dataset, load
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation import simulator as loop
from sagefl.simulation.engines import make_engine
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

EACH, ANCHOR, TEST = 48, 0.67, 100
ROUND = ("train", "decide", "mix", "record")
ROUNDS = 3


def images(clients: int) -> Dataset:
    """`EACH` of the embedded images for every client, drawn with replacement."""
    whole = load("fmnist-mini")
    drawn = np.random.default_rng(0).integers(0, len(whole.train_y), clients * EACH)
    return Dataset(
        "fmnist-mini-drawn",
        whole.train_x[drawn],
        whole.train_y[drawn],
        whole.test_x[:TEST],
        whole.test_y[:TEST],
        whole.classes,
    )


def config(clients: int) -> RunConfig:
    return RunConfig.parse(
        {
            "clients": clients,
            "rounds": ROUNDS,
            "data": {"partition": "shards", "anchor": ANCHOR},
            "topology": {"kind": "er", "degree": 10},
            "model": {"name": "mlp", "options": {"hidden": 8}},
            "evaluation": {"every": 10_000},
        }
    )


class CoreTime:
    """Core seconds up to the end of every round: of everybody, and of work on rows."""

    def __init__(self, engine: str) -> None:
        self.name, self.within, self.ends = engine, 0.0, []

    def make_engine(self, *args, **options):
        self._engine = make_engine(*args, **options)
        self.population, self.close = self._engine.population, self._engine.close
        return self

    def map(self, *args):
        before = time.process_time()
        result = self._engine.map(*args)
        self.within += time.process_time() - before
        return result

    def start(self, config: RunConfig, first_round: int) -> None:
        pass

    def round(self, record) -> None:
        everybody = sum(map(_core_seconds, _family()))
        alone = self.name != "processes"  # then rows are worked on in this process
        self.ends.append((everybody, self.within if alone else everybody - time.process_time()))

    def end(self, summary) -> None:
        pass

    def second_round(self) -> tuple[float, float]:
        """(work on rows, the loop)."""
        everybody, rows = (b - a for a, b in zip(*self.ends[:2], strict=True))
        return rows, everybody - rows


def _core_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one(clients: int, engine: str) -> dict[str, float]:
    """One run; what it took."""
    several = engine == "processes"
    # Looking at a large process costs it time: only where a maximum of its own does not tell.
    with tempfile.TemporaryDirectory() as out, PeakMemory() if several else nullcontext() as peak:
        began = time.perf_counter()
        world = World.build(config(clients), images(clients))
        built = time.perf_counter() - began
        directory = RunDirectory(Path(out) / "run")
        execution = Execution(engine=engine, workers=None if several else 1, checkpoint_every=10_000)
        cores = CoreTime(engine)
        loop.make_engine = cores.make_engine
        Simulator(world.config, directory, execution, world=world, callbacks=[cores]).run()
        on_rows, in_loop = cores.second_round()
        timings = directory.table("timings")
        size = sum(p.stat().st_size for p in directory.path.rglob("*") if p.is_file())
        population = 4 * 4 * world.layout.width * clients
        evaluations = int(directory.table("decisions")["evaluations"].sum())
    phases = {name: statistics.median(timings[name][1:].to_list()) for name in ROUND}
    return {
        "build": built,
        **phases,
        "round": statistics.median(timings[1:].select(ROUND).sum_horizontal().to_list()),
        "evaluate": timings["evaluate"][-1],
        "checkpoint": timings["checkpoint"][-1],
        "rows": on_rows,
        "loop": in_loop,
        "evaluations": evaluations / ROUNDS / clients,
        "population": population,
        "directory": size,
        "peak": 1e9 * peak.gigabytes if several else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def rows(engine: str, counts: list[int]) -> list[str]:
    lines = [
        f"\n{engine}\n",
        "| clients | ms per client-round | train | decide | mix | record | evaluate | checkpoint "
        "| core-ms, rows | core-ms, loop | build s | peak GB | KB per client | evaluations |",
        "|" + "---|" * 14,
    ]
    for clients in counts:
        command = [sys.executable, __file__, "--one", str(clients), "--engine", engine]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        r = json.loads(out.splitlines()[-1])
        each = [1e3 * r[name] / clients for name in ("round", *ROUND, "evaluate", "checkpoint", "rows", "loop")]
        figures = [f"{value:.3f}" for value in each]
        figures += [f"{r['build']:.1f}", f"{r['peak'] / 1e9:.2f}", f"{r['peak'] / clients / 1e3:.0f}"]
        lines.append(f"| {clients:,} | " + " | ".join([*figures, f"{r['evaluations']:.0f}"]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 and 1,000 clients")
    parser.add_argument("--engine", default="stacked,processes", help="comma-separated")
    parser.add_argument("--clients", default=None, help="comma-separated")
    parser.add_argument("--one", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.engine)))
        return
    counts = [300, 1000] if args.quick else [1000, 3000, 10_000]
    if args.clients:
        counts = [int(text) for text in args.clients.split(",")]
    for engine in args.engine.split(","):
        print("\n".join(rows(engine, counts)), flush=True)


if __name__ == "__main__":
    main()
