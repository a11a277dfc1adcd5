"""What no CPU changes: decisions on given losses, addresses of configs, partitions, graphs, messages, columns."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import numpy as np
from commands import ROOT, Lab, sagefl
from digesting import Parts, array, columns, csv_part, part, rounded
from small_worlds import run, study_parts

# Decisions ------------------------------------------------------------------------------------------------------------

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        id: (id, {})
        for id in (
            "local", "rg", "aq-128", "sage-nf", "sage-vanilla", "sage-os", "sage-os-table",
            "sage-e", "sage-e-trim", "sage-e-vanilla",
        )
    },
    "aq-128, another schedule": ("aq-128", {"schedule": (8, 24)}),
    "sage-vanilla, M = 2": ("sage-vanilla", {"loss_bound": 2, "ties": "lowest-index"}),
    "sage-os, tight": ("sage-os", {"radius": "tight"}),
    "sage-os, free": ("sage-os", {"probe_cost": 0}),
    "sage-os, another schedule": ("sage-os", {"schedule": (8, 24, 100), "stages": "feasible", "delta": 0.3}),
    "sage-e, no stop": ("sage-e", {"stop": "none"}),
    "sage-e, voi": ("sage-e", {"stop": "voi", "probe_cost": 0.005}),
    "sage-e, uniform": ("sage-e", {"stop": "none", "pick": "uniform"}),
    "sage-e, screened": ("sage-e", {"stop": "none", "screen": 16}),
    "sage-e, margin": ("sage-e", {"stop": "none", "margin": 0.1}),
    "sage-e, at the stages": ("sage-e", {"looks": "stages", "probe_cost": 0}),
    "sage-e, gate": ("sage-e", {"gate": True}),
    "sage-e-trim, no stop": ("sage-e-trim", {"stop": "none"}),
    "sage-e-vanilla, delta .3": ("sage-e-vanilla", {"delta": 0.3}),
}  # fmt: skip
RISKS = {
    "one is better": (0.1, 0.5, 0.6, 0.6, 0.7),
    "two are better": (0.1, 0.1, 0.6, 0.7),
    "all alike": (0.4, 0.4, 0.4, 0.4),
    "two": (0.2, 0.8),
    "one alone": (0.5,),
    "barely": (0.40, 0.42, 0.44, 0.5, 0.5, 0.5, 0.55),
}


def losses(world: str, anchors: int, seed: int) -> np.ndarray:
    """Peers x anchors, 0 or 1; peers are asked the same anchors, some of which are hard for all."""
    risks = np.array(RISKS[world])[:, None]
    rng = np.random.default_rng(seed)
    hard, own = rng.random((1, anchors)), rng.random((len(risks), anchors))
    return np.asarray(np.where(rng.random((1, anchors)) < 0.3, hard, own) < risks, np.float64)


def decisions(lab: Lab) -> Parts:
    """The outcome of every rule in every world, as `sagefl decide --json` prints it."""
    from internals import make, replay

    worlds = [(world, anchors, seed) for world in RISKS for anchors in (140, 40, 6) for seed in range(3)]
    found = {}
    for name, (id, options) in RULES.items():
        rule = make(id, **options)
        said = [json.loads(replay(rule, losses(*world), world[2]).to_json()) for world in worlds]
        found[name] = part(rounded(said), len(said), certified=np.mean([s["reason"] == "certified" for s in said]))
    path = lab.folder / "losses.npy"
    np.save(path, losses("one is better", 140, 0))
    printed = json.loads(sagefl("decide", path, "--method", "sage-os:radius=tight", "--seed", 3, "--json"))
    return found | {"sagefl decide": part(rounded(printed), len(printed))}


def theory(lab: Lab) -> Parts:
    """`sagefl plan` and `sagefl regret`: the numbers they print."""
    prints = {
        "plan": sagefl("plan"),
        "plan, tight": sagefl("plan", "--degree", 10, "--radius", "tight", "--cost", "cumulative", "--bound", 2),
        "regret": sagefl("regret", "--decisions", 20),
    }
    rows = {name: [re.findall(r"[-+]?\d+\.?\d*", line) for line in text.splitlines()] for name, text in prints.items()}
    return {name: part([row for row in held if len(row) > 2], len(held)) for name, held in rows.items()}


# Configs --------------------------------------------------------------------------------------------------------------

STATUS = {
    "paper smoke": ["paper", "--preset", "smoke"],
    "paper laptop": ["paper", "--preset", "laptop"],
    "paper paper": ["paper", "--preset", "paper"],
    "paper, seeds 1-5": ["paper", "--preset", "laptop", "--seeds", "1-5"],
    "beyond smoke": ["beyond", "--preset", "smoke"],
    "beyond laptop": ["beyond", "--preset", "laptop"],
    "beyond confirmation": ["confirmation", "--preset", "laptop"],
}
VARIANTS = {
    "defaults": [],
    "data": [
        "seed=7",
        "data.partition=shards",
        "data.shards=3",
        "data.anchor=.2",
        "data.eval=.2",
        "data.min_samples=5",
    ],
    "anchors": ["data.partition=iid", "data.anchor_order=fixed"],
    "graph": ["topology.degree=none", "topology.p=.3", "topology.seed=3"],
    "network": ["network.available=.9", "network.drop=.1", "network.delay=.1", "network.max_delay=3"],
    "misbehaviour": ["network.misbehaviour=flatter", "network.misbehaving=.2"],
    "model": ["model.name=encoder-decoder", "model.options.hidden=8"],
    "training": ["training.learning_rate=.01", "training.batch_size=16", "training.epochs=2", "training.mixing=.3"],
    "training, later keys": ["training.optimizer=sgd", "training.momentum=.9", "training.weight_decay=.1"],
    "method": ["method.options.delta=.2", "method.options.lambda=0"],
    "evaluation": [
        "evaluation.every=7",
        "evaluation.subset=0",
        "evaluation.mechanisms=false",
        "evaluation.losses=full",
    ],
    "privacy": ["privacy.epsilon=2", "privacy.mechanism=bitwise"],
    "privacy, not used": ["privacy.mechanism=bitwise"],
}


def addresses(lab: Lab) -> Parts:
    """The cells of every study, and of one cell with other settings, by the hash of their configs."""
    found = {name: _cells(lab, *arguments) for name, arguments in STATUS.items()}
    one = ["paper", "--topologies", "er", "--alphas", ".1", "--methods", "sage-os"]
    for name, keys in VARIANTS.items():
        found[f"a cell: {name}"] = _cells(lab, *one, *(word for key in keys for word in ("--set", key)))
    return {name: part(rows, len(rows)) for name, rows in found.items()}


def _cells(lab: Lab, *arguments: str) -> list[list[str]]:
    """Cells as `--status` lists them, without how they stand: that depends on the machine."""
    printed = sagefl("study", *arguments, "--status", "--cells", lab.folder / "nothing").splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in printed[1:]]
    return [[*row[:5], row[-1]] for row in rows if len(row) == 7]


def resolved(lab: Lab) -> Parts:
    """`sagefl config`: every key with its default."""
    text = sagefl("config", "--set", "seed=1")
    return {"defaults": part(text.strip(), len(text.splitlines()))}


# Worlds, messages, columns --------------------------------------------------------------------------------------------


def partitions(lab: Lab) -> Parts:
    """Who holds which sample in which role, and the order of anchors in a round."""
    from internals import IID, Dirichlet, Federation, Shards, load

    data = load("fmnist-mini")
    ways: dict[str, Any] = {
        "dirichlet .1": Dirichlet(0.1),
        "dirichlet .3": Dirichlet(0.3),
        "shards": Shards(2),
        "iid": IID(),
    }
    found = {}
    for name, way in ways.items():
        dealt = Federation.build(data, way, 10, seed=1)
        held = [[array(roles.train), array(roles.anchor), array(roles.eval)] for roles in dealt.roles]
        asked = [array(dealt.anchors(client, 2)) for client in range(10)]
        found[name] = part([held, asked], sum(len(roles.all) for roles in dealt.roles))
    return found


GRAPHS: dict[str, dict[str, Any]] = {
    "er": {"p": 0.3}, "ba": {"m": 3}, "ring": {}, "regular": {"k": 4}, "ws": {"k": 4, "p": 0.2}, "torus": {},
    "complete": {},
}  # fmt: skip


def graphs(lab: Lab) -> Parts:
    """Neighbours on every family of graphs."""
    from internals import GraphKind, build

    assert set(GRAPHS) | {"file"} == set(get_args(GraphKind))
    made = {kind: [build(kind, 16, seed, **options) for seed in (1, 2)] for kind, options in GRAPHS.items()}
    around = {kind: [[g.neighbours(k).tolist() for k in range(16)] for g in two] for kind, two in made.items()}
    return {kind: part(held, sum(len(n) for g in held for n in g)) for kind, held in around.items()}


def messages(lab: Lab) -> Parts:
    """Every message between nodes with every field set, as bytes."""
    from internals import node_pb2

    found = {}
    for name, kind in sorted(node_pb2.DESCRIPTOR.message_types_by_name.items()):
        message = getattr(node_pb2, name)()
        for field in kind.fields:
            value = _filling(field)
            if field.is_repeated:
                getattr(message, field.name).extend([value, value + 1])
            else:
                setattr(message, field.name, value)
        raw = message.SerializeToString(deterministic=True)
        found[name] = part(raw, len(raw))
    return found


def _filling(field: Any) -> Any:
    if field.name == "kind":
        return 1  # the number of a form of answer
    numbers = {field.CPPTYPE_DOUBLE: 0.5, field.CPPTYPE_BOOL: True, field.CPPTYPE_ENUM: 1}
    words = {field.TYPE_STRING: f"text {field.number}", field.TYPE_BYTES: bytes([field.number, 0, 255])}
    return words.get(field.type, numbers.get(field.cpp_type, 300 + field.number))


def table_columns(lab: Lab) -> Parts:
    """Names and types of the columns that a run writes, plainly and with private answers."""
    found = {name: columns(run(lab, name)) for name in ("method sage-os", "private k-rr")}
    return {f"{name}: {t}": part(list(c.items()), len(c)) for name, held in found.items() for t, c in held.items()}


# From cells that are checked in -------------------------------------------------------------------------------------


def beyond(lab: Lab) -> Parts:
    """The account of the trained-model experiment from its cells."""
    held = ROOT / "results" / "beyond-laptop"
    asked = ["--preset", "laptop", "--no-run", "--known", held, "--cells", lab.folder / "nothing", "-q"]
    out = lab.made("beyond", lambda out: sagefl("study", "beyond", *asked, "--out", out))
    return {
        "the cells that are checked in": csv_part(held / "cells.csv"),
        "cells": csv_part(out / "cells.csv"),
        "comparisons": csv_part(out / "comparisons.csv"),
    }


def merged(lab: Lab) -> Parts:
    """The study of the paper from the cells of two studies that are checked in."""
    held = [ROOT / "results" / name for name in ("laptop-fmnist-er-0.1", "laptop-fmnist-ba-0.3")]
    given = [word for folder in held for word in ("--from", folder)]
    out = lab.made("merged", lambda out: sagefl("study", "paper", *given, "--out", out, "-q"))
    return {f"checked in: {f.name}": csv_part(f / "cells.csv") for f in held} | study_parts(out)
