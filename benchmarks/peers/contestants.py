"""The contestants: each trains on the same track in its own way and says what it did.

Run in the peers' environment, one process per contestant: ``python -m peers.contestants NAME --out FILE``. Everybody
makes one warm-up epoch per client, then `rounds` timed ones; accuracy is of the models as they leave the last epoch.
With ``--cpu`` every stopwatch counts this process's CPU seconds instead of wall time, which a busy machine distorts
less; that only means something for one thread, so it goes with ``--cores 1``, where sagefl works in this process too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sagefl.runs.config import Execution
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator

from .track import BATCH, MIXING, MODELS, RATE, Track, loss

PHASES = ("train", "decide", "mix", "record")


@dataclass(frozen=True)
class Lap:
    """What one contestant did: client-epochs and seconds of the timed rounds, epochs of all, final accuracy."""

    epochs: int
    seconds: float
    all_epochs: int
    accuracy: float

    @property
    def speed(self) -> float:
        return self.epochs / self.seconds


# sagefl -----------------------------------------------------------------------------------------------------------


def sagefl(track: Track) -> Lap:
    """`sagefl run` with random gossip, a worker process per core. Evaluation and checkpoints are not timed."""
    with tempfile.TemporaryDirectory() as out:
        directory = RunDirectory(Path(out) / "run")
        engine = "processes" if track.cores > 1 else "sequential"
        execution = Execution(engine=engine, workers=track.cores, checkpoint_every=10_000)
        Simulator(track.world.config, directory, execution, world=track.world).run()
        timings, metrics = directory.table("timings"), directory.table("metrics")
    seconds = timings.select(PHASES).sum_horizontal().to_list()
    shard = sum(len(roles.train) for roles in track.world.federation.roles) / track.clients
    epochs = [round(samples / shard) for samples in metrics["samples"].to_list()]
    return Lap(sum(epochs[1:]), sum(seconds[1:]), sum(epochs), metrics["before_accuracy"].to_list()[-1])


# A plain loop -----------------------------------------------------------------------------------------------------


def plain(track: Track, **options: bool) -> Lap:
    """One module and one Adam per client, one after another, as most researchers write it."""
    track.prepare()
    shards, neighbours = track.shards(), track.neighbours()
    models = [track.model() for _ in shards]
    optimisers = [torch.optim.Adam(model.parameters(), lr=RATE, **options) for model in models]
    rng = np.random.default_rng(1)
    seconds = []
    for number in range(1 + track.rounds):
        began = time.perf_counter()
        for model, optimiser, (x, y) in zip(models, optimisers, shards, strict=True):
            order = torch.randperm(len(x))
            x, y = x[order], y[order]
            for start in range(0, len(x), BATCH):
                optimiser.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=track.lower):
                    value = loss(model(x[start : start + BATCH]), y[start : start + BATCH])
                value.backward()
                optimiser.step()
        if number < track.rounds:  # the others exchange between epochs as well
            _gossip(models, [int(rng.choice(peers)) for peers in neighbours])
        seconds.append(time.perf_counter() - began)
    return Lap(track.clients * track.rounds, sum(seconds[1:]), track.clients * len(seconds), track.accuracy(models))


def plain_fused(track: Track) -> Lap:
    """The same loop by somebody who knows torch's fused Adam."""
    return plain(track, fused=True)


def _gossip(models: list[nn.Module], pulled: list[int]) -> None:
    before = [[p.detach().clone() for p in model.parameters()] for model in models]
    with torch.no_grad():
        for model, peer in zip(models, pulled, strict=True):
            for mine, theirs in zip(model.parameters(), before[peer], strict=True):
                mine.mul_(1 - MIXING).add_(theirs, alpha=MIXING)


# fluke ------------------------------------------------------------------------------------------------------------


