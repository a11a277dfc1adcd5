"""The race: sagefl against a plain PyTorch loop, fluke-fl and gossipy-dfl, in client-epochs per second.

    python benchmarks/peers.py              # Fashion-MNIST, 50 clients; about ten minutes on two idle cores
    python benchmarks/peers.py --quick      # the embedded subset, one timed round, one turn
    python benchmarks/peers.py --profile    # only: where the sagefl workers' time goes

The first call makes an environment of its own for the peers (`--env`). What was made equal for everybody, and what
could not be, is in docs/race.md. Run it on an idle machine: a busy one hurts those with two threads most. Where there
is none, `--busy` compares the CPU seconds of one thread in one process, sagefl's sequential engine among them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from peers import environment

from sagefl.simulation.crowding import Others, look

HERE = Path(__file__).resolve().parent
NAMES = {
    "sagefl": "**sagefl**",
    "plain": "plain PyTorch loop",
    "plain-fused": "plain loop, fused Adam",
    "fluke": "fluke-fl, `GossipDFL`",
    "gossipy": "gossipy-dfl, `GossipSimulator`",
    "sagefl-bf16": "**sagefl**, bfloat16",
    "plain-fused-bf16": "plain loop, fused Adam, autocast to bfloat16",
}
LOWER = "-bf16"  # how names of those end that train in bfloat16: they race among themselves
CHILD_SUBREAPER = 36  # prctl's number on Linux
RACE_TARGET, INSIDE_TARGET = 2.0, 0.9

Laps = dict[str, list[dict[str, Any]]]


class Race:
    """Runs modules of `peers` in the peers' environment, one process at a time."""

    def __init__(self, python: Path, options: list[str]) -> None:
        self.python, self.options = python, options

    def run(self, *module: str) -> dict[str, Any]:
        """Run a module of `peers` with the race's options; returns what it wrote."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.json"
            command = [str(self.python), "-m", *module, *self.options, "--out", str(out)]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
            wait_for_orphans()
            if done.returncode:
                raise SystemExit(f"{' '.join(module)} failed:\n{done.stderr[-3000:]}")
            found: dict[str, Any] = json.loads(out.read_text())
            return found

    def laps(self, names: list[str], repeats: int, extra: list[str]) -> Laps:
        """Every contestant `repeats` times, taking turns, so that a slow spell hits all of them."""
        laps: Laps = {name: [] for name in names}
        for turn in range(repeats):
            for name in names:
                laps[name].append(self.run("peers.contestants", name, *extra))
                print(f"{turn + 1}/{repeats} {name}: {laps[name][-1]['speed']:.1f}", file=sys.stderr, flush=True)
        return laps


def adopt_orphans() -> None:
    """Become the parent of what children leave behind, workers' fork server first: its work is ours, not others'."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_orphans() -> None:
    """Until none is left; so nobody races beside the remains of the one before."""
    if sys.platform == "linux":
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()


def race_table(laps: Laps, clients: int, unit: str) -> list[str]:
    rows = [
        f"| who | client-epochs per {unit}, median (range) | sagefl is faster by | epochs per client | accuracy |",
        "|---|---|---|---|---|",
    ]
    for name, found in laps.items():
        speeds = [lap["speed"] for lap in found]
        epochs = statistics.median(lap["all_epochs"] for lap in found) / clients
        accuracy = statistics.median(lap["accuracy"] for lap in found)
        rows.append(
            f"| {NAMES[name]} | {statistics.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f}) "
            f"| {'' if name == ours(name) else f'{lead(laps, name):.2f} x'} | {epochs:.2f} | {accuracy:.1%} |"
        )
    return rows


def ours(name: str) -> str:
    """Who runs against a contestant: sagefl at the same precision."""
    return "sagefl" + (LOWER if name.endswith(LOWER) else "")


def lead(laps: Laps, name: str) -> float:
    """How much faster sagefl is: the median of the ratios within a turn."""
    return statistics.median(a["speed"] / b["speed"] for a, b in zip(laps[ours(name)], laps[name], strict=True))


