"""The simulator against a plain PyTorch loop, the price of probing, and how it scales. Ratios in one run.

python benchmarks/simulator.py [--part plain|probing|rules|scale|all] # Fashion-MNIST, about 7 minutes on two idle cores

* plain: samples per second of `sagefl run` (processes engine) against one module and one Adam per client, as most
  researchers write it (same model, data, graph, batch size; contiguous tensors, slicing, torch's default threads).
* probing: seconds of a SAGE-OS and an AQ-128 round against an RG round, evaluation aside.
* rules: what the betting rules themselves take in a round, inference aside, against training whole epochs.
* scale: seconds per client-round and peak memory from 50 to 1,000 clients at 60 samples per client.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from sagefl.data import Dataset, load
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.settings import parse_options
from sagefl.simulation.engines import Sequential
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

PHASES = ("train", "decide", "mix", "record")


def config(method: str = "rg", clients: int = 50, rounds: int = 4, **data) -> RunConfig:
    return RunConfig.parse(
        {
            "clients": clients,
            "rounds": rounds,
            "method": {"id": method},
            "data": {"dataset": "fmnist", "alpha": 0.3, **data},
            "evaluation": {"every": 10_000, "subset": 10, "mechanisms": False, "losses": "none"},
        }
    )


def run(cfg: RunConfig, dataset: Dataset, workers: int = 2) -> tuple[list[float], int, World]:
    """Seconds of every round (evaluation and checkpoint aside), samples per round, the world."""
    world = World.build(cfg, dataset)
    with tempfile.TemporaryDirectory() as out:
        directory = RunDirectory(Path(out) / "run")
        execution = Execution(engine="processes", workers=workers, checkpoint_every=10_000)
        Simulator(cfg, directory, execution, world=world).run()
        timings, metrics = directory.table("timings"), directory.table("metrics")
        return timings.select(PHASES).sum_horizontal().to_list(), int(metrics["samples"][0]), world


# A plain loop, as most researchers write it -----------------------------------------------------------------------


class PlainEncoderDecoder(torch.nn.Module):
    """`EncoderDecoder` for Fashion-MNIST from torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(1568, 64),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(64, 1568), nn.ReLU(), nn.Unflatten(1, (32, 7, 7)),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), nn.Sigmoid(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x)
        return F.cross_entropy(self.head(z), y) + F.mse_loss(self.decoder(z), x)


def plain_loop(rounds: int) -> None:
    """Print samples per second of each round: one module and one optimiser per client, one after another."""
    world = World.build(config(), load("fmnist"))
    data, neighbours = [], []
    for k, roles in enumerate(world.federation.roles):
        x = torch.from_numpy(world.dataset.train_x[roles.train]).float().div(255).contiguous()
        data.append((x, torch.from_numpy(world.dataset.train_y[roles.train])))
        neighbours.append(world.graph.neighbours(k))
    models = []
    for _ in range(world.clients):
        model = PlainEncoderDecoder()
        with torch.no_grad():
            for mine, theirs in zip(model.parameters(), world.model.parameters(), strict=True):
                mine.copy_(theirs)
        models.append(model)
    optimisers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    rng = np.random.default_rng(0)
    speeds = []
    for _ in range(rounds):
        began, seen = time.perf_counter(), 0
        for model, optimiser, (x, y) in zip(models, optimisers, data, strict=True):
            order = torch.randperm(len(x))
            x, y = x[order], y[order]
            for start in range(0, len(x), 64):
                optimiser.zero_grad()
                loss = model.loss(x[start : start + 64], y[start : start + 64])
                loss.backward()
                optimiser.step()
                seen += min(64, len(x) - start)
        before = [{n: p.detach().clone() for n, p in m.named_parameters()} for m in models]
        with torch.no_grad():
            for k, model in enumerate(models):
                peer = before[int(rng.choice(neighbours[k]))]
                for name, p in model.named_parameters():
                    if not name.startswith("head"):
                        p.mul_(0.5).add_(peer[name], alpha=0.5)
        speeds.append(seen / (time.perf_counter() - began))
    print(json.dumps(speeds))


def part_plain(dataset: Dataset) -> list[str]:
    ours, plain = [], []
    for _ in range(3):  # alternating, so that a slow spell hits both
        out = subprocess.run(
            [sys.executable, __file__, "--plain-loop", "2"], check=True, capture_output=True, text=True
        )
        plain.append(json.loads(out.stdout)[-1])
        seconds, samples, _ = run(config(rounds=3), dataset)
        ours.append(samples / statistics.median(seconds[1:]))
    ratio = statistics.median(a / b for a, b in zip(ours, plain, strict=True))
    return [
        f"| plain loop | {statistics.median(plain):,.0f} samples/s | {torch.get_num_threads()} threads |",
        f"| sagefl, 2 workers | {statistics.median(ours):,.0f} samples/s | |",
        f"| **ratio** (target >= 1.5) | **{ratio:.2f} x** | |",
    ]


