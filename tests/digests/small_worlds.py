"""The small runs: every method, every engine, every kind of trouble, each through `sagefl run`.

Eight clients and three rounds on embedded images: SAGE-OS certifies, stops for cost and exhausts its pool, and one
client has too few anchors to probe.
"""

from __future__ import annotations

import time
from pathlib import Path

from commands import Lab, apart, sagefl
from digesting import Parts, claims_part, csv_part, part, run_parts

SMALL = [
    "--clients", "8", "--rounds", "3", "--alpha", ".1", "--eval-every", "2", "--max-batches", "4", "--quiet",
    "--set", "topology.p=.6", "--set", "model.name=mlp", "--set", "model.options.hidden=8",
    "--set", "training.batch_size=16", "--set", "training.learning_rate=.03", "--set", "evaluation.subset=100",
]  # fmt: skip
ONE = ["--engine", "sequential"]
TWO = ["--engine", "processes", "--workers", "2"]
STACKED = ["--engine", "stacked", "--workers", "1", "--device", "cpu"]
RAY = ["--engine", "ray", "--workers", "2", "--ray-address", "local"]
ROUGH = ["network.available=.8", "network.drop=.1", "network.delay=.5", "network.max_delay=2", "topology.p=.9"]
LIARS = ["network.misbehaving=.34", "topology.p=.9"]
LONG = ["--rounds", "12"]  # so that it can be killed on the way


def _set(*keys: str) -> list[str]:
    return [word for key in keys for word in ("--set", key)]


RUNS: dict[str, list[str]] = {
    "stacked sage-os": ["--method", "sage-os", *STACKED],
    "stacked pens": ["--method", "pens", *STACKED],
    "rough sage-os": ["--method", "sage-os", *ONE, *_set(*ROUGH, *LIARS, "network.misbehaviour=flatter-poison")],
    "rough pens": ["--method", "pens", *ONE, *_set(*ROUGH)],
    "rough choco": ["--method", "choco", *ONE, *_set(*ROUGH)],
    "churn sage-e-trim": ["--method", "sage-e-trim", *ONE, *_set("network.available=.6", "topology.p=.9")],
    "delay dfedpgp": ["--method", "dfedpgp", *ONE, *_set("network.delay=.5", "network.max_delay=2")],
    "drop d-psgd": ["--method", "d-psgd", *ONE, *_set("network.drop=.3")],
    "wrong answers sage-e": ["--method", "sage-e", *ONE, *_set(*LIARS, "network.misbehaviour=wrong-answers")],
    "flatter aq-128": ["--method", "aq-128", *ONE, *_set(*LIARS, "network.misbehaviour=flatter")],
    "poison rg": ["--method", "rg", *ONE, *_set(*LIARS, "network.misbehaviour=poison")],
    "private k-rr": ["--method", "sage-os", *ONE, *_set("privacy.epsilon=4")],
    "private bitwise": ["--method", "sage-e", *ONE, *_set("privacy.epsilon=2", "privacy.mechanism=bitwise")],
    "full losses sage-os": ["--method", "sage-os", *ONE, *_set("evaluation.losses=full")],
    "full losses sage-e": ["--method", "sage-e", *ONE, *_set("evaluation.losses=full")],
    "no losses": ["--method", "sage-os", *ONE, *_set("evaluation.losses='none'", "evaluation.mechanisms=false")],
    "latents sage-e": ["--method", "sage-e:kind=latents", *ONE],
    "latents ce sage-e": ["--method", "sage-e:kind=latents:loss=ce", *ONE],
    "probs sage-e": ["--method", "sage-e:kind=probs", *ONE],
    "probs ce sage-e": ["--method", "sage-e:kind=probs:loss=ce:loss_bound=2", *ONE],
    "probs ce sage-vanilla": ["--method", "sage-vanilla:kind=probs:loss=ce:loss_bound=1.5", *ONE],
    "gated sage-e": ["--method", "sage-e:screen=8:gate=true:pick=uniform:stop=voi", *ONE, "--rounds", "4"],
    "fixed anchors": ["--method", "sage-os:radius=tight", *ONE, *_set("data.anchor_order=fixed")],
    "shards, scale-free": [
        "--method", "sage-nf", "--topology", "ba", *ONE,
        *_set("data.partition=shards", "topology.p=none", "topology.m=2"),
    ],
    "sgd, iid": [
        "--method", "rg", *ONE,
        *_set("data.partition=iid", "training.optimizer=sgd", "training.momentum=.9", "training.weight_decay=.01"),
    ],
    "optimizer reset": ["--method", "pfeddst", *ONE, *_set("training.reset_optimizer=true", "training.epochs=2")],
    "encoder-decoder": [
        "--method", "sage-os:kind=latents", *ONE, "--clients", "4",
        *_set("model.name=encoder-decoder", "model.options={}"),
    ],
    "groups by labels, oracle": [
        "--method", "oracle", *ONE, *_set("world.shift=labels", "world.groups=3", "topology.p=.9"),
    ],
    "groups by rotation, sage-e": [
        "--method", "sage-e", *ONE, *_set("world.shift=rotation", "world.strength=30", "world.assign=graph"),
    ],
    "groups by noise, rg": [
        "--method", "rg", *ONE,
        *_set("world.shift=noise", "world.sizes=[3,1]", "world.noisy=.25", "world.label_noise=.5"),
    ],
    "groups by label set, aq-128": [
        "--method", "aq-128", *ONE, *_set("world.shift=label-set", "data.partition=iid"),
    ],
    "free riders, d-psgd": ["--method", "d-psgd", *ONE, *_set(*LIARS, "network.misbehaviour=free-rider")],
    "stale peers, sage-os": [
        "--method", "sage-os", *ONE, *_set(*LIARS, "network.misbehaviour=stale", "network.stale=2", "network.churn=.5"),
    ],
    "async clock, sage-e": ["--method", "sage-e", *ONE, *_set("clock.network=phones", "clock.schedule=async")],
    "deadline clock, rg": [
        "--method", "rg", *ONE, *_set("clock.network=phones", "clock.schedule=deadline", "clock.deadline=.3"),
    ],
    "regression, sage-e": ["--method", "sage-e", *ONE, *_set("data.task=regression")],
    "own loss, sage-e": ["--method", "sage-e", *ONE, *_set("data.loss=own_code:cost")],
    "owners, aq-128": [
        "--method", "aq-128", "--dataset", "own_code:owned", *ONE, "--clients", "6", *_set("data.partition=owners"),
    ],
    "batch norm, d-psgd": ["--method", "d-psgd", *ONE, *_set("model.name=own_code:Normed", "model.options={}")],
    "exchanged buffers, rg": [
        "--method", "rg", *ONE, *_set("model.name=own_code:Normed", "model.options={}", "model.buffers=exchanged"),
    ],
    "bfloat16, rg": ["--method", "rg", *ONE, *_set("training.precision=bfloat16")],
    "uninterrupted": ["--method", "sage-e", *ONE, *LONG],
}  # fmt: skip
ALIKE: dict[str, tuple[list[str], str]] = {  # carried out otherwise, with the numbers of another run
    "processes sage-os": (["--method", "sage-os", *TWO], "method sage-os"),
    "processes pens": (["--method", "pens", *TWO], "method pens"),
    "ray sage-os": (["--method", "sage-os", *RAY], "method sage-os"),
}


