"""Each published method against what its own paper says, on the smallest setting that shows it: `results/fidelity/`.

python tools/fidelity.py            # ten minutes on one core; `python tools/fidelity.py pens dfca` runs some again

Worlds (seeds 1 and 2; the embedded 10,000 images of Fashion-MNIST and a small perceptron, for want of the papers' own
data sets and models, which are CIFAR-10 and convolutions mostly; 15 rounds of four mini-batches unless it says more):

rotated   20 clients of 500 images in four groups, turned by 0, 90, 180 and 270 degrees; complete graph. PENS, IFCA and
          DFCA have such worlds: PENS with Fashion-MNIST, too (its code: 200 clients of 400 images, two groups), IFCA
          and DFCA with MNIST (their code: 1,200 clients of 200 images, four groups, a perceptron of 200 units)
skewed    12 clients, Dirichlet(.1) over labels, a 4-regular graph
merged    the same with heads shared as well, as consensus methods mean it
whole     that with 36 clients
any       the same, complete graph
steps     9 clients on a ring, Dirichlet(.1), whole models, 200 rounds of one step of SGD each, as analyses of D-PSGD
          and CHOCO have it
poisoned  12 clients, iid, complete graph; 3 of them hand over ruined models

A verdict is computed from our numbers by the rule in the method's entry below; a gain of less than a point counts as
none, and where bytes are saved a loss of less than a point does. "direction only" means that the paper's claim, or the
part of it that the rule looks at, points the same way here, but its figure is of another data set and scale;
"reproduced" is kept for figures that can be compared. `why` says what is in the way, for every row without that
verdict. `version` is that of the method's results when the row was made: a row of an older one is stale.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from sagefl.data import Dataset
from sagefl.data.loading import load
from sagefl.learning.tasks import Tasks
from sagefl.runs import versions
from sagefl.runs.config import Execution, RunConfig, method_config
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

POINT = 0.01
GROUPS, ROUNDS, STEPS, SEEDS = 4, 15, 200, (1, 2)
COLUMNS = ("method", "setting", "data", "published", "ours", "verdict", "why", "version")
WHOLE = {"name": "mlp", "shared": ["body", "head"]}
SKEWED = {"data": {"alpha": 0.1}, "topology": {"kind": "regular", "k": 4}}
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "rotated": {"clients": 20, "data": {"partition": "owners"}, "topology": {"kind": "complete"}},
    "skewed": SKEWED,
    "merged": {**SKEWED, "model": WHOLE},
    "whole": {**SKEWED, "clients": 36, "model": WHOLE},
    "any": {**SKEWED, "clients": 36, "model": WHOLE, "topology": {"kind": "complete"}},
    "steps": {
        "clients": 9, "rounds": STEPS, "data": {"alpha": 0.1}, "topology": {"kind": "ring"}, "model": WHOLE,
        "training": {"optimizer": "sgd", "max_batches": 1, "learning_rate": 0.05},
    },
    "poisoned": {
        "data": {"partition": "iid"},
        "topology": {"kind": "complete"},
        "network": {"misbehaviour": "poison", "misbehaving": 0.25},
    },
}  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """What a run came to, or several in the mean."""

    client: float  # accuracy on clients' own data, culprits left out
    before: float  # the same before the last merge
    accuracy: float  # on the test set
    megabytes: float
    moved: float  # models per client-round
    within: float  # share of picks in one's group, in the second half
    evaluations: float
    recovered: float  # share of clients in the cluster that stands for their group
    average: tuple[float, ...]  # test accuracy of the average of all models, at each tenth of the run
    apart: tuple[float, ...]  # root mean square distance from that average, likewise


@dataclass(frozen=True)
class Check:
    """What a paper says, and how we look for it."""

    setting: str
    published: str
    ours: Callable[[], tuple[str, bool | None]]  # what we found, and whether it points the same way (None: no test)
    why: str = ""  # what is in the way of more


def direction(found: bool | None) -> str:
    return "not testable" if found is None else "direction only" if found else "not reproduced"


# Runs -----------------------------------------------------------------------------------------------------------------


@cache
def rotated() -> Dataset:
    """The embedded data dealt evenly to clients, images turned by their client's group."""
    whole, clients = load(), WORLDS["rotated"]["clients"]
    owners = np.arange(len(whole.train_y)) % clients
    turned = np.stack([np.rot90(x, int(o) % GROUPS, (1, 2)) for x, o in zip(whole.train_x, owners, strict=True)])
    return Dataset("rotated", turned, whole.train_y, whole.test_x, whole.test_y, classes=whole.classes, owners=owners)


