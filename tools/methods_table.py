"""Every method on the embedded data, several seeds, one table: `results/methods.md` and `results/methods.csv`.

python tools/methods_table.py            # 12 clients, 12 rounds of a small perceptron, seeds 1-3; minutes, resumable
python tools/methods_table.py dpfl dfca  # these again; the other rows stay as they stand in the CSV
python tools/methods_table.py --no-run   # the page again, from the CSV alone

Runs are kept in `runs/methods/` by address; finished ones are read, not run again. Seconds are training, deciding and
mixing (evaluation aside) and are meaningful only when nothing else runs on the machine: say `--busy` when something
does, and the page says so of these rows from then on. `version` is that of the method's results when a row was made: a
test refuses rows of older ones.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from sagefl.methods import methods
from sagefl.methods.fidelity import kind_of
from sagefl.runs import versions
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.environment import address
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.comparing import Part, compare, parts_of

PHASES = ("train", "decide", "mix")
COLUMNS = ("accuracy", "macro_f1", "client", "weak", "merged", "transferred", "evaluations", "megabytes", "seconds")
ABOUT = ("version", "busy")  # of how a row was made: the method's results version, whether other work went on beside it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="default: all")
    parser.add_argument("--no-run", action="store_true", help="write the page from the CSV alone")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--max-batches", type=int, default=4)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--busy", action="store_true", help="other work shares the machine: seconds are too many")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    rows = kept(args.out / "methods.csv")
    asked = [] if args.no_run else args.methods or list(methods())
    for id in asked:
        rows[id] = []
        parts = [replace(part, directory=place(args, part)) for part in parts_of(config(args, seeds[0]), [id], seeds)]
        compare(parts, Execution(checkpoint_every=1000))
        for part in parts:
            summary = part.directory.summary or {}
            rows[id].append(numbers(summary, part.directory) | {"version": version(id), "busy": int(args.busy)})
            print(f"seed {part.seed} {id}: accuracy {summary['accuracy']:.4f}", flush=True)
    write({id: rows[id] for id in methods() if id in rows}, args, seeds)


def place(args: argparse.Namespace, part: Part) -> RunDirectory:
    """By address: a run of an older version of a method is not taken for one of now."""
    return RunDirectory(args.runs / address(part.config))


def version(id: str) -> int:
    """Of a method's results, now."""
    return versions.METHODS.get(id, 1)


def kept(path: Path) -> dict[str, list[dict[str, float]]]:
    """The rows of the CSV as it stands."""
    rows: dict[str, list[dict[str, float]]] = {}
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                values = {name: row[name] for name in (*ABOUT, *COLUMNS)}
                rows.setdefault(row["method"], []).append(
                    {k: int(v) if v.isdigit() else float(v) for k, v in values.items()}
                )
    return rows


def config(args: argparse.Namespace, seed: int) -> RunConfig:
    return RunConfig.parse(
        {
            "clients": args.clients,
            "rounds": args.rounds,
            "seed": seed,
            "data": {"alpha": args.alpha},
            "model": {"name": args.model},
            "training": {"max_batches": args.max_batches},
            "evaluation": {"every": args.rounds, "losses": "none", "mechanisms": False},
        }
    )


def numbers(summary: dict[str, Any], run: RunDirectory) -> dict[str, float]:
    seconds = float(run.table("timings").select(PHASES).sum_horizontal().sum())
    return {name: summary[name] for name in COLUMNS if name in summary} | {
        "megabytes": summary["bytes"] / 1e6,
        "seconds": seconds,
    }


def write(rows: dict[str, list[dict[str, float]]], args: argparse.Namespace, seeds: list[int]) -> None:
    args.out.mkdir(exist_ok=True)
    busy = [f"`{id}`" for id, runs in rows.items() if any(run["busy"] for run in runs)]
    told = f" Seconds of {', '.join(busy)} were taken while other work shared the machine." if busy else ""
    lines = [
        "# Every method on the embedded data",
        "",
        f"fmnist-mini, Dirichlet({args.alpha:g}), `{args.model}`, {args.clients} clients on a connected Erdos-Renyi "
        f"graph (p = .15), {args.rounds} rounds of at most {args.max_batches} mini-batches, seeds "
        f"{', '.join(map(str, seeds))}; mean ± standard error over seeds.",
        "",
        "A short run on little data: it shows that every method works, what it moves and what it costs. It does not "
        "rank them: differences of a few points are noise at this scale.",
        "",
        "Merged and transferred are models per client-round relative to random gossip; evaluations and MB are totals "
        "of a run (all clients); seconds are training, deciding and mixing." + told,
        "",
        "How true each is to its paper: as published, adapted, or only inspired by it (not ranked anywhere); `ours` "
        "has none. `sagefl methods` says more. Client accuracy is taken right after merging, a body under a head that "
        "was fitted to another: in so short a run that costs everybody who merges, and `local` nothing.",
        "",
        "| method | fidelity | " + " | ".join(name.replace("_", " ") for name in COLUMNS) + " |",
        "|---|---|" + "---:|" * len(COLUMNS),
    ]
    for id, runs in rows.items():
        cells = [cell(name, [run[name] for run in runs]) for name in COLUMNS]
        lines.append(f"| {' | '.join([id, kind_of(id), *cells])} |")
    command = f"python tools/methods_table.py --clients {args.clients} --rounds {args.rounds}"
    command += f" --model {args.model} --max-batches {args.max_batches} --alpha {args.alpha:g} --seeds {args.seeds}"
    lines += ["", f"Command: `{command}`", ""]
    (args.out / "methods.md").write_text("\n".join(lines), encoding="utf-8")
    with (args.out / "methods.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["method", "seed", *ABOUT, *COLUMNS])
        table.writeheader()
        for id, runs in rows.items():
            for seed, run in zip(seeds, runs, strict=True):
                table.writerow({"method": id, "seed": seed, **run})


def cell(name: str, values: list[float]) -> str:
    mean = statistics.mean(values)
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    if name in ("evaluations", "megabytes", "seconds"):
        return f"{mean:,.0f}"
    return f"{mean:.3f}" if name in ("merged", "transferred") else f"{mean:.4f} ± {error:.4f}"


if __name__ == "__main__":
    main()
