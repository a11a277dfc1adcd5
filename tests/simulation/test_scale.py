"""Thousands of clients in one run: what a run holds in memory grows with their number, not with its square."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from small_runs import mini

from sagefl.data import Dataset
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World
from sagefl.view import tables
from sagefl.view.shelf import Run
from sagefl.view.world import world as drawn_world

FEW, MANY = 200, 1000


def many_clients(clients: int) -> World:
    """A world of 24 small images a client, drawn with replacement: 16 anchors, 2 to evaluate on, 6 to train on."""
    whole = mini()
    drawn = np.random.default_rng(0).integers(0, len(whole.train_y), 24 * clients)
    small = np.ascontiguousarray(whole.train_x[drawn][:, :, ::4, ::4])
    data = Dataset("drawn", small, whole.train_y[drawn], whole.test_x[:20, :, ::4, ::4], whole.test_y[:20], 10)
    document = {
        "clients": clients,
        "rounds": 1,
        "data": {"partition": "shards", "anchor": 0.67},
        "topology": {"kind": "ws", "k": 4},
        "model": {"name": "mlp", "options": {"hidden": 4}},
    }
    return World.build(RunConfig.parse(document), data)


class Peak:
    """Most bytes that Python and NumPy held at once, beyond what they held before."""

    bytes = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    found = Peak()
    tracemalloc.start()
    try:
        yield found
    finally:
        found.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def everything(clients: int, out: Path) -> None:
    """A world, a run with its decisions, evaluation and records, a look at it."""
    world = many_clients(clients)
    run = RunDirectory(out / str(clients))
    summary = Simulator(world.config, run, Execution(engine="stacked", workers=1), world=world).run()
    shown = Run(run.path)
    assert len(drawn_world(shown)["positions"]) == clients
    assert tables.decisions(shown)["clients"] == clients
    assert tables.rounds(shown)["total"] == 1
    assert summary["decisions"] == clients
    assert summary["evaluations"] > 16 * 3.9 * clients  # everybody asked all its neighbours about 16 anchors


def peak_of(clients: int, out: Path) -> int:
    with peak_memory() as peak:
        everything(clients, out)
    return peak.bytes


def test_memory_of_a_run_grows_with_the_clients_not_with_their_square(tmp_path: Path) -> None:
    everything(20, tmp_path)  # untraced: what is imported or kept from the first time on does not count
    few, many = peak_of(FEW, tmp_path), peak_of(MANY, tmp_path)
    times = MANY / FEW
    assert many < 1.3 * times * few  # five times as many clients: 25 times as much would be quadratic
    assert many - times * few < MANY * MANY  # not even a byte a pair


def test_and_a_square_would_be_noticed() -> None:
    """The same measure on a matrix of all pairs: it is not blind."""

    def all_pairs(clients: int) -> int:
        with peak_memory() as peak:
            np.zeros((clients, clients), dtype=np.bool_)
        return peak.bytes

    assert all_pairs(MANY) > 1.3 * MANY / FEW * all_pairs(FEW)
    assert all_pairs(MANY) >= MANY * MANY
