"""Client by client, where `sage-m` misses its targets: `results/worlds/clients.csv`.

python tools/world_clients.py            # runs cells of the study of worlds; about five minutes, resumable

How a client ended beside a reference, how many of its neighbours are of its own group, and how many anchors it has.
Runs are kept in `runs/clients/` by address; finished ones are read, not run again.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

from sagefl.runs.config import Execution
from sagefl.runs.headroom import own_metric
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.truth import read_truth
from sagefl.simulation.simulator import Simulator
from sagefl.study.design import Design
from sagefl.study.matrix import Cell

RULES = ("sage-m", "sage-m:outside=home")
MISSED = {  # where, and the reference that is ahead there
    "four rotations": "oracle",
    "four rotations, encoder": "oracle",
    "inverted, unequal": "oracle",
    "skewed, whole model": "local",
}
NAMES = ("world", "seed", "method", "client", "neighbours", "kin", "anchors", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/clients"))
    parser.add_argument("--out", type=Path, default=Path("results/worlds/clients.csv"))
    args = parser.parse_args()
    rows = [row for cell in Design.read("worlds").cells if wanted(cell) for row in clients(cell, args.runs)]
    with args.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(NAMES)
        table.writerows(rows)


def wanted(cell: Cell) -> bool:
    reference = MISSED.get(str(cell.configuration))
    return reference is not None and cell.method in (reference, *RULES)


def clients(cell: Cell, runs: Path) -> Iterator[tuple[object, ...]]:
    """A row for every client at the end of one cell."""
    run = RunDirectory(runs / cell.address)
    if run.summary is None:
        Simulator(cell.config, run, Execution(engine="sequential")).run()
        print(cell.configuration, cell.seed, cell.method, flush=True)
    ends, decisions = run.table("clients"), run.table("decisions")
    measured = {"accuracy": "accuracy", "client": "own_accuracy"}[own_metric(cell.config)]
    truth = read_truth(run.path, cell.config.clients)
    for end in ends.filter(ends["round"] == ends["round"].max()).sort("client").iter_rows(named=True):
        k = end["client"]
        own = decisions.filter(decisions["client"] == k)
        peers = own["peers"].explode().drop_nulls().unique().to_list()
        kin = sum(truth.helps(k, peer) for peer in peers) if truth else ""
        about = own["degree"][0], kin, own["pool"][0], f"{end[measured]:.4f}"
        yield str(cell.configuration), cell.seed, cell.method, k, *about


if __name__ == "__main__":
    main()
