"""Each published method against what its own paper says, on the smallest setting that shows it: `results/fidelity/`.

python tools/fidelity.py            # a few minutes on one core; `python tools/fidelity.py pens dfca` runs some again

Worlds (embedded Fashion-MNIST subset, small perceptron, 15 rounds, seeds 1 and 2):

rotated   12 clients in three groups whose images are turned by 0, 90 and 180 degrees; complete graph
skewed    12 clients, Dirichlet(.1) over labels, a 4-regular graph
whole     the same with 36 clients and heads shared as well, as consensus methods mean it
any       the same, complete graph
poisoned  12 clients, iid, complete graph; 3 of them hand over ruined models

A verdict is computed from our numbers by the rule in the method's entry below; a gain of less than a point counts as
none, and where bytes are saved a loss of less than a point does. "direction only" means that the paper's claim, or the
part of it that the rule looks at, points the same way here, but its figure is of another data set and scale;
"reproduced" is kept for figures that can be compared.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sagefl.data import Dataset
from sagefl.data.loading import load
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.comparing import method_config
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

POINT = 0.01
CLIENTS, GROUPS, ROUNDS, SEEDS = 12, 3, 15, (1, 2)
COLUMNS = ("method", "setting", "published", "ours", "verdict")
WHOLE = {"name": "mlp", "shared": ["body", "head"]}
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "rotated": {"data": {"partition": "owners"}, "topology": {"kind": "complete"}},
    "skewed": {"data": {"alpha": 0.1}, "topology": {"kind": "regular", "k": 4}},
    "whole": {"clients": 36, "data": {"alpha": 0.1}, "topology": {"kind": "regular", "k": 4}, "model": WHOLE},
    "any": {"clients": 36, "data": {"alpha": 0.1}, "topology": {"kind": "complete"}, "model": WHOLE},
    "poisoned": {
        "data": {"partition": "iid"},
        "topology": {"kind": "complete"},
        "network": {"misbehaviour": "poison", "misbehaving": 0.25},
    },
}


class Numbers(NamedTuple):
    """Means over seeds: accuracy on own and on test data, megabytes, models moved, share of picks in the group."""

    client: float
    accuracy: float
    megabytes: float
    moved: float
    within: float
    evaluations: float


@dataclass(frozen=True)
class Check:
    """What a paper says, and how we look for it."""

    setting: str
    published: str
    ours: Callable[[], tuple[str, bool | None]]  # what we found, and whether it points the same way (None: no test)


def direction(found: bool | None) -> str:
    return "not testable" if found is None else "direction only" if found else "not reproduced"


# Runs -----------------------------------------------------------------------------------------------------------------


@cache
def rotated() -> Dataset:
    """The embedded data dealt evenly to clients, images turned by their client's group."""
    whole = load()
    owners = np.arange(len(whole.train_y)) % CLIENTS
    turned = np.stack([np.rot90(x, int(o) % GROUPS, (1, 2)) for x, o in zip(whole.train_x, owners, strict=True)])
    return Dataset("rotated", turned, whole.train_y, whole.test_x, whole.test_y, classes=whole.classes, owners=owners)


@cache
def numbers(world: str, method: str) -> Numbers:
    """One method in one world, the mean over seeds."""
    return Numbers(*map(statistics.fmean, zip(*(one(world, method, seed) for seed in SEEDS), strict=True)))


