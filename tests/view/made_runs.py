"""Run directories made without training: real rules decide on drawn losses, all is written as a run writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sagefl.runs.columns import LAST_LOOK, schema
from sagefl.runs.config import RunConfig, method_config
from sagefl.runs.losses import Recorded, losses_path, write_losses
from sagefl.runs.replaying import replay_one
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.truth import Truth, write_truth
from sagefl.selection import Outcome, State, make
from sagefl.streams import stream
from sagefl.topology import Graph, build


def make_run(
    path: Path,
    *,
    method: str = "sage-os",
    clients: int = 8,
    rounds: int = 6,
    done: int | None = None,
    every: int = 2,
    seed: int = 1,
    topology: dict[str, Any] | None = None,
    pool: int = 130,
    distinct: int | None = None,
    world: dict[str, Any] | None = None,
) -> RunDirectory:
    """A run of `rounds` rounds of which `done` are over; finished when all are.

    Rounds from `distinct` on repeat the decisions of earlier ones, without losses: a long run in little time.
    """
    config = RunConfig.parse(
        {
            "clients": clients,
            "rounds": rounds,
            "seed": seed,
            "method": method_config(method),
            "topology": topology or {"kind": "er", "p": 0.5 if clients < 20 else None},
            "data": {"alpha": 0.5},
            "evaluation": {"every": every},
            "world": world or {},
        }
    )
    directory = RunDirectory(path)
    directory.prepare(config)
    directory.event("started", round=0, engine="sequential")
    grow_run(directory, rounds if done is None else done, pool=pool, distinct=distinct)
    return directory


def make_grouped_runs(folder: Path) -> Truth:
    """The references of a world with two groups, a culprit and a client with noisy labels; the oracle drew as `rg`."""
    truth = Truth((0, 0, 1, 1, 0, 1, 0, 1), misbehaving=frozenset({2}), noisy=frozenset({4}))
    world = {"shift": "rotation", "label_noise": 0.5, "noisy": 0.125}
    for name in ("rg", "local", "oracle"):
        run = make_run(folder / name, method="rg" if name == "oracle" else name, world=world)
        write_truth(run.path, truth)
        file = run.path / "run.toml"
        file.write_text(file.read_text(encoding="utf-8").replace('id = "rg"', f'id = "{name}"'), encoding="utf-8")
    return truth


def grow_run(directory: RunDirectory, done: int, *, pool: int = 130, distinct: int | None = None) -> None:
    """Write the tables as they stand after `done` rounds."""
    config = directory.config
    options = {"p": config.topology.p} if config.topology.p is not None else {}
    graph = build(config.topology.kind, config.clients, config.seed, **options)
    states: dict[int, State] = {}
    made = [_round(directory, config, graph, number, pool, states) for number in range(min(done, distinct or done))]
    rows = [row | {"round": number} for number in range(done) for row in made[number % len(made)]]
    frame = pl.DataFrame(rows, schema=schema("decisions"))
    frame.write_parquet(directory.path / "decisions.parquet")
    metrics = [_metrics(config, number, frame.filter(pl.col("round") == number)) for number in range(done)]
    pl.DataFrame(metrics, schema=schema("metrics")).write_parquet(directory.path / "metrics.parquet")
    evaluated = [m["round"] for m in metrics if m["accuracy"] is not None]
    pl.DataFrame([row for n in evaluated for row in _clients(config, n)], schema=schema("clients")).write_parquet(
        directory.path / "clients.parquet"
    )
    timed = [{"round": n, "train": 0.4, "decide": 0.1} for n in range(done)]
    pl.DataFrame(timed, schema=schema("timings")).write_parquet(directory.path / "timings.parquet")
    if done == config.rounds:
        (directory.path / "summary.json").write_text(json.dumps({"method": config.method.id, "rounds": done}))
        directory.event("finished", rounds=done)


def _round(
    directory: RunDirectory, config: RunConfig, graph: Graph, number: int, pool: int, states: dict[int, State]
) -> list[dict[str, Any]]:
    rule = make(config.method.id, **config.method.options)
    rows, records = [], []
    for client in range(config.clients):
        peers = graph.neighbours(client)
        rng = stream(config.seed, "made", number, client)
        skill = rng.uniform(0.1, 0.9, (len(peers), 1))
        record = Recorded(
            client, peers.astype(np.int32), pool, (rng.random((len(peers), 128)) < skill).astype(np.float64)
        )
        key, before = (config.seed, number, client), states.get(client)
        outcome = replay_one(rule, record, key, number, config.rounds, before)
        assert outcome is not None
        if outcome.state is not None:
            states[client] = outcome.state
        rows.append(_decision(number, record, outcome))
        if outcome.anchors:
            asked = record.losses[:, : outcome.anchors]
            records.append(Recorded(client, record.peers, pool, asked))
    if records:
        write_losses(losses_path(directory.path, number), records)
    return rows


def _decision(number: int, record: Recorded, outcome: Outcome) -> dict[str, Any]:
    last = outcome.trace[-1] if outcome.trace else None
    row: dict[str, Any] = dict.fromkeys(schema("decisions"))
    row |= {
        "round": number,
        "client": record.client,
        "degree": len(record.peers),
        "pool": record.pool,
        "peers": record.peers.tolist(),
        "chosen": list(outcome.peers),
        "direction": outcome.direction,
        "selected": outcome.selected,
        "reason": outcome.reason.value,
        "anchors": outcome.anchors,
        "evaluations": outcome.evaluations,
        "stages": len(outcome.trace),
        "inspected": 0,
        "merged": len(outcome.peers),
        "transferred": len(outcome.peers),
        "probe_input_bytes": 784 * outcome.evaluations,
        "probe_answer_bytes": outcome.evaluations,
        "model_bytes": 100_000 * len(outcome.peers),
        "control_bytes": 0,
    }
    return row | {column.name: last and getattr(last, column.name) for column in LAST_LOOK}


def _metrics(config: RunConfig, number: int, rows: pl.DataFrame) -> dict[str, Any]:
    record: dict[str, Any] = dict.fromkeys(schema("metrics"))
    reasons = rows["reason"].to_list()
    sums = ("evaluations", "merged", "transferred", "model_bytes", "control_bytes")
    record |= {name: int(rows[name].sum()) for name in (*sums, "probe_input_bytes", "probe_answer_bytes", "degree")}
    record |= {name: reasons.count(name.removeprefix("reason_")) for name in record if name.startswith("reason_")}
    record |= {"round": number, "train_loss": 1 / (number + 1), "samples": 100}
    if (number + 1) % config.evaluation.every == 0 or number + 1 == config.rounds:
        own = [row["own_accuracy"] for row in _clients(config, number)]
        record |= {"accuracy": 0.9 - 0.6 / (number + 1), "macro_f1": 0.85 - 0.6 / (number + 1)}
        record |= {"client": float(np.mean(own)), "weak": min(own)}
    return record


def _clients(config: RunConfig, number: int) -> list[dict[str, Any]]:
    spread = stream(config.seed, "made-accuracy", number).uniform(0.4, 0.95, config.clients)
    return [
        {
            "round": number,
            "client": k,
            "accuracy": a / 2,
            "macro_f1": a / 2,
            "own_accuracy": a,
            "own_accuracy_before": a,
        }
        for k, a in enumerate(spread.tolist())
    ]