def part_probing(dataset: Dataset) -> list[str]:
    seconds = {m: [] for m in ("rg", "sage-os", "aq-128")}
    for _ in range(2):
        for method, found in seconds.items():
            found += run(config(method, rounds=4), dataset)[0][1:]
    base = statistics.median(seconds["rg"])
    rows = [f"| rg round | {base:.2f} s | |"]
    for method, target in (("sage-os", 1.08), ("aq-128", 1.25)):
        value = statistics.median(seconds[method])
        rows.append(f"| {method} round | {value:.2f} s | **{value / base:.3f} x** (target <= {target}) |")
    return rows


def part_rules(dataset: Dataset) -> list[str]:
    """Everything in one process, so that what `decide` spends on inference can be told from what rules take."""
    rows = []
    for spec in ("sage-e", "sage-e:probe_cost=0", "sage-e:kind=latents:loss=ce", "sage-e-trim:probe_cost=0"):
        id, *options = spec.split(":")
        cfg = config(id, rounds=3)
        cfg = RunConfig.parse(cfg.model_dump() | {"method": {"id": id, "options": parse_options(options)}})
        with tempfile.TemporaryDirectory() as out, InferenceTime() as inference:
            directory = RunDirectory(Path(out) / "run")
            execution = Execution(engine="sequential", checkpoint_every=10_000)
            Simulator(cfg, directory, execution, world=World.build(cfg, dataset)).run()
            timings = directory.table("timings")
        rule, training = timings["decide"].sum() - inference.seconds, timings["train"].sum()
        rows.append(
            f"| {spec} | {rule / 3:.3f} s of {training / 3:.2f} s | **{rule / training:.2%}** (target <= 3 %) |"
        )
    return rows


class InferenceTime:
    """Seconds that the sequential engine spends on peers' answers and their scores."""

    def __enter__(self) -> InferenceTime:
        self.seconds, self._plain = 0.0, Sequential.map

        def timed(engine: Sequential, task: str, *rest: Any) -> list[Any]:
            began = time.perf_counter()
            try:
                return self._plain(engine, task, *rest)
            finally:
                self.seconds += time.perf_counter() - began if task in ("answer", "score") else 0.0

        Sequential.map = timed
        return self

    def __exit__(self, *_: object) -> None:
        Sequential.map = self._plain


def part_scale(dataset: Dataset) -> list[str]:
    rounds, each, memory = {50: 30, 200: 10, 1000: 4}, {}, {}
    for _ in range(2):  # twice over, so that a slow spell hits all sizes
        for clients, count in rounds.items():
            part = Dataset(
                "fmnist-part", dataset.train_x[: 60 * clients], dataset.train_y[: 60 * clients],
                dataset.test_x[:100], dataset.test_y[:100], 10,
            )  # fmt: skip
            cfg = config("sage-os", clients, count, partition="iid")
            cfg = RunConfig.parse(cfg.model_dump() | {"topology": {"kind": "er", "degree": 8}})
            with PeakMemory() as peak:
                seconds, _, _ = run(cfg, part)
            each.setdefault(clients, []).extend(s / clients for s in seconds[1:])
            memory[clients] = max(memory.get(clients, 0.0), peak.gigabytes)
    typical = {clients: statistics.median(found) for clients, found in each.items()}
    return [
        f"| {clients} clients | {1e3 * value:.2f} ms/client-round ({value / typical[50]:.2f} x) "
        f"| {memory[clients]:.2f} GB peak |"
        for clients, value in typical.items()
    ]


class PeakMemory:
    """Peak proportional memory of this process and its children: shared pages count once."""

    def __enter__(self) -> PeakMemory:
        self.gigabytes, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self.gigabytes = max(self.gigabytes, sum(map(_pss, _family())) / 1e6)


def _family() -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    family = {int(Path("/proc/self").resolve().name)}
    while more := {p for p, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family)


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="all", choices=("plain", "probing", "rules", "scale", "all"))
    parser.add_argument("--plain-loop", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plain_loop:
        plain_loop(args.plain_loop)
        return
    dataset = load("fmnist")
    parts = {"plain": part_plain, "probing": part_probing, "rules": part_rules, "scale": part_scale}
    for name, part in parts.items():
        if args.part in (name, "all"):
            print("\n".join(part(dataset)), flush=True)


if __name__ == "__main__":
    main()