def one(world: str, method: str, seed: int) -> Numbers:
    config = RunConfig.parse(
        {
            "clients": CLIENTS,
            "rounds": ROUNDS,
            "seed": seed,
            "model": {"name": "mlp"},
            "training": {"max_batches": 4},
            "evaluation": {"every": ROUNDS, "losses": "none", "mechanisms": False},
            "method": method_config(method),
            **WORLDS[world],
        }
    )
    made = World.build(config, rotated() if world == "rotated" else None)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        summary = Simulator(config, run, Execution(engine="sequential"), world=made).run()
        decisions = run.table("decisions").filter(run.table("decisions")["round"] >= ROUNDS // 2)
        picks = [(k, j) for k, chosen in decisions.select("client", "chosen").iter_rows() for j in chosen]
        return Numbers(
            float(np.mean([c for c, bad in zip(_final(run), made.culprits, strict=True) if not bad])),
            summary["accuracy"],
            float(run.table("decisions")["model_bytes"].sum()) / 1e6,
            float(run.table("decisions")["transferred"].mean() or 0.0),
            float(np.mean([k % GROUPS == j % GROUPS for k, j in picks])) if picks else float("nan"),
            float(summary["evaluations"]),
        )


def _final(run: RunDirectory) -> list[float]:
    table = run.table("clients")
    return table.filter(table["round"] == table["round"].max()).sort("client")["own_accuracy"].to_list()


# Kinds of checks ------------------------------------------------------------------------------------------------------


def finds_group(method: str) -> tuple[str, bool]:
    """It picks within its group more often than chance (3 of 11), and does better than random gossip."""
    it, gossip = numbers("rotated", method), numbers("rotated", "rg")
    text = (
        f"{it.within:.0%} of picks in the group (chance 27%); own accuracy {it.client:.3f}, gossip {gossip.client:.3f}"
    )
    return text, it.within > 0.4 and it.client > gossip.client


def beats(world: str, method: str, other: str, name: str) -> tuple[str, bool]:
    """Its own accuracy is a point above the other's."""
    it, base = numbers(world, method), numbers(world, other)
    return f"own accuracy {it.client:.3f}, {name} {base.client:.3f}", it.client >= base.client + POINT


def saves(world: str, method: str, other: str, name: str, points: float) -> tuple[str, bool]:
    """It moves less than the other and loses at most so much accuracy."""
    it, base = numbers(world, method), numbers(world, other)
    saved = f"{1 - it.megabytes / base.megabytes:.0%} fewer bytes than {name}"
    return (
        f"{saved}; own accuracy {it.client:.3f} against {base.client:.3f}",
        it.megabytes < base.megabytes and it.client > base.client - points,
    )


def epidemic() -> tuple[str, bool]:
    """A random graph every round against a static one of the same degree."""
    it, base = numbers("any", "epidemic:s=4"), numbers("whole", "d-psgd")
    text = f"test accuracy {it.accuracy:.3f}, static 4-regular D-PSGD {base.accuracy:.3f}"
    return text, it.accuracy >= base.accuracy + POINT


def robust(method: str) -> tuple[str, bool]:
    """With a quarter of the peers ruined: near what it reaches, above the plain average."""
    it, mean, alone = (numbers("poisoned", m) for m in (method, "d-psgd", "local"))
    text = f"own accuracy of honest clients {it.client:.3f}; plain average {mean.client:.3f}, alone {alone.client:.3f}"
    text += f"; {it.moved:.1f} of 11 models fetched" if method == "sketchguard" else ""
    return text, it.client > mean.client


def consensus() -> tuple[str, bool]:
    """Accuracy on everybody's data rises with averaging, from label-skewed data."""
    it, alone = numbers("whole", "d-psgd"), numbers("whole", "local")
    return f"test accuracy {it.accuracy:.3f}, alone {alone.accuracy:.3f}", it.accuracy >= alone.accuracy + POINT


def keeps_up(method: str) -> tuple[str, bool]:
    """Fewer bytes than D-PSGD, and test accuracy within three points of it."""
    it, base = numbers("whole", method), numbers("whole", "d-psgd")
    saved = f"{1 - it.megabytes / base.megabytes:.0%} fewer bytes than D-PSGD"
    text = f"{saved}; test accuracy {it.accuracy:.3f} against {base.accuracy:.3f}"
    return text, it.megabytes < base.megabytes and it.accuracy > base.accuracy - 0.03


def race() -> tuple[str, bool]:
    """Dropping losers early costs less than asking everybody everything."""
    it, brute = numbers("rotated", "hoeffding-race:finish=commit"), numbers("rotated", "aq-128")
    saved = f"{1 - it.evaluations / brute.evaluations:.0%} fewer evaluations than aq-128"
    return (
        f"{saved}; picks in the group {it.within:.0%} against {brute.within:.0%}",
        it.evaluations < brute.evaluations and it.within > 0.4,
    )


def nothing() -> tuple[str, None]:
    return "only its abstract is public: nothing to compare with", None


CHECKS: Mapping[str, Check] = {
    "pens": Check("rotated", "finds clients of its distribution, higher accuracy than baselines (abstract)",
                  lambda: finds_group("pens-original")),
    "fedfomo": Check("rotated", "weighs models by what they gain it, higher accuracy than baselines (abstract)",
                     lambda: finds_group("fedfomo")),
    "dpfl": Check("rotated", "at least as good as any other structure, local training included (abstract)",
                  lambda: finds_group("dpfl")),
    "federico": Check("rotated", "learns from others as much as is good for its data (abstract)",
                      lambda: finds_group("federico")),
    "pfeddst": Check("skewed", "higher accuracy than decentralised baselines (abstract)",
                     lambda: beats("skewed", "pfeddst", "rg", "gossip")),
    "dfca": Check("rotated", "outperforms decentralised algorithms, comparable with IFCA (abstract)",
                  lambda: beats("rotated", "dfca:k=3", "d-psgd", "D-PSGD")),
    "epidemic": Check("any, whole", "2.2 points more accuracy than static graphs, CIFAR-10, 96 nodes (abstract)",
                      epidemic),
    "d-psgd": Check("whole", "converges to a consensus, linear speed-up (abstract)", consensus),
    "choco": Check("whole", "communication reduced by at least two orders of magnitude (abstract)",
                   lambda: keeps_up("choco")),
    "dispfl": Check("skewed", "higher accuracy at half the density (abstract)",
                    lambda: saves("skewed", "dispfl", "dispfl:density=1.0", "dense", POINT)),
    "da-dpfl": Check("skewed", "higher accuracy, up to 5 times less energy (abstract)",
                     lambda: saves("skewed", "da-dpfl:wait=0", "dispfl", "DisPFL", POINT)),
    "dfedpgp": Check("skewed", "state-of-the-art accuracy under heterogeneity (abstract)",
                     lambda: beats("skewed", "dfedpgp", "rg", "gossip")),
    "ocd-fl": Check("skewed", "similar or better than full collaboration with 30% to 80% less energy (abstract)",
                    lambda: saves("skewed", "ocd-fl", "d-psgd", "D-PSGD", POINT)),
    "gossip-learning": Check("whole", "comparable with federated averaging (abstract)",
                             lambda: keeps_up("gossip-learning")),
    "hoeffding-race": Check("rotated", "finds the best model with less work than brute force (abstract)", race),
    "sketchguard": Check("poisoned", "error within .5 points of full-precision screening, 50% to 70% fewer bytes when "
                         "as many are rejected (abstract)", lambda: robust("sketchguard")),
    "median": Check("poisoned", "order-optimal error below one half of bad machines (abstract)",
                    lambda: robust("median")),
    "dflstar-lite": Check("none", "less communication to a target accuracy (abstract)", nothing),
    "dfedmq-lite": Check("none", "unknown", nothing),
    "cfns-lite": Check("none", "unknown", nothing),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="default: all")
    parser.add_argument("--out", type=Path, default=Path("results/fidelity"))
    args = parser.parse_args()
    path = args.out / "checks.csv"
    args.out.mkdir(parents=True, exist_ok=True)
    kept = {row["method"]: row for row in csv.DictReader(path.open(encoding="utf-8"))} if path.exists() else {}
    for method in args.methods or CHECKS:
        check = CHECKS[method]
        found, holds = check.ours()
        kept[method] = dict(
            zip(COLUMNS, (method, check.setting, check.published, found, direction(holds)), strict=True)
        )
        print(f"{method}: {kept[method]['verdict']}: {found}", flush=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept[m] for m in CHECKS if m in kept)


if __name__ == "__main__":
    main()
