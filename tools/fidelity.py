"""Each published method against what its own paper says, in the smallest published setting that runs here.

python tools/fidelity.py            # half an hour on one core; `python tools/fidelity.py pens dfca` runs some again

Data are the papers' own where they can be had: `sagefl data get mnist` (and `cifar10`, `fmnist`) first. What a world is
stands in its row, with what was reduced of the published one: networks, numbers of clients, rounds and seeds
(`tools/fidelity_worlds.py`). Claims about consensus are checked on vectors (`tools/fidelity_gossip.py`).

A verdict is computed from our numbers by the rule in the function of the method's entry, written before it was run.
A gain of less than a point counts as none; where bytes are saved, so does a loss. "reproduced" is kept for figures,
published or derived, that ours can be compared with; "direction only" means that the paper's claim, or the part of it
that the rule looks at, points the same way here. `why` says what is in the way of more, `earlier` what a check of the
same method in another world found before. `version` is that of the method's results when the row was made: a row of an
older one is stale.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fidelity_gossip import gossip, logistic, noisy_quadratic, slowest
from fidelity_worlds import ROUNDS, WORLDS, numbers, runs

from sagefl.runs import versions

POINT = 0.01
COLUMNS = ("method", "run", "world", "theirs", "published", "ours", "verdict", "why", "earlier", "version")
Found = tuple[str, str]  # what we found, and the verdict


@dataclass(frozen=True)
class Check:
    """What a paper says, and how we look for it."""

    world: str  # of `WORLDS`, or in words
    theirs: str  # the published setting, as far as it could be read
    published: str
    ours: Callable[[], Found]
    why: str = ""  # what is in the way of more
    run: str = ""  # what was run, where that is not the method at its defaults
    earlier: str = ""


def direction(found: bool) -> str:
    """Of a claim whose figures cannot be compared with ours."""
    return "direction only" if found else "not reproduced"


def figure(close: bool, points: bool = False) -> str:
    """Of a figure that can be: close to it, pointing the same way, or neither."""
    return "reproduced" if close else direction(points)


# Finding one's group --------------------------------------------------------------------------------------------------

AT_30 = (0.902, 0.903)  # test accuracy after epoch 30 of their four seeds that found all groups: the worst, the best
RECOVERED = 0.63  # share of clients in the right cluster in the worst of their ten runs, which found three of four


def clusters() -> Found:
    """Reproduced: among 60 clients as good as IFCA to a point (theirs: .001 apart); among 240 every seed that finds all
    groups within a point of theirs that did, at the same round, and no seed finds less than their worst. The same way:
    as good as IFCA, and groups are found."""
    few, server, many = runs("mnist", "dfca"), runs("mnist-all", "dfca")[0], runs("mnist-many", "dfca")
    alike = all(abs(run.accuracy - server.accuracy) < POINT for run in few)
    found = all(run.recovered >= RECOVERED for run in (*few, server, *many))
    whole = [run.accuracy for run in many if run.recovered == 1]
    close = bool(whole) and all(AT_30[0] - POINT <= a <= AT_30[1] + POINT for a in whole)
    text = "; ".join(
        f"{clients}: " + ", ".join(f"{run.accuracy:.3f} with {run.recovered:.0%} in their cluster" for run in seeds)
        for clients, seeds in (("240 clients", many), ("60 clients", few), ("as IFCA, 60 clients", [server]))
    )
    return f"test accuracy after the same 31 rounds, {text}", figure(alike and found and close, alike and found)


def finds_half() -> Found:
    """Three quarters of the picks within its group, half-way between chance (7 of 15) and all, and a point above
    random gossip on its group's test set."""
    it, blind = numbers("fashion", "pens-original"), numbers("fashion", "rg")
    text = f"{it.within:.0%} of picks in the group (chance 47%); test accuracy {it.accuracy:.3f}, gossip "
    return text + f"{blind.accuracy:.3f}", direction(it.within > 0.75 and it.accuracy >= blind.accuracy + POINT)


def finds_fifth(method: str, above_local: float) -> Found:
    """Twice as many picks within its group as by chance (2 of 14), a point above averaging with everybody, and so much
    above local training."""
    it, mean, alone = (numbers("five", m) for m in (method, "d-psgd", "local"))
    text = f"{it.within:.0%} of picks in the group (chance 14%); test accuracy {it.accuracy:.3f}, averaging with "
    text += f"everybody {mean.accuracy:.3f}, alone {alone.accuracy:.3f}"
    points = it.accuracy >= max(mean.accuracy + POINT, alone.accuracy + above_local)
    return text, direction(it.within > 2 * 0.143 and points)