def run(lab: Lab, name: str) -> Path:
    """The folder of a run."""
    if name == "resumed":
        return lab.made(name, _killed_and_resumed)
    if name.startswith("method "):
        arguments = ["--method", name.removeprefix("method "), *ONE]
    else:
        arguments = ALIKE[name][0] if name in ALIKE else RUNS[name]
    if "ray" in arguments:  # with threads and warnings of its own
        return lab.made(name, lambda out: _finished(*SMALL, *arguments, "--out", out))
    return lab.made(name, lambda out: sagefl("run", *SMALL, *arguments, "--out", out))


def _finished(*arguments: object) -> None:
    process = apart("run", *arguments)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


def _killed_and_resumed(out: Path) -> None:
    """`uninterrupted`, killed once it has a checkpoint, and gone on with."""
    process = apart("run", *SMALL, *RUNS["uninterrupted"], "--checkpoint-every", "1", "--out", out)
    until = time.monotonic() + 120
    while not list(out.glob("checkpoint/round-0000[2-9]")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "no checkpoint in time"
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert not (out / "summary.json").exists(), "it was done before it could be killed: make the run longer"
    sagefl("resume", out, *ONE, "--quiet")


def compared(lab: Lab) -> Parts:
    """`sagefl compare`: methods in one world; each is the run that `sagefl run` makes."""
    out = lab.made("compare", lambda out: sagefl("compare", *SMALL, *ONE, "--methods", "rg,sage-os", "--out", out))
    found = {path.parent.name: run_parts(path.parent) for path in sorted(out.rglob("run.toml"))}
    return {f"{name} {what}": held for name, parts in found.items() for what, held in parts.items()}


REPLAYS = (
    ("full losses sage-os", ["--method", "sage-os", "--lambda", "0,5e-4,2e-3", "--delta", ".05,.1"]),
    ("full losses sage-os", ["--method", "sage-e", "--sweep", "stop=none,voi,predictive"]),
    ("full losses sage-e", ["--method", "sage-e-trim", "--lambda", "0,2e-3"]),
    ("private k-rr", ["--method", "sage-os", "--lambda", "0,2e-3"]),
    ("method sage-os", ["--method", "sage-os"]),
)


def replayed(lab: Lab) -> Parts:
    """`sagefl replay` on recorded losses: a part per sweep, its rows as printed."""
    found = {}
    for name, arguments in REPLAYS:
        printed = sagefl("replay", run(lab, name), *arguments).splitlines()
        rows = [line.split() for line in printed if line.startswith(arguments[1])]
        found[f"{name}: {' '.join(arguments)}"] = part(rows, len(rows))
    return found


STUDY = [
    "--preset", "smoke", "--clients", "6", "--rounds", "3", "--topologies", "er", "--alphas", ".3", "--seeds", "1-2",
    "--methods", "local,rg,aq-128,pfeddst,sage-os,sage-os-table", "--max-batches", "1", "--set", "topology.degree=4",
    "--set", "evaluation.every=3", "--set", "evaluation.subset=50", "--jobs", "1", "--workers", "1", "--no-pages", "-q",
]  # fmt: skip


def studied(lab: Lab) -> Parts:
    """The smoke study at its smallest: cells, sweeps, tables and claims."""
    cells = lab.folder / "cells"
    out = lab.made("study", lambda out: sagefl("study", "paper", *STUDY, "--out", out, "--cells", cells))
    return study_parts(out)


def study_parts(out: Path) -> Parts:
    """What a study of the paper writes, but for figures and prose."""
    tables = {f"table {path.stem}": csv_part(path) for path in sorted((out / "tables").glob("*.csv"))}
    return tables | {
        "cells": csv_part(out / "cells.csv", accuracy="accuracy", client="client"),
        "sweeps": csv_part(out / "sweeps.csv"),
        "claims": claims_part(out / "claims.csv"),
    }