def fluke(track: Track) -> Lap:
    """fluke-fl's GossipDFL: push to one random neighbour, mix half and half with what has arrived, train.

    A client that nobody has sent a model to sends its own again and does not train: the fits are counted, and rounds
    go on until there were as many as in everybody else's rounds.
    """
    import networkx
    from fluke import FlukeENV
    from fluke.algorithms.decentralized import GossipDFL, Topology
    from fluke.algorithms.decentralized.client import GossipClient
    from fluke.config import OptimizerConfigurator
    from fluke.data import FastDataLoader
    from fluke.server import EarlyStopping
    from fluke.utils import ClientObserver, FederationObserver

    class Watch(ClientObserver, FederationObserver):
        def __init__(self) -> None:
            self.fits, self.laps = 0, [(0, 0.0)]

        def end_fit(self, **_: object) -> None:
            self.fits += 1

        def end_round(self, round: int) -> None:
            self.laps.append((self.fits, time.perf_counter()))
            if self.fits >= track.clients * (1 + track.rounds):
                raise EarlyStopping(round)

    track.prepare()
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, server=False, locals=False)
    neighbours = track.neighbours()
    clients = [
        GossipClient(
            index=k,
            model=track.model(),
            neighbours=neighbours[k],
            train_set=FastDataLoader(x, y, num_labels=10, batch_size=BATCH, shuffle=True, skip_singleton=False),
            test_set=None,
            optimizer_cfg=OptimizerConfigurator({"name": "Adam", "lr": RATE}),
            loss_fn=nn.CrossEntropyLoss(),
            local_epochs=1,
            policy="aggregate",
            eta=MIXING,
        )
        for k, (x, y) in enumerate(track.shards())
    ]
    graph = networkx.Graph((k, peer) for k, peers in enumerate(neighbours) for peer in peers)
    federation = GossipDFL(track.clients, None, {}, topology=Topology(graph), clients=clients)
    watch = Watch()
    federation.set_callbacks([watch])
    federation.run(1000 * (1 + track.rounds))
    (warm, began), (fits, ended) = watch.laps[1], watch.laps[-1]
    return Lap(fits - warm, ended - began, fits, track.accuracy(client.model for client in clients))


# gossipy ----------------------------------------------------------------------------------------------------------


def gossipy(track: Track) -> Lap:
    """gossipy-dfl's simulator: every node pulls one random neighbour's model a round, averages and trains.

    Its initialisation already trains every client once; that is the warm-up.
    """
    import logging

    from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork
    from gossipy.data import DataDispatcher
    from gossipy.data.handler import ClassificationDataHandler
    from gossipy.model import TorchModel
    from gossipy.model.handler import TorchModelHandler
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator

    class Wrapped(TorchModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = track.model()

        def init_weights(self) -> None:
            """They are those that everybody starts from."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    fits = 0

    class Counting(TorchModelHandler):
        def _update(self, data: tuple[torch.Tensor, torch.Tensor]) -> None:
            nonlocal fits
            fits += 1
            super()._update(data)

    logging.getLogger("rich").setLevel(logging.WARNING)
    track.prepare()
    shards, adjacency = track.shards(), np.zeros((track.clients, track.clients))
    for k, peers in enumerate(track.neighbours()):
        adjacency[k, peers] = 1
    x, y = (torch.cat(parts) for parts in zip(*shards, strict=True))
    dispatcher = DataDispatcher(ClassificationDataHandler(x, y, test_size=0), track.clients, False, auto_assign=False)
    ends = np.cumsum([0, *(len(labels) for _, labels in shards)])
    dispatcher.set_assignments([list(range(a, b)) for a, b in zip(ends, ends[1:], strict=False)], None)
    handler = Counting(
        Wrapped(), torch.optim.Adam, {"lr": RATE}, nn.CrossEntropyLoss(), 1, BATCH, CreateModelMode.MERGE_UPDATE
    )
    network, length = StaticP2PNetwork(track.clients, adjacency), 100  # time steps a round, as in its examples
    nodes = GossipNode.generate(dispatcher, network, handler, length, sync=True)
    simulator = GossipSimulator(nodes, dispatcher, length, AntiEntropyProtocol.PULL)
    simulator.init_nodes()
    warm, began = fits, time.perf_counter()
    simulator.start(track.rounds)
    seconds = time.perf_counter() - began
    models = (nodes[k].model_handler.model for k in range(track.clients))
    return Lap(fits - warm, seconds, fits, track.accuracy(models))


CONTESTANTS: dict[str, Callable[[Track], Lap]] = {
    "sagefl": sagefl,
    "plain": plain,
    "plain-fused": plain_fused,
    "fluke": fluke,
    "gossipy": gossipy,
    "sagefl-bf16": sagefl,
    "plain-fused-bf16": plain_fused,
}
LOWER = "-bf16"  # how names of those end that train in bfloat16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("--dataset", default="fmnist")
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.cpu:
        if args.cores != 1:
            parser.error("--cpu goes with --cores 1")
        time.perf_counter = time.process_time  # sagefl's own stopwatch reads it too
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    race = (args.dataset, args.clients, args.rounds, args.cores, MODELS[args.model])
    track = Track.build(*race, lower=args.name.endswith(LOWER))
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # the peers' progress bars
        lap = CONTESTANTS[args.name](track)
    args.out.write_text(json.dumps(asdict(lap) | {"speed": lap.speed}))


if __name__ == "__main__":
    main()