def finds_quarter(method: str) -> Found:
    """It picks within its group twice as often as chance (4 of 19), and does a point better than random gossip and
    than local training."""
    it, blind, alone = (numbers("rotated", m) for m in (method, "rg", "local"))
    text = f"{it.within:.0%} of picks in the group (chance 21%); own accuracy {it.client:.3f}, "
    text += f"gossip {blind.client:.3f}, alone {alone.client:.3f}"
    return text, direction(it.within > 0.42 and it.client >= max(blind.client, alone.client) + POINT)


def race() -> Found:
    """A tenth fewer evaluations than asking everybody about all 512 anchors, and nine tenths of the picks of the one
    peer that is of one's group (chance 1 of 7)."""
    it = numbers("race", RACE)
    saved = 1 - it.evaluations / (8 * 7 * 512 * ROUNDS)
    text = f"{saved:.0%} fewer evaluations than asking everybody everything; picks in the group {it.within:.0%} "
    return text + "(chance 14%)", direction(saved >= 0.1 and it.within >= 0.9)


# Consensus ------------------------------------------------------------------------------------------------------------


def consensus() -> Found:
    """Reproduced: on rings of 9 and 25 nodes a distance shrinks per round by the second largest eigenvalue of W, to
    1%; and with n nodes the noise of the average is 1/n of a single one's, to 10% (linear speed-up)."""
    rates = {}
    for nodes in (9, 25):
        apart = gossip("d-psgd", nodes, 200 if nodes == 25 else 40)
        late = len(apart) // 2
        rates[nodes] = (apart[-1] / apart[late]) ** (1 / (len(apart) - 1 - late) / 2)
    single = noisy_quadratic("d-psgd", 1)
    gains = {nodes: single / noisy_quadratic("d-psgd", nodes) for nodes in (4, 9, 25)}
    close = all(abs(rate / slowest(nodes) - 1) < 0.01 for nodes, rate in rates.items())
    close &= all(abs(gain / nodes - 1) < 0.1 for nodes, gain in gains.items())
    shown = ", ".join(f"{rate:.4f} ({slowest(nodes):.4f} by theory)" for nodes, rate in rates.items())
    faster = ", ".join(f"{gain:.1f} with {nodes}" for nodes, gain in gains.items())
    return f"distance per round on rings of 9 and 25: times {shown}; noise of the average smaller by {faster}", figure(
        close
    )