def verdicts(laps: Laps) -> list[str]:
    """At either precision against the fastest of all alternatives, the loop with the fused optimiser among them."""
    found = []
    for us, precision in (("sagefl", "float32"), ("sagefl" + LOWER, "bfloat16")):
        if rivals := [name for name in laps if name != us and ours(name) == us]:
            fastest = max(rivals, key=lambda name: statistics.median(lap["speed"] for lap in laps[name]))
            ratio = lead(laps, fastest)
            met = "met" if ratio >= RACE_TARGET else "missed"
            said = f"In {precision} against the fastest alternative ({fastest}): {ratio:.2f} x"
            found.append(f"{said}; target {RACE_TARGET:.0f} x: {met}.")
    return found or ["No alternative took part."]


def profile_table(found: dict[str, Any]) -> list[str]:
    columns = ("forward", "backward", "optimiser", "inside", "around", "waiting")
    rows = [
        f"| model | {' | '.join(columns[:3])} | **inside** | around them | waiting |",
        "|---|" + "---|" * len(columns),
    ]
    for model, result in found.items():
        cells = " | ".join(f"{result['shares'][column]:.1%}" for column in columns)
        rows.append(f"| {model} | {cells} |")
    for model, result in found.items():
        if result["shares"]["inside"] < INSIDE_TARGET:
            rows += ["", f"{model} is below {INSIDE_TARGET:.0%}; own time per function in one worker (cProfile):", ""]
            rows += [f"    {line}" for line in result["profile"]]
    return rows


def machine(python: Path) -> dict[str, Any]:
    torch = subprocess.run(
        [str(python), "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return {
        "python": platform.python_version(),
        "torch": torch,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def entrants(chosen: Collection[str]) -> list[str]:
    """Who runs, in the table's order: those chosen, and sagefl at each precision that one of them has."""
    needed = {*chosen, *map(ours, chosen)}
    return [name for name in NAMES if name in needed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="embedded data, one timed round, one turn")
    parser.add_argument("--profile", action="store_true", help="only measure where the sagefl workers' time goes")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="fewer contestants (sagefl runs beside them)")
    parser.add_argument("--model", choices=("cnn", "perceptron"), default="cnn", help="what everybody trains")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, help="timed rounds (default 3, quick 1)")
    parser.add_argument("--repeats", type=int, help="turns (default 3, quick 1)")
    parser.add_argument("--cores", type=int, default=2, help="sagefl: workers; the others: threads")
    parser.add_argument("--busy", action="store_true", help="CPU seconds of one thread, not wall time of all")
    parser.add_argument("--env", type=Path, default=environment.ROOT / "build" / "peers")
    parser.add_argument("--out", type=Path, help="JSON with every lap (default: build/race.json)")
    args = parser.parse_args()
    args.cores = 1 if args.busy else args.cores
    if (available := len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else args.cores) < args.cores:
        parser.error(f"this process may use {available} cores, not {args.cores}")
    settings = {
        "dataset": "fmnist-mini" if args.quick else "fmnist",
        "model": args.model,
        "clients": args.clients,
        "rounds": args.rounds or (1 if args.quick else 3),
        "cores": args.cores,
    }
    python = environment.make(args.env.resolve())
    adopt_orphans()
    race = Race(python, [f"--{key}={value}" for key, value in settings.items()])
    results: dict[str, Any] = {"settings": settings | {"busy": args.busy}, "machine": machine(python)}
    results["before"], others = str(look(args.cores)), Others()
    print(f"Before: {results['before']}\n", flush=True)
    if not args.profile:
        names = entrants(args.only or NAMES)
        results["laps"] = race.laps(names, args.repeats or (1 if args.quick else 3), ["--cpu"] if args.busy else [])
        print("\n".join(race_table(results["laps"], args.clients, "CPU second" if args.busy else "second")))
        said = [] if args.busy else verdicts(results["laps"])  # one core says nothing about two
        print("\n".join(["", *said, ""]), flush=True)
    results["inside"] = race.run("peers.inside")
    print("\n".join(profile_table(results["inside"])))
    results["meanwhile"] = str(look(args.cores, others=others))
    out = args.out or environment.ROOT / "build" / "race.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1))
    print(f"\nMeanwhile: {results['meanwhile']}\n{out}")


if __name__ == "__main__":
    main()