@cache
def numbers(world: str, method: str, rounds: int = 0) -> Numbers:
    """One method in one world, the mean over seeds; `rounds` other than the world's."""
    runs = [one(world, method, seed, rounds) for seed in SEEDS]
    return Numbers(*(_mean([getattr(run, field.name) for run in runs]) for field in fields(Numbers)))


def _mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], tuple):
        return tuple(map(statistics.fmean, zip(*values, strict=True)))
    return statistics.fmean(values)


def one(world: str, method: str, seed: int, rounds: int) -> Numbers:
    document = {
        "clients": 12,
        "rounds": ROUNDS,
        "model": {"name": "mlp"},
        "training": {"max_batches": 4},
        **WORLDS[world],
        "seed": seed,
        "method": method_config(method),
    }
    rounds = rounds or document["rounds"]
    evaluation = {"every": rounds, "losses": "none", "mechanisms": False}
    config = RunConfig.parse(document | {"rounds": rounds, "evaluation": evaluation})
    made = World.build(config, rotated() if world == "rotated" else None)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        simulator = Simulator(config, run, Execution(engine="sequential"), world=made)
        watch = Consensus(simulator)
        summary = simulator.run()
        decisions = run.table("decisions")
        late = decisions.filter(decisions["round"] >= rounds // 2)
        picks = [(k, j) for k, chosen in late.select("client", "chosen").iter_rows() for j in chosen]
        honest = [c for c, bad in zip(_final(run), made.culprits, strict=True) if not bad]
        return Numbers(
            float(np.mean(honest)),
            summary["before_client"],
            summary["accuracy"],
            float(decisions["model_bytes"].sum()) / 1e6,
            float(decisions["transferred"].mean() or 0.0),
            float(np.mean([k % GROUPS == j % GROUPS for k, j in picks])) if picks else float("nan"),
            float(summary["evaluations"]),
            _recovered(getattr(simulator.method.exchange, "clusters", {})),
            tuple(watch.average),
            tuple(watch.apart),
        )


class Consensus:
    """Looks at all models together after a run's mixes, ten times a run."""

    def __init__(self, simulator: Simulator) -> None:
        self.average: list[float] = []
        self.apart: list[float] = []
        rounds, layer = simulator.config.rounds, simulator.method.exchange
        plain = layer.mix

        def mix(tasks: Tasks, round: int, mixes: Any) -> None:
            plain(tasks, round, mixes)
            if (round + 1) * 10 // rounds > round * 10 // rounds:
                self._look(tasks)

        layer.mix = mix  # type: ignore[method-assign]

    def _look(self, tasks: Any) -> None:
        models, bench = tasks.population.params, tasks._bench
        mean, samples = models.mean(0), np.arange(len(bench.corpus.test_y))
        bench.layout.bind(bench.model, mean)
        right = bench.infer(bench.corpus.test_x, samples).argmax(1) == bench.corpus.test_y
        self.average.append(float(right.float().mean()))
        shared = bench.layout.shared
        self.apart.append(float((models - mean)[:, shared].square().sum(1).mean().sqrt()))


def _recovered(clusters: Mapping[int, int]) -> float:
    """The share of clients in the cluster that stands for their group, by the best assignment of clusters to groups."""
    if not clusters:
        return float("nan")
    names = range(max(GROUPS, 1 + max(clusters.values())))
    ways = permutations(names, GROUPS)
    return max(sum(way[k % GROUPS] == c for k, c in clusters.items()) for way in ways) / len(clusters)


def _final(run: RunDirectory) -> list[float]:
    table = run.table("clients")
    return table.filter(table["round"] == table["round"].max()).sort("client")["own_accuracy"].to_list()


# Kinds of checks ------------------------------------------------------------------------------------------------------


def finds_group(method: str) -> tuple[str, bool]:
    """It picks within its group twice as often as chance (4 of 19), and does a point better than random gossip."""
    it, gossip = numbers("rotated", method), numbers("rotated", "rg")
    text = (
        f"{it.within:.0%} of picks in the group (chance 21%); own accuracy {it.client:.3f}, gossip {gossip.client:.3f}"
    )
    return text, it.within > 0.42 and it.client >= gossip.client + POINT


def beats(world: str, method: str, other: str, name: str) -> tuple[str, bool]:
    """Its own accuracy is a point above the other's."""
    it, base = numbers(world, method), numbers(world, other)
    return f"own accuracy {it.client:.3f}, {name} {base.client:.3f}", it.client >= base.client + POINT


def saves(world: str, method: str, other: str, name: str) -> tuple[str, bool]:
    """It moves less than the other and loses less than a point of accuracy."""
    it, base = numbers(world, method), numbers(world, other)
    saved = f"{1 - it.megabytes / base.megabytes:.0%} fewer bytes than {name}"
    return (
        f"{saved}; own accuracy {it.client:.3f} against {base.client:.3f}",
        it.megabytes < base.megabytes and it.client > base.client - POINT,
    )


def recovers() -> tuple[str, bool]:
    """More clients end in the cluster of their group than the authors' own 63%, and do a point better than D-PSGD's."""
    it, base = numbers("rotated", "dfca"), numbers("rotated", "d-psgd")
    found = f"{it.recovered:.0%} of clients in their group's cluster"
    return (
        f"{found}; own accuracy {it.client:.3f}, D-PSGD {base.client:.3f}",
        it.recovered >= 0.63 and it.client >= base.client + POINT,
    )


def parted() -> tuple[str, bool]:
    """A personal head under a shared body: a point better than averaging whole models."""
    it, gossip, alone = (numbers("skewed", m) for m in ("dfedpgp", "rg", "local"))
    whole = numbers("merged", "d-psgd")
    text = (
        f"own accuracy {it.client:.3f}, D-PSGD on whole models {whole.client:.3f}; gossip, whose heads are personal, "
        f"too, {gossip.client:.3f}, alone {alone.client:.3f}; before the last merge {it.before:.3f}, gossip "
        f"{gossip.before:.3f}"
    )
    return text, it.client >= whole.client + POINT


def epidemic() -> tuple[str, bool]:
    """A random graph every round against a static one of the same degree."""
    it, base = numbers("any", "epidemic:s=4"), numbers("whole", "d-psgd")
    text = f"test accuracy {it.accuracy:.3f}, static 4-regular D-PSGD {base.accuracy:.3f}"
    return text, it.accuracy >= base.accuracy + POINT


def robust(method: str) -> tuple[str, bool]:
    """With a quarter of the peers ruined: a point above the plain average."""
    it, mean, alone = (numbers("poisoned", m) for m in (method, "d-psgd", "local"))
    text = f"own accuracy of honest clients {it.client:.3f}; plain average {mean.client:.3f}, alone {alone.client:.3f}"
    text += f"; {it.moved:.1f} of 11 models fetched" if method == "sketchguard" else ""
    return text, it.client >= mean.client + POINT


def consensus() -> tuple[str, bool]:
    """Models stay together, less than half as far apart as without averaging, and learn everybody's data."""
    it, alone = numbers("steps", "d-psgd"), numbers("steps", "local")
    text = (
        f"distance from the average {_course(it.apart)}, alone {_course(alone.apart)}; "
        f"test accuracy {it.accuracy:.3f}, alone {alone.accuracy:.3f}"
    )
    return text, it.apart[-1] < alone.apart[-1] / 2 and it.accuracy >= alone.accuracy + POINT


def compressed() -> tuple[str, bool]:
    """1% of the coordinates: models come together again, and the average gets as far as D-PSGD's for a tenth of the
    bytes."""
    it, base, alone = (numbers("steps", m) for m in ("choco:ratio=0.01:gamma=0.05", "d-psgd", "local"))
    reached = next((i for i, a in enumerate(base.average, 1) if a >= it.average[-1]), len(base.average))
    factor = base.megabytes * reached / len(base.average) / it.megabytes
    text = (
        f"distance from the average {_course(it.apart)}, D-PSGD {_course(base.apart)}, alone {_course(alone.apart)}; "
        f"the average model has {it.average[-1]:.3f} for {it.megabytes:.1f} MB, D-PSGD's "
        f"{base.average[reached - 1]:.3f} for {factor:.0f} times as much and {base.average[-1]:.3f} at the end"
    )
    back = it.apart[-1] < max(it.apart) and it.apart[-1] < alone.apart[-1]
    return text, back and it.average[-1] > alone.average[-1] + POINT and factor >= 10


def _course(values: Sequence[float]) -> str:
    """At a tenth of the run, half-way and at the end."""
    return f"{values[0]:.2f}, {values[len(values) // 2 - 1]:.2f}, {values[-1]:.2f}"


def at_equal_bytes() -> tuple[str, bool]:
    """One model a round for four times as many rounds, against D-PSGD with four a round: within a point."""
    it, base = numbers("whole", "gossip-learning", 4 * ROUNDS), numbers("whole", "d-psgd")
    text = (
        f"test accuracy {it.accuracy:.3f} after {4 * ROUNDS} rounds and {it.megabytes:.0f} MB, "
        f"D-PSGD {base.accuracy:.3f} after {ROUNDS} and {base.megabytes:.0f} MB"
    )
    return text, it.accuracy > base.accuracy - POINT


def race() -> tuple[str, bool]:
    """Dropping losers early costs at least a hundredth less than asking everybody everything."""
    it, brute = numbers("rotated", "hoeffding-race:finish=commit"), numbers("rotated", "aq-128")
    saved = 1 - it.evaluations / brute.evaluations
    text = f"{saved:.0%} fewer evaluations than aq-128; picks in the group {it.within:.0%} against {brute.within:.0%}"
    return text, saved >= POINT and it.within > 0.42


def nothing() -> tuple[str, None]:
    return "only its abstract is public: nothing to compare with", None


OTHER = "its figures are of other data and models, and of more clients"
CHECKS: Mapping[str, Check] = {
    "pens": Check("rotated", "finds clients of its distribution, higher accuracy than baselines (abstract)",
                  lambda: finds_group("pens-original"), "its figures are of more clients and a convolutional network"),
    "fedfomo": Check("rotated", "weighs models by what they gain it, higher accuracy than baselines (abstract)",
                     lambda: finds_group("fedfomo"), OTHER),
    "dpfl": Check("rotated", "at least as good as any other structure, local training included (abstract)",
                  lambda: finds_group("dpfl"), OTHER),
    "federico": Check("rotated", "learns from others as much as is good for its data (abstract)",
                      lambda: finds_group("federico"), OTHER),
    "pfeddst": Check("rotated", "higher accuracy than decentralised baselines (abstract)",
                     lambda: finds_group("pfeddst"),
                     "the printed score prefers peers on whose data one's own model does badly: where groups differ in "
                     "their images, those are the other groups"),
    "dfca": Check("rotated", "outperforms decentralised algorithms, comparable with IFCA (abstract); on rotated MNIST "
                  "63% (all start alike) or 100% (each its own start) of clients in their cluster, test accuracy .946 "
                  "and .945, IFCA .953 (the first author's notebooks)", recovers,
                  "its figures are of MNIST, 1,200 clients and 300 rounds; all start alike here"),
    "epidemic": Check("any, whole", "2.2 points more accuracy than static graphs, CIFAR-10, 96 nodes (abstract)",
                      epidemic, OTHER),
    "d-psgd": Check("steps", "as much computation as with a server, far less communication at the busiest node "
                    "(abstract); linear speed-up (its reviews)", consensus,
                    "consensus and learning are looked at, not the speed-up; a constant step keeps models apart"),
    "choco": Check("steps", "communication reduced by at least two orders of magnitude (abstract)", compressed,
                   "a short run: with 1% of the coordinates models are still far apart when it ends"),
    "dispfl": Check("skewed", "higher accuracy at half the density (abstract)",
                    lambda: saves("skewed", "dispfl", "dispfl:density=1.0", "dense"), OTHER),
    "da-dpfl": Check("skewed", "higher accuracy, up to 5 times less energy (abstract)",
                     lambda: saves("skewed", "da-dpfl:wait=0", "dispfl", "DisPFL"),
                     "it prunes for good from a fifth of the run on: after three short rounds, where the paper has "
                     "trained for many"),
    "dfedpgp": Check("skewed, merged", "state-of-the-art accuracy under heterogeneity (abstract)", parted,
                     "other methods of its kind are not here; gossip with personal heads is less than a point behind"),
    "ocd-fl": Check("skewed", "similar or better than full collaboration with 30% to 80% less energy (abstract)",
                    lambda: saves("skewed", "ocd-fl", "d-psgd", "D-PSGD"),
                    "with skewed labels a lower loss shows who has the easier data, not whose model helps"),
    "gossip-learning": Check("whole", "comparable with federated averaging (abstract)", at_equal_bytes,
                             "there is no server to compare with: D-PSGD stands for it"),
    "hoeffding-race": Check("rotated", "finds the best model with less work than brute force (abstract)", race,
                            "128 answers tell 19 peers apart by far too wide intervals: hardly anybody is dropped"),
    "sketchguard": Check("poisoned", "error within .5 points of full-precision screening, 50% to 70% fewer bytes when "
                         "as many are rejected (abstract)", lambda: robust("sketchguard"),
                         "there is no screening of whole models to compare with, and fewer peers are bad"),
    "median": Check("poisoned", "order-optimal error below one half of bad machines (abstract)",
                    lambda: robust("median"), "a rate in the number of samples, which one run does not show"),
    "dflstar-lite": Check("none", "less communication to a target accuracy (abstract)", nothing),
    "dfedmq-lite": Check("none", "unknown", nothing),
    "cfns-lite": Check("none", "unknown", nothing),
}  # fmt: skip


THEIRS = {  # what the papers' own figures are of, as far as it could be read
    "pens": "CIFAR-10 and Fashion-MNIST", "fedfomo": "CIFAR-10 and -100", "dpfl": "CIFAR-10, CINIC-10 and FEMNIST",
    "pfeddst": "CIFAR-10 and -100", "dfca": "MNIST, EMNIST and CIFAR-10", "epidemic": "CIFAR-10",
    "dispfl": "CIFAR-10 and -100", "da-dpfl": "CIFAR-10, CIFAR-100 and HAM10000", "ocd-fl": "MNIST and CIFAR-10",
}  # fmt: skip


def data(method: str) -> str:
    """What a check is run on, and instead of what."""
    if CHECKS[method].setting == "none":
        return ""
    return f"embedded Fashion-MNIST; theirs: {THEIRS.get(method, 'not known')}"


def row(method: str) -> dict[str, str]:
    """The row of one check, run now."""
    check = CHECKS[method]
    found, holds = check.ours()
    number = str(versions.METHODS.get(method, 1))
    values = (method, check.setting, data(method), check.published, found, direction(holds), check.why, number)
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="default: all")
    parser.add_argument("--out", type=Path, default=Path("results/fidelity"))
    args = parser.parse_args()
    path = args.out / "checks.csv"
    args.out.mkdir(parents=True, exist_ok=True)
    kept = {row["method"]: row for row in csv.DictReader(path.open(encoding="utf-8"))} if path.exists() else {}
    for method in args.methods or CHECKS:
        kept[method] = row(method)
        print(f"{method}: {kept[method]['verdict']}: {kept[method]['ours']}", flush=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept[m] for m in CHECKS if m in kept)


if __name__ == "__main__":
    main()
