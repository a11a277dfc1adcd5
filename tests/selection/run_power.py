"""What sampling without replacement would bring: rounds until a better peer is proven so, with and without its term.

    python tests/selection/run_power.py results/power.csv

Six peers, one of them better by so much on a pool that is asked about in a fresh order every round, eight anchors each.
*looks* uses the term and may look after every anchor; *one bet* is what `sage-m` does, once a round, and needs no term.
The certificates are those of run_nulls.py, both directions, delta = .1.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from run_nulls import Null, Play, Terms, evidence, wealth

PEERS, ROUNDS, RUNS, RISK = 6, 60, 2000, 0.5
NAMES = ("better_by", "pool", "form", "runs", "median_rounds", "proven")


def ahead(by: float, pool: int) -> Null:
    """Peer 0 is wrong on fewer anchors by this share of the pool; everybody's are drawn by themselves."""

    def losses(play: Play) -> np.ndarray:
        n = play.null.anchors
        ranks = play.rng.random((play.runs, PEERS, n)).argsort(axis=-1)
        return (ranks < np.round(n * np.array([RISK - by] + [RISK] * (PEERS - 1)))[:, None]).astype(float)

    return Null(PEERS, pool, losses)


def rounds_until_proven(null: Null, terms: Terms, runs: int = RUNS) -> np.ndarray:
    """For every run the round in which peer 0 is first certified better, ROUNDS + 1 where it never is."""
    play = Play(runs, null, np.random.default_rng(3))
    held, first = np.zeros(runs), np.full(runs, ROUNDS + 1)
    for play.round in range(ROUNDS):
        last, best = wealth(evidence(null, play, play.orders())[0, :, 0], null.anchors if terms.looks else None)
        reached = held + np.log(np.maximum(best, 1e-300)) >= terms.needed(null)
        first = np.where(reached, np.minimum(first, play.round + 1), first)
        held = held + np.log(last)
    return first


def rows() -> Iterator[tuple[object, ...]]:
    for by in (0.15, 0.3):
        for pool in (40, 128):
            for form, terms in (("looks", Terms(looks=True)), ("one bet", Terms())):
                first = rounds_until_proven(ahead(by, pool), terms)
                yield by, pool, form, RUNS, f"{np.median(first):g}", f"{np.mean(first <= ROUNDS):.4f}"


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(NAMES)
        table.writerows(rows())