def compressed() -> Found:
    """Reproduced: with 1% of the coordinates distances fall linearly (a line through their logarithms in the second
    half explains 99%) below a thousandth; with a tenth of the coordinates it takes no less than a tenth of the rounds,
    as 1 / (delta^2 omega) has it; and SGD gets within 5% of D-PSGD's loss with a hundredth of the values."""
    sparse, denser = gossip("choco:ratio=0.01:gamma=0.04", 9, 1500), gossip("choco:ratio=0.1:gamma=0.2", 9, 1500)
    half = np.log(sparse[len(sparse) // 2 :])
    line = float(np.corrcoef(np.arange(len(half)), half)[0, 1] ** 2)
    takes = [int(np.argmax(e < e[0] * 1e-3)) for e in (sparse, denser)]
    rate = math.exp(float(np.polyfit(np.arange(len(half)), half, 1)[0]) / 2)
    losses = [logistic(spec, 9, 4000, lambda t: 20.0 / (t + 785)) for spec in ("d-psgd", CHOCO_SGD)]
    text = (
        f"distance per round times {rate:.4f}, a line to {line:.3f} of its variance; a thousandth of the squared "
        f"distance after {takes[0]} rounds, with a tenth of the coordinates after {takes[1]}; loss of the average "
        f"after 4,000 steps {losses[1]:.4f}, D-PSGD {losses[0]:.4f}, for {785 / 7:.0f} times fewer values"
    )
    linear = line > 0.99 and min(takes) > 0 and takes[0] <= 10 * takes[1]
    return text, figure(linear and losses[1] <= 1.05 * losses[0], linear)


# Accuracy and bytes ---------------------------------------------------------------------------------------------------


def beats_mesh() -> Found:
    """A point above gossip, D-PSGD on whole models and DisPFL, on clients' own held-out images."""
    it = numbers("shards", "pfeddst")
    others = {"gossip": ("shards", "rg"), "D-PSGD": ("shards, merged", "d-psgd"), "DisPFL": ("shards", SPARSE)}
    found = {name: numbers(*at).client for name, at in others.items()}
    text = f"own accuracy {it.client:.3f}; " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
    alone = numbers("shards", "local").client
    return f"{text}; alone {alone:.3f}", direction(it.client >= max(found.values()) + POINT)


def parted() -> Found:
    """A personal head under a shared body: a point better than averaging whole models."""
    it, blind, alone = (numbers("shards", m) for m in ("dfedpgp", "rg", "local"))
    whole = numbers("shards, merged", "d-psgd")
    text = f"own accuracy {it.client:.3f}, D-PSGD on whole models {whole.client:.3f}; gossip, whose heads are "
    text += f"personal, too, {blind.client:.3f}, alone {alone.client:.3f}; before the last merge {it.before:.3f}, "
    return f"{text}gossip {blind.before:.3f}", direction(it.client >= whole.client + POINT)


def saves(world: str, method: str, other: str, name: str) -> Found:
    """It moves less than the other and loses less than a point of accuracy."""
    it, base = numbers(world, method), numbers(world, other)
    saved = 1 - it.megabytes / base.megabytes
    moved = f"{abs(saved):.0%} {'fewer' if saved > 0 else 'more'} bytes than {name}"
    text = f"{moved}; own accuracy {it.client:.3f} against {base.client:.3f}"
    return text, direction(saved > 0 and it.client > base.client - POINT)


def epidemic() -> Found:
    """A random graph every round against a static one of the same degree: a point more."""
    it, base = numbers("any", "epidemic:s=4"), numbers("whole", "d-psgd")
    text = f"test accuracy {it.accuracy:.3f}, static 4-regular D-PSGD {base.accuracy:.3f}"
    return text, direction(it.accuracy >= base.accuracy + POINT)


def robust(method: str) -> Found:
    """With a quarter of the peers ruined: a point above the plain average."""
    it, mean, alone = (numbers("poisoned", m) for m in (method, "d-psgd", "local"))
    text = f"own accuracy of honest clients {it.client:.3f}; plain average {mean.client:.3f}, alone {alone.client:.3f}"
    text += f"; {it.moved:.1f} of 11 models fetched" if method == "sketchguard" else ""
    return text, direction(it.client >= mean.client + POINT)


def at_equal_bytes() -> Found:
    """One model a round for four times as many rounds, against D-PSGD with four a round: within a point."""
    it, base = numbers("whole", "gossip-learning", 4 * ROUNDS), numbers("whole", "d-psgd")
    text = (
        f"test accuracy {it.accuracy:.3f} after {4 * ROUNDS} rounds and {it.megabytes:.0f} MB, "
        f"D-PSGD {base.accuracy:.3f} after {ROUNDS} and {base.megabytes:.0f} MB"
    )
    return text, direction(it.accuracy > base.accuracy - POINT)


def nothing() -> Found:
    """No test."""
    return "only its abstract is public: nothing to compare with", "not testable"


# The table ------------------------------------------------------------------------------------------------------------

RACE = "hoeffding-race:finish=commit:schedule=16,32,64,128,256,512"
SPARSE, DENSE = "dispfl:masks=own", "dispfl:masks=own:density=1.0"
CHOCO_SGD = "choco:ratio=0.009:gamma=0.04"
OTHER = "its figures are of other data and models, and of more clients"
RESNET = "CIFAR-10 and -100, 100 clients, ResNet-18, 500 rounds (its scripts)"
SMALLER = "a far smaller network, a fifth of the clients, 15 of 500 rounds and one seed"
TURNED = "embedded Fashion-MNIST, four groups by rotation"
CHECKS: Mapping[str, Check] = {
    "pens": Check(
        "fashion", "CIFAR-10 and Fashion-MNIST: 200 clients of 400 images, 100 of them to train on, two groups, 20 "
        "rounds of 13 epochs and then 333 of 3 with up to 20 peers each (its code)",
        "finds clients of its distribution, higher accuracy than baselines (abstract)", finds_half,
        "its figures could not be read; 16 clients of 200, 12 rounds of 353, one seed, all start alike",
        run="pens-original: its own 10 models a round for four fifths of the run; the default's budget is SAGE's",
        earlier=f"direction only ({TURNED}: 85% of picks in the group, .664 against .555)",
    ),
    "fedfomo": Check(
        "five", "CIFAR-10: 15 clients, five distributions, 20 rounds of five epochs of SGD at .1 in batches of 50, a "
        "convolutional network (its README)",
        "weighs models by what they gain it, higher accuracy than baselines (abstract)",
        lambda: finds_fifth("fedfomo:downloads=4", POINT),
        "its figures could not be read; averages are at chance; a tenth of the images, pairs of classes instead of "
        "clusters of features, one seed",
        run="fedfomo:downloads=4, as in its README",
        earlier=f"direction only ({TURNED}: 100% of picks in the group, .690 against .555)",
    ),
    "dpfl": Check(
        "five", "CIFAR-10, CINIC-10 and FEMNIST (abstract)",
        "at least as good as any other structure, local training included (abstract)",
        lambda: finds_fifth("dpfl", -POINT), "its figures could not be read; world and network are FedFomo's, one seed",
        earlier=f"direction only ({TURNED}: 100% of picks in the group, .693 against .555)",
    ),
    "federico": Check("rotated", "not known", "alone in being better than local training on every one of several "
                      "benchmarks (abstract)", lambda: finds_quarter("federico"), OTHER,
                      earlier="direction only (the same runs, by a rule that left local training out)"),
    "pfeddst": Check(
        "shards", "CIFAR-10 and -100 with pathological partitions (public summaries)",
        "higher accuracy than decentralised baselines (abstract)", beats_mesh,
        f"its figures could not be read; less than a point above training alone; {SMALLER}",
        earlier=f"not reproduced ({TURNED}, which was never its setting: 10% of picks in the group, .540 against .555)",
    ),
    "dfca": Check(
        "mnist-many", "rotated MNIST: 1,200 clients of 200 images in four groups, perceptron of 200 units, about 25 "
        "new partners a round, 300 rounds of the same training (the first author's notebooks, five seeds)",
        "test accuracy after epoch 30 .902 to .903 where all groups were found, .854 where not, IFCA .904 and .858; in "
        "the end .943 to .953 and .946 to .955; "
        "65% to 100% of clients in their cluster, IFCA 63% to 100% (exp_1/result.ipynb, all start alike)", clusters,
        "",
        earlier=f"direction only ({TURNED}: 85% of clients in their cluster, .674 against D-PSGD's .529); it gave the "
        "published figures as 63% or 100%, .946 and .945, IFCA .953, of single runs. reproduced (60 clients, by a rule "
        "that took theirs that missed groups for a bound: .862 and .861, IFCA .863). direction only (by this rule, on "
        "the first 2,000 test images only, which are harder than the rest: 240 clients .875 and .874)",
    ),
    "epidemic": Check("any", "CIFAR-10, 96 nodes, LeNet, Dirichlet(.1), s = 7 (abstract and its tutorial's config)",
                      "2.2 points more accuracy than static graphs (abstract)", epidemic, OTHER,
                      run="epidemic:s=4, against D-PSGD on a 4-regular graph of the same clients"),
    "d-psgd": Check(
        "normal vectors of 2,000 numbers on rings; SGD on |x|^2 / 2 with unit noise", "rings of up to 112 nodes, "
        "CIFAR-10 (abstract and reviews)",
        "on average as good as with a server: linear speed-up (its reviews); consensus by the second eigenvalue of W "
        "(theory)", consensus,
        earlier="direction only (embedded Fashion-MNIST, a ring of 9: distances .26, .18, .16 under a constant step, "
        "alone .84, 1.57, 1.98)",
    ),
    "choco": Check(
        "normal vectors of 2,000 numbers, and logistic regression on MNIST (digits below five), on a ring of 9",
        "epsilon (2,000 features) and rcv1 on a ring of 9, top-20 with step .04 (its convex code)",
        "gossip converges linearly, in O(log(1/e) / (delta^2 omega)) rounds, with any compression; two orders of "
        "magnitude fewer bits (abstract)", compressed,
        "",
        run="choco:ratio=0.01:gamma=0.04 (its top-20 of 2,000) and ratio=0.009 for SGD; the defaults are .1 and .2",
        earlier="direction only, with no consensus to be seen (embedded Fashion-MNIST, a ring of 9, ratio .01, gamma "
        ".05: distances .71, .91, .81 in 200 steps)",
    ),
    "dispfl": Check(
        "shards", RESNET, "higher accuracy at half the density (abstract); CIFAR-10 by Dirichlet(.3) .824, by "
        "Dirichlet(.1) .878 (public leaderboard, wizwand.com)",
        lambda: saves("shards", SPARSE, DENSE, "dense"), SMALLER,
        run="dispfl:masks=own, as in its cifar10.sh; the default has one mask for all",
        earlier="direction only (embedded Fashion-MNIST, Dirichlet(.1), one mask for all: 48% fewer bytes, .894 "
        "against .891)",
    ),
    "da-dpfl": Check(
        "shards", RESNET + ", HAM10000", "higher accuracy, up to 5 times less energy (abstract)",
        lambda: saves("shards", "da-dpfl:masks=own", SPARSE, "DisPFL"),
        "bytes are counted, not energy; fresh models are pulled a second time here; it prunes for good from a fifth of "
        "the run on: after three rounds, where the paper has trained for many",
        run="da-dpfl:masks=own with its waiting (N = 1 of 2; its cifar10.sh: N from 10 of 10 down to 0)",
        earlier="not reproduced (embedded Fashion-MNIST, Dirichlet(.1), wait=0, which switches its dynamic aggregation "
        "off: 13% fewer bytes, .866 against .894)",
    ),
    "dfedpgp": Check(
        "shards", "CIFAR-10, CIFAR-100 and Tiny-ImageNet, 100 clients with 10 neighbours, two classes each, ResNet-18, "
        "500 rounds (a public copy of its code)",
        "state-of-the-art accuracy under heterogeneity (abstract); Tiny-ImageNet by Dirichlet(.1) .257, DisPFL .247 "
        "(public leaderboard, wizwand.com)", parted,
        f"Tiny-ImageNet is not here; whole models are at chance, and training alone is a point better; {SMALLER}",
        earlier="direction only (embedded Fashion-MNIST, Dirichlet(.1): .901, D-PSGD on whole models .559, gossip "
        ".892, alone .904)",
    ),
    "ocd-fl": Check(
        "nearby", "MNIST and CIFAR-10; the same with all 60,000 images and dropout, nodes that move in 3 km x 6 km and "
        "reach 2 km (its code and README)",
        "similar or better than full collaboration with 30% to 80% less energy (abstract)",
        lambda: saves("nearby", "ocd-fl:energy=distance", "d-psgd", "full collaboration"),
        "bytes are counted, not energy; losses are of training, not of a test set that all have; one seed",
        run="ocd-fl:energy=distance, nearest to its radio model; the default's links all cost 1",
        earlier="not reproduced (embedded Fashion-MNIST, 12 clients, Dirichlet(.1), a 4-regular graph, all links at "
        "the same cost: 30% fewer bytes than D-PSGD, .841 against .895)",
    ),
    "gossip-learning": Check("whole", "not known", "comparable with federated averaging (abstract)", at_equal_bytes,
                             "there is no server to compare with: D-PSGD stands for it"),
    "hoeffding-race": Check(
        "race", "model selection among up to hundreds of models by leave-one-out errors (introduction)",
        "finds the best model with less work than brute force (abstract)", race,
        "peers take the place of models, and two of them share their data: an easy race",
        run=f"{RACE}; the default schedule ends at 128",
        earlier="not reproduced (20 clients with pools of 50 anchors: 0% fewer evaluations, all picks in the group)",
    ),
    "sketchguard": Check(
        "poisoned", "three non-iid benchmarks, five graphs, four attacks (abstract)",
        "error within .5 points of full-precision screening, 50% to 70% fewer bytes when as many are rejected "
        "(abstract)", lambda: robust("sketchguard"),
        "there is no screening of whole models to compare with, and fewer peers are bad",
    ),
    "median": Check("poisoned", "not known", "order-optimal error below one half of bad machines (abstract)",
                    lambda: robust("median"), "a rate in the number of samples, which one run does not show"),
    "dflstar-lite": Check("none", "not known", "less communication to a target accuracy (abstract)", nothing),
    "dfedmq-lite": Check("none", "not known", "unknown", nothing),
    "cfns-lite": Check("none", "not known", "unknown", nothing),
}  # fmt: skip


def said(method: str) -> dict[str, str]:
    """What a row says before anything is run."""
    check = CHECKS[method]
    world = WORLDS[check.world].ours if check.world in WORLDS else check.world
    number = str(versions.METHODS.get(method, 1))
    words = {"method": method, "run": check.run or method, "world": world, "theirs": check.theirs}
    return words | {
        "published": check.published, "why": check.why, "earlier": check.earlier, "version": number
    }  # fmt: skip


def row(method: str) -> dict[str, str]:
    """The row of one check, run now."""
    found, verdict = CHECKS[method].ours()
    return said(method) | {"ours": found, "verdict": verdict}


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
